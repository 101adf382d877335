"""Step rules14: Adadelta: step sizes from past steps

All rules so far need a rate, and a wrong one spoils the run. Look at the units. If the loss is in
euros and p in metres, the gradient is in euros per metre; SGD adds that to metres, and its rate has
to make up for it. g / sqrt(s) has no unit at all, so Adam's rate has to be in metres.

Adadelta takes the metres from its own past steps. Beside s, the running mean of the squares of the
gradients, it keeps a, the same mean of the squares of its steps:

    s = rho * s + (1 - rho) * g^2
    d = sqrt(a + eps) / sqrt(s + eps) * g            p = p - lr * d
    a = rho * a + (1 - rho) * d^2

A step is as long as the steps before it were, on average, times g over its usual size. If the
parameters are given in centimetres, the gradients are a hundredth, and the steps become a hundred
times as large in the end, as they should. So lr is 1 by default.

The trap: a begins at zero, and then no step would ever be made. eps lets the first steps be small
but not zero, about sqrt(eps) = 0.001 long; they grow from there. So here eps is not a guard against
0 / 0, but the unit of the start. Adadelta begins slowly. (The names in PyTorch's state are
square_avg and acc_delta. PyTorch's example for MNIST uses it.)

New: Adadelta.
Try: eps=1e-12 in the demo's race.
"""

import importlib
import math
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.optim.flat import FlatOptimizer
from tinytorch.optim.optimizer import checked

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Adagrad(FlatOptimizer):
    """p = p - lr * g / (sqrt(s) + eps), s the sum of all g^2.

    Source: Duchi, Hazan and Singer, Adaptive Subgradient Methods, 2011.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-2,
        weight_decay: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ):
        super().__init__(params, checked(locals()))

    def state_names(self, group: dict[str, Any]) -> list[str]:
        return ["step", "sum"]

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        s, lr = state["sum"], group["lr"]
        s += g * g
        p -= lr * g / (s**0.5 + group["eps"])


class RMSprop(FlatOptimizer):
    """p = p - lr * g / (sqrt(s) + eps), s a running mean of g^2.

        s = alpha * s + (1 - alpha) * g^2

    Source: Hinton, Neural Networks for Machine Learning, lecture 6, 2012.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        maximize: bool = False,
    ):
        super().__init__(params, checked(locals()))

    def state_names(self, group: dict[str, Any]) -> list[str]:
        return ["step", "square_avg"]

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        s, alpha = state["square_avg"], group["alpha"]
        s *= alpha
        s += (1 - alpha) * g * g
        d = g / (s**0.5 + group["eps"])
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
        *,
        maximize: bool = False,
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
        *,
        maximize: bool = False,
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
        *,
        maximize: bool = False,
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

    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.activation import Tanh
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import mse_loss
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed
    from tinytorch.optim.sgd import SGD

    def moves(make, gradients):
        """How far each step moves one parameter that gets these gradients."""
        p = tensor([0.0], requires_grad=True)
        optimizer, places = make([p]), [0.0]
        for gradient in gradients:
            p.grad = tensor([gradient])
            optimizer.step()
            places.append(p.item())
        return [round(a - b, 4) + 0.0 for a, b in itertools.pairwise(places)]

    print("Adadelta", moves(lambda p: Adadelta(p, lr=100.0), [5.0] * 4))
    # -> Adadelta [0.3162, 0.3244, 0.3301, 0.3345]

    def by_hand(gradients, rho=0.9, eps=1e-6):
        s = a = 0.0
        for g in gradients:
            s = rho * s + (1 - rho) * g * g
            d = math.sqrt(a + eps) / math.sqrt(s + eps) * g
            a = rho * a + (1 - rho) * d * d
            yield round(100 * d, 4)

    gradients = [1.0, -3.0, 0.5, 2.0]
    print(list(by_hand(gradients)) == moves(lambda p: Adadelta(p, lr=100.0), gradients))  # -> True
    try:
        Adadelta([tensor([0.0], requires_grad=True)], rho=1.5)
    except ValueError as error:
        print(error)  # -> Invalid rho value: 1.5

    # One network, 300 steps, and each rule with its default rate.
    x = linspace(-3, 3, 100).reshape(-1, 1)
    y = (x * 2).sin() * (1 + x / 3)

    def train(make):
        manual_seed(0)
        model = Sequential(Linear(1, 32), Tanh(), Linear(32, 32), Tanh(), Linear(32, 1))
        optimizer = make(model.parameters())
        for _ in range(300):
            optimizer.zero_grad()
            loss = mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.item()

    for make in (Adagrad, RMSprop, Adam, Adadelta):
        print(f"{make.__name__:9} {train(make):.4f}")  # -> ...
    print("better than SGD as it is:", train(Adadelta) < train(SGD))
    # -> better than SGD as it is: True
