"""Adam and AdamW: per-element step sizes from running estimates of the gradient's moments."""

import math
from collections.abc import Iterable
from typing import Any

from tinytorch.optim.flat import FlatOptimizer
from tinytorch.optim.optimizer import checked


class Adam(FlatOptimizer):
    """m and v are running means of the gradient and of its square; both start at zero, and are
    divided by 1 - beta^step to make up for it.

        m = beta1 * m + (1 - beta1) * g                  v = beta2 * v + (1 - beta2) * g^2
        p = p - lr * m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)

    weight_decay adds weight_decay * p to g; decoupled_weight_decay takes lr * weight_decay * p from
    p instead.
    Source: Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015.
    Raises:
        ValueError: for options out of range.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ):
        options = checked(locals())
        for number, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {number}: {beta}")
        super().__init__(params, options)

    def state_names(self, group: dict[str, Any]) -> list[str]:
        return ["step", "exp_avg", "exp_avg_sq"]

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        m, v, step = state["exp_avg"], state["exp_avg_sq"], state["step"]
        lr, eps, (beta1, beta2) = group["lr"], group["eps"], group["betas"]
        if group["decoupled_weight_decay"]:
            p *= 1 - lr * group["weight_decay"]
        # `out=t` computes in memory that is there already: new arrays instead would make a step of
        # a small network a tenth slower.
        xp, t = state["xp"], state["scratch"]
        m *= beta1
        m += xp.multiply(g, 1 - beta1, out=t)
        v *= beta2
        xp.multiply(g, math.sqrt(1 - beta2), out=t)
        v += xp.multiply(t, t, out=t)
        # The unbiased m and v are m / (1 - beta1^step) and v / (1 - beta2^step). Here the numbers
        # change lr and eps instead of whole arrays, as section 2 of the paper recommends.
        root = (1 - beta2**step) ** 0.5
        xp.sqrt(v, out=t)
        t += eps * root
        xp.divide(m, t, out=t)
        t *= lr * root / (1 - beta1**step)
        p -= t


class AdamW(Adam):
    """Adam with decoupled weight decay: p = p - lr * weight_decay * p, apart from the gradient.

    Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        super().__init__(**checked(locals()), params=params, decoupled_weight_decay=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # also where the state is Adam's
            group["decoupled_weight_decay"] = True
