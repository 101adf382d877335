"""Stochastic gradient descent, with momentum."""

from collections.abc import Iterable
from typing import Any

from tinytorch.optim.flat import FlatOptimizer, FlatParameters
from tinytorch.optim.optimizer import checked


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
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        options = checked(locals())
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, options)

    def kept(self, group: dict[str, Any]) -> list[str]:
        return ["momentum_buffer"] if group["momentum"] else []

    def move(self, flat: FlatParameters, group: dict[str, Any]) -> None:
        momentum, new = group["momentum"], 1 - group["dampening"]
        rate, keep = flat.numbers(float(group["lr"]), momentum)
        multiply = flat.xp.multiply
        for p, g, kept, t in flat.pieces(group):
            if momentum:
                (v,) = kept
                if flat.step == 1:
                    v[...] = g
                else:
                    v *= keep
                    v += g if new == 1 else multiply(g, new, out=t)
                g = flat.xp.add(g, multiply(v, keep, out=t), out=t) if group["nesterov"] else v
            p -= multiply(g, rate, out=t)
