"""Adam and AdamW: a step for each element, in proportion to how sure its gradient is."""

import math
from collections.abc import Iterable
from typing import Any

from tinytorch.core.device import device_of
from tinytorch.optim.flat import FlatOptimizer
from tinytorch.optim.optimizer import check_at_least, check_switches


class Adam(FlatOptimizer):
    """m and v are running means of the gradient and of its square; both start at zero, and are
    divided by 1 - beta^step to make up for it.

        m = beta1 * m + (1 - beta1) * g                  v = beta2 * v + (1 - beta2) * g^2
        p = p - lr * m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)

    weight_decay adds weight_decay * p to g; with amsgrad, v is the largest that it ever was.
    Source: Kingma and Ba, 2015; Reddi et al., 2018 (amsgrad). ValueError for options out of range.
    """

    decoupled = False  # AdamW shrinks the parameters directly, instead of by the gradient

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **switches: Any,
    ):
        check_switches(switches)
        check_at_least(0.0, **{"learning rate": lr})
        check_at_least(0.0, epsilon=eps, weight_decay=weight_decay)
        for number, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {number}: {beta}")
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
            },
        )

    def kept(self, group: dict[str, Any]) -> list[str]:
        return ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * group["amsgrad"]

    def move(
        self, p: Any, g: Any, kept: list[Any], free: list[Any], group: dict[str, Any], step: int
    ) -> None:
        xp, t = device_of(p).xp, free[0]
        (beta1, beta2), lr, decay = group["betas"], group["lr"], group["weight_decay"]
        m, v, *largest = kept
        if decay and self.decoupled:
            p *= 1 - lr * decay
        elif decay:
            g = g + decay * p
        m *= beta1
        xp.multiply(g, 1 - beta1, out=t)
        m += t
        v *= beta2
        xp.multiply(g, 1 - beta2, out=t)
        t *= g
        v += t
        if largest:
            xp.maximum(largest[0], v, out=largest[0])
            v = largest[0]
        # Numerator and denominator times sqrt(1 - beta2^step): one operation less on the arrays.
        root = math.sqrt(1 - beta2**step)
        xp.sqrt(v, out=t)
        t += group["eps"] * root
        xp.divide(m, t, out=t)
        t *= lr * root / (1 - beta1**step)
        p -= t


class AdamW(Adam):
    """Adam with decoupled weight decay: p = p - lr * weight_decay * p, apart from the gradient.

    Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019.
    """

    decoupled = True

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
        **switches: Any,
    ):
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, **switches
        )
