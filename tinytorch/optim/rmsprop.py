"""RMSprop, Adagrad and Adadelta: each element's step is divided by the size of its gradients."""

from collections.abc import Iterable
from typing import Any

from tinytorch.core.dtype import float32
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import full_like
from tinytorch.optim.flat import FlatOptimizer
from tinytorch.optim.optimizer import checked


class RMSprop(FlatOptimizer):
    """p = p - lr * g / (sqrt(s) + eps), s a running mean of g^2.

        s = alpha * s + (1 - alpha) * g^2
        with momentum: b = momentum * b + g / (sqrt(s) + eps),   p = p - lr * b

    Source: Hinton, Neural Networks for Machine Learning, lecture 6, 2012.
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

    def state_names(self, group: dict[str, Any]) -> list[str]:
        return ["step", "square_avg"] + ["momentum_buffer"] * (group["momentum"] > 0)

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        s, alpha = state["square_avg"], group["alpha"]
        s *= alpha
        s += (1 - alpha) * g * g
        d = g / (s**0.5 + group["eps"])
        if group["momentum"] > 0:
            b = state["momentum_buffer"]
            b *= group["momentum"]
            b += d
            d = b
        p -= group["lr"] * d


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

    def state_names(self, group: dict[str, Any]) -> list[str]:
        return ["step", "sum"]

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        s, lr = state["sum"], group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        s += g * g
        p -= lr * g / (s**0.5 + group["eps"])


class Adadelta(FlatOptimizer):
    """p = p - lr * d, with d as large as the steps before it, on average: no rate has to be chosen.

        s = rho * s + (1 - rho) * g^2
        d = sqrt(a + eps) / sqrt(s + eps) * g
        a = rho * a + (1 - rho) * d^2

    Source: Zeiler, ADADELTA: An Adaptive Learning Rate Method, 2012.
    Raises:
        ValueError: for a negative option, and for rho outside of [0, 1].
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ):
        options = checked(locals())
        if not 0 <= rho <= 1:
            raise ValueError(f"Invalid rho value: {rho}")
        super().__init__(params, options)

    def state_names(self, group: dict[str, Any]) -> list[str]:
        return ["step", "square_avg", "acc_delta"]

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        s, a, rho, eps = state["square_avg"], state["acc_delta"], group["rho"], group["eps"]
        s *= rho
        s += (1 - rho) * g * g
        d = (a + eps) ** 0.5 / (s + eps) ** 0.5 * g
        a *= rho
        a += (1 - rho) * d * d
        p -= group["lr"] * d
