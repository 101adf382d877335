"""RMSprop and Adagrad: the step of each element divided by the size of its gradients so far."""

from collections.abc import Iterable
from typing import Any

from tinytorch.core.dtype import float32
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import full_like
from tinytorch.optim.flat import FlatOptimizer, FlatParameters
from tinytorch.optim.optimizer import checked


class RMSprop(FlatOptimizer):
    """p = p - lr * g / (sqrt(s) + eps), s a running mean of g^2.

        s = alpha * s + (1 - alpha) * g^2;   centered: the variance, s - a^2 with a the mean of g
        with momentum: b = momentum * b + g / (sqrt(s) + eps),   p = p - lr * b

    Source: Hinton, Neural Networks for Machine Learning, lecture 6, 2012; Graves, 2013 (centered).
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ):
        super().__init__(params, checked(locals()))

    def kept(self, group: dict[str, Any]) -> list[str]:
        also = {"momentum_buffer": group["momentum"] > 0, "grad_avg": group["centered"]}
        return ["step", "square_avg", *(name for name, wanted in also.items() if wanted)]

    def move(self, flat: FlatParameters, group: dict[str, Any]) -> None:
        xp, alpha, momentum = flat.xp, group["alpha"], group["momentum"]
        rate, eps, keep, new, roll = flat.numbers(
            float(group["lr"]), group["eps"], alpha, 1 - alpha, momentum
        )
        for p, g, (square, *others), t in flat.pieces(group):
            square *= keep
            t = xp.multiply(g, new, out=t)
            square += xp.multiply(t, g, out=t)
            if group["centered"]:
                mean = others[-1]
                mean *= keep
                mean += xp.multiply(g, new, out=t)
                square = xp.subtract(square, xp.multiply(mean, mean, out=t), out=t)
            t = xp.sqrt(square, out=t)
            t += eps
            d = xp.divide(g, t, out=t)
            if momentum > 0:
                d = others[0]
                d *= roll
                d += t
            p -= xp.multiply(d, rate, out=t)


class Adagrad(FlatOptimizer):
    """p = p - lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps), s the sum of all g^2.

    s begins with initial_accumulator_value.
    Source: Duchi, Hazan and Singer, Adaptive Subgradient Methods, 2011.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        super().__init__(params, checked(locals()))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        for param in param_group["params"]:
            sums = full_like(param, param_group["initial_accumulator_value"], requires_grad=False)
            self.state[param] = {"step": tensor(0.0, dtype=float32), "sum": sums}

    def kept(self, group: dict[str, Any]) -> list[str]:
        return ["step", "sum"]

    def move(self, flat: FlatParameters, group: dict[str, Any]) -> None:
        xp, lr = flat.xp, float(group["lr"]) / (1 + (flat.step - 1) * group["lr_decay"])
        rate, eps = flat.numbers(lr, group["eps"])
        for p, g, (total,), t in flat.pieces(group):
            total += xp.multiply(g, g, out=t)
            t = xp.sqrt(total, out=t)
            t += eps
            t = xp.divide(g, t, out=t)
            p -= xp.multiply(t, rate, out=t)
