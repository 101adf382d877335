"""Adam and AdamW: a step for each element, in proportion to how sure its gradient is."""

import math
from collections.abc import Iterable
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.optim.flat import FlatOptimizer, FlatParameters
from tinytorch.optim.optimizer import checked


class Adam(FlatOptimizer):
    """m and v are running means of the gradient and of its square; both start at zero, and are
    divided by 1 - beta^step to make up for it.

        m = beta1 * m + (1 - beta1) * g                  v = beta2 * v + (1 - beta2) * g^2
        p = p - lr * m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)

    weight_decay adds weight_decay * p to g; decoupled_weight_decay takes lr * weight_decay * p from
    p instead. With amsgrad, v is the largest that it ever was.
    Source: Kingma and Ba, 2015; Reddi et al., 2018 (amsgrad). ValueError for options out of range.
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
        if {type(beta) for beta in betas} not in ({float}, {Tensor}):
            raise ValueError("betas must be either both floats or both Tensors")
        for name, value in zip(("lr", "betas[0]", "betas[1]"), (lr, *betas), strict=True):
            if isinstance(value, Tensor) and foreach and not capturable:
                raise ValueError(
                    f"{name} as a Tensor is not supported for capturable=False and foreach=True"
                )
        super().__init__(params, options)

    def kept(self, group: dict[str, Any]) -> list[str]:
        return ["step", "exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * group["amsgrad"]

    def move(self, flat: FlatParameters, group: dict[str, Any]) -> None:
        lr, (beta1, beta2) = float(group["lr"]), map(float, group["betas"])
        # Numerator and denominator times sqrt(1 - beta2^step): one operation less on the arrays.
        root = math.sqrt(1 - beta2**flat.step)
        eps, rate, shrink, keep1, new1, keep2, new2 = flat.numbers(
            group["eps"] * root,
            lr * root / (1 - beta1**flat.step),
            1 - lr * group["weight_decay"],
            *(beta1, 1 - beta1, beta2, math.sqrt(1 - beta2)),
        )
        multiply, sqrt, divide = flat.xp.multiply, flat.xp.sqrt, flat.xp.divide
        for p, g, (m, v, *largest), t in flat.pieces(group):
            if group["decoupled_weight_decay"]:
                p *= shrink
            m *= keep1
            m += multiply(g, new1, out=t)
            v *= keep2
            t = multiply(g, new2, out=t)
            v += multiply(t, t, out=t)
            if largest:
                v = flat.xp.maximum(largest[0], v, out=largest[0])
            t = sqrt(v, out=t)
            t += eps
            t = divide(m, t, out=t)
            p -= multiply(t, rate, out=t)


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
