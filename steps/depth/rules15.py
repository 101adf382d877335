"""Step rules15: Catalogue: the options of Adam, AdamW, RMSprop, Adagrad and Adadelta

The remaining options of PyTorch's signatures, so that programs can be run unchanged. Skim them:
most are names that are accepted. Each changes a formula that you know by a line, or nothing.

    momentum        RMSprop   b = momentum * b + d, the step goes along b, as in step optimizer10
    lr_decay        Adagrad   the rate is lr / (1 + (step - 1) * lr_decay)
    initial_accumulator_value
                    Adagrad   where s begins. A large one makes the first steps smaller
    foreach, fused, capturable
                    all       choose among PyTorch's implementations. There is one here
    amsgrad, centered, differentiable
                    refused where they are True: they change the result (step optimizer13)

Adagrad's state is made when a group is added, not at the first step, as in PyTorch: s has to begin
with a number that is known only here. A state_dict taken before the first step already contains it.

New: options of Adam, AdamW, RMSprop, Adagrad and Adadelta; Adagrad.add_param_group.
Try: amsgrad=True, and initial_accumulator_value=100.0 in the demo.
"""

import importlib
import math
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.dtype import float32
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import full_like
from tinytorch.optim.flat import FlatOptimizer
from tinytorch.optim.optimizer import checked

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    import itertools

    def moves(make, gradients):
        """How far each step moves one parameter that gets these gradients."""
        p = tensor([0.0], requires_grad=True)
        optimizer, places = make([p]), [0.0]
        for gradient in gradients:
            p.grad = tensor([gradient])
            optimizer.step()
            places.append(p.item())
        return [round(a - b, 4) + 0.0 for a, b in itertools.pairwise(places)]

    ones = [5.0] * 4
    print(
        moves(lambda p: RMSprop(p, lr=0.1, momentum=0.5), ones)
    )  # -> [1.0, 1.2089, 1.1847, 1.0961]
    print(moves(lambda p: Adagrad(p, lr=0.1), ones))  # -> [0.1, 0.0707, 0.0577, 0.05]
    print(
        moves(lambda p: Adagrad(p, lr=0.1, lr_decay=1.0), ones)
    )  # -> [0.1, 0.0354, 0.0192, 0.0125]
    print(moves(lambda p: Adagrad(p, lr=0.1, initial_accumulator_value=75.0), ones))
    # -> [0.05, 0.0447, 0.0408, 0.0378]
    p = tensor([0.0], requires_grad=True)
    print(list(Adagrad([p]).state[p]), list(RMSprop([p]).state[p]))  # -> ['step', 'sum'] []

    for kind in (Adam, AdamW, RMSprop, Adadelta):
        print(kind.__name__, moves(lambda p, kind=kind: kind(p, lr=1.0, foreach=True), [5.0]))
    # -> Adam [1.0]
    # -> AdamW [1.0]
    # -> RMSprop [10.0]
    # -> Adadelta [0.0032]
    for kind, option in ((Adam, "amsgrad"), (AdamW, "amsgrad"), (RMSprop, "centered")):
        try:
            kind([p], **{option: True})
        except RuntimeError as error:
            print(kind.__name__, error)
    # -> Adam amsgrad=True is not supported
    # -> AdamW amsgrad=True is not supported
    # -> RMSprop centered=True is not supported
    for betas, rho in (((0.9, 1.0), 0.9), ((0.9, 0.99), -1.0)):
        try:
            Adam([p], betas=betas)
            Adadelta([p], rho=rho)
        except ValueError as error:
            print(error)
    # -> Invalid beta parameter at index 1: 1.0
    # -> Invalid rho value: -1.0
