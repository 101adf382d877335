"""Step lbfgs08: Adamax: the largest gradient instead of the mean of squares

Adam divides by the root of a mean of squares. That mean follows one huge gradient only slowly: with
beta2 = 0.999, after a thousand gradients of 1 and one of 100, the root is 4, and the step is nearly
three times as long as those before. The second half of Adam's paper replaces the mean of squares by
a norm of order infinity:

    u = max(beta2 * u, |g|)          the largest gradient so far, and each step it fades a little

u needs no correction for its start, since it is a gradient's size from the first step on. Programs
for normalizing flows, whose gradients jump, use it.

The trap: where all gradients were 0, m / u is 0 / 0. So eps is added to |g|, before the maximum is
taken, and not to u.

New: Adamax. Finished: optim/adamax.py.
Try: leave eps out, and give a parameter a gradient of zeros.
"""

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


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.optim.adam import Adam

    def last_move(optimizer_class, **options):
        """How far the parameter moves at a gradient of 100, after 1000 steps with 1."""
        param = tensor([0.0], requires_grad=True)
        optimizer = optimizer_class([param], lr=0.01, betas=(0.9, 0.999), **options)
        for gradient in [1.0] * 1000 + [100.0]:
            before, param.grad = param.item(), tensor([gradient])
            optimizer.step()
        return before - param.item()

    print(f"{last_move(Adam):.4f} {last_move(Adamax):.4f}")  # -> 0.0266 0.0011

    param = tensor([1.0, 2.0, 3.0], requires_grad=True)
    param.grad = tensor([4.0, -2.0, 0.0])
    optimizer = Adamax([param], lr=0.5)
    optimizer.step()
    print(param.tolist(), list(optimizer.state[param]))
    # -> [0.5, 2.5, 3.0] ['step', 'exp_avg', 'exp_inf']
    try:
        Adamax([param], betas=(0.9, 1.0))
    except ValueError as error:
        print(error)  # -> Invalid beta parameter at index 1: 1.0
