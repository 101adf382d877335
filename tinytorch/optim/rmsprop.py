"""RMSprop and Adagrad: the step of each element divided by the size of its gradients so far."""

from collections.abc import Iterable
from typing import Any

from tinytorch.core.device import device_of
from tinytorch.core.dtype import float32
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import full_like
from tinytorch.optim.flat import FlatOptimizer
from tinytorch.optim.optimizer import check_at_least, check_switches


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
        *,
        maximize: bool = False,
        **switches: Any,
    ):
        check_switches(switches)
        check_at_least(0.0, **{"learning rate": lr})
        check_at_least(0.0, epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "alpha": alpha,
                "eps": eps,
                "centered": centered,
                "weight_decay": weight_decay,
                "maximize": maximize,
            },
        )

    def kept(self, group: dict[str, Any]) -> list[str]:
        return (
            ["square_avg"]
            + ["momentum_buffer"] * (group["momentum"] > 0)
            + ["grad_avg"] * group["centered"]
        )

    def move(
        self, p: Any, g: Any, kept: list[Any], free: list[Any], group: dict[str, Any], step: int
    ) -> None:
        xp, (s, t), alpha = device_of(p).xp, free, group["alpha"]
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        square = kept[0]
        square *= alpha
        xp.multiply(g, 1 - alpha, out=t)
        t *= g
        square += t
        if group["centered"]:
            mean = kept[-1]
            mean *= alpha
            xp.multiply(g, 1 - alpha, out=t)
            mean += t
            xp.multiply(mean, mean, out=t)
            xp.subtract(square, t, out=t)
            xp.sqrt(t, out=t)
        else:
            xp.sqrt(square, out=t)
        t += group["eps"]
        xp.divide(g, t, out=s)
        if group["momentum"]:
            buffer = kept[1]
            buffer *= group["momentum"]
            buffer += s
            s[...] = buffer
        s *= group["lr"]
        p -= s


class Adagrad(FlatOptimizer):
    """p = p - lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps), s the sum of all g^2.

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
        *,
        maximize: bool = False,
        **switches: Any,
    ):
        check_switches(switches)
        check_at_least(0.0, **{"learning rate": lr})
        check_at_least(0.0, lr_decay=lr_decay, weight_decay=weight_decay, epsilon=eps)
        check_at_least(0.0, initial_accumulator_value=initial_accumulator_value)
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "maximize": maximize,
            },
        )
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = {
                    "step": tensor(0.0, dtype=float32),
                    "sum": full_like(param, initial_accumulator_value),
                }

    def kept(self, group: dict[str, Any]) -> list[str]:
        return ["sum"]

    def move(
        self, p: Any, g: Any, kept: list[Any], free: list[Any], group: dict[str, Any], step: int
    ) -> None:
        xp, (s, t), (total,) = device_of(p).xp, free, kept
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        xp.multiply(g, g, out=t)
        total += t
        xp.sqrt(total, out=t)
        t += group["eps"]
        xp.multiply(g, group["lr"] / (1 + (step - 1) * group["lr_decay"]), out=s)
        s /= t
        p -= s
