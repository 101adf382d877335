"""Stochastic gradient descent, with momentum."""

from collections.abc import Iterable
from typing import Any

from tinytorch.optim.flat import FlatOptimizer
from tinytorch.optim.optimizer import check_at_least, check_switches


class SGD(FlatOptimizer):
    """p = p - lr * d, where d is the gradient, or what momentum makes of it.

        g = g + weight_decay * p
        v = momentum * v + (1 - dampening) * g         (v = g at the first step)
        d = v, or g + momentum * v with nesterov

    Source: Sutskever et al., On the importance of initialization and momentum, 2013. ValueError for
    a negative option, and for nesterov without momentum or with dampening.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **switches: Any,
    ):
        check_switches(switches)
        check_at_least(0.0, **{"learning rate": lr})
        check_at_least(0.0, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
            },
        )

    def kept(self, group: dict[str, Any]) -> list[str]:
        return ["momentum_buffer"] if group["momentum"] else []

    def move(
        self, p: Any, g: Any, kept: list[Any], free: list[Any], group: dict[str, Any], step: int
    ) -> None:
        t, momentum = free[0], group["momentum"]
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        if momentum:
            (v,) = kept
            if step == 1:
                v[...] = g
            else:
                v *= momentum
                v += g if not group["dampening"] else (1 - group["dampening"]) * g
            g = g + momentum * v if group["nesterov"] else v
        # t = lr * g without a new array: the first operation writes where it is told to.
        t[...] = g
        t *= group["lr"]
        p -= t
