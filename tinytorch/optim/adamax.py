"""Adamax: Adam, with the largest gradient in place of the root of the mean square."""

from collections.abc import Iterable
from typing import Any

from tinytorch.optim.flat import FlatOptimizer
from tinytorch.optim.optimizer import checked


class Adamax(FlatOptimizer):
    """m is the running mean of the gradient, u its largest size, which decays by beta2 in a step.

        m = beta1 * m + (1 - beta1) * g           u = max(beta2 * u, |g| + eps)
        p = p - lr / (1 - beta1^step) * m / u

    Source: Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015, section 7.1.
    Raises:
        ValueError: for options out of range.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ):
        options = checked(locals())
        for number, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {number}: {beta}")
        super().__init__(params, options)

    def state_names(self, group: dict[str, Any]) -> list[str]:
        return ["step", "exp_avg", "exp_inf"]

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        xp, m, u, (beta1, beta2) = state["xp"], state["exp_avg"], state["exp_inf"], group["betas"]
        m *= beta1
        m += (1 - beta1) * g
        u *= beta2
        xp.maximum(u, abs(g) + group["eps"], out=u)
        p -= group["lr"] / (1 - beta1 ** state["step"]) * (m / u)
