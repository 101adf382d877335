"""Step rules03: Adam in the package's dress

Step 45c built Adam: running means m of g and v of g^2, each divided by (1 - beta^n) because both
start at zero. Here the state has PyTorch's names, exp_avg and exp_avg_sq, and "step", which must be
saved too (step optimizer15).

The trap: lr is now a length, about the distance that each weight moves in a step. SGD's rate of 0.1
is too large for most networks here; 0.001 is a good start.

New: Adam.
Try: leave both divisions out of `unbiased` in Adam, and compare with the formula by hand.
"""

import importlib
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.optim.optimizer import Optimizer, checked

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class SGD(Optimizer):
    """p = p - lr * d, where d is the gradient, or what momentum makes of it.

        g = g + weight_decay * p
        v = momentum * v + g         (v = g at the first step)
        d = v, or g + momentum * v with nesterov

    Source: Sutskever et al., On the importance of initialization and momentum, 2013.
    Raises:
        ValueError: for a negative option, and for nesterov without momentum.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        momentum: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        differentiable: bool = False,
    ):
        options = checked(locals())
        if nesterov and momentum <= 0:
            raise ValueError("Nesterov momentum requires a momentum")
        super().__init__(params, options)

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            g = param.grad
            if group["weight_decay"]:
                g = g + group["weight_decay"] * param
            if group["momentum"]:
                state = self.state[param]
                v = state.get("momentum_buffer", 0 * g)
                v = state["momentum_buffer"] = group["momentum"] * v + g
                g = g + group["momentum"] * v if group["nesterov"] else v
            param -= group["lr"] * g


class Adagrad(Optimizer):
    """p = p - lr * g / (sqrt(s) + eps), s the sum of all g^2.

    Source: Duchi, Hazan and Singer, Adaptive Subgradient Methods, 2011.
    """

    def __init__(self, params: Iterable, lr: float = 1e-2, eps: float = 1e-10):
        super().__init__(params, checked(locals()))

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            state, g = self.state[param], param.grad
            s = state["sum"] = state.get("sum", 0 * g) + g * g
            param -= group["lr"] * g / (s**0.5 + group["eps"])


class RMSprop(Optimizer):
    """p = p - lr * g / (sqrt(s) + eps), s a running mean of g^2.

        s = alpha * s + (1 - alpha) * g^2

    Source: Hinton, Neural Networks for Machine Learning, lecture 6, 2012.
    """

    def __init__(self, params: Iterable, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8):
        super().__init__(params, checked(locals()))

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            state, g, alpha = self.state[param], param.grad, group["alpha"]
            s = alpha * state.get("square_avg", 0 * g) + (1 - alpha) * g * g
            state["square_avg"] = s
            param -= group["lr"] * g / (s**0.5 + group["eps"])


class Adam(Optimizer):
    """m and v are running means of the gradient and of its square; both start at zero, and are
    divided by 1 - beta^step to make up for it.

        m = beta1 * m + (1 - beta1) * g                  v = beta2 * v + (1 - beta2) * g^2
        p = p - lr * m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)

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
    ):
        options = checked(locals())
        for number, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {number}: {beta}")
        super().__init__(params, options)

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        lr, eps, (beta1, beta2) = group["lr"], group["eps"], group["betas"]
        for param in params:
            state, g = self.state[param], param.grad
            step = state["step"] = state.get("step", 0) + 1
            m = state["exp_avg"] = beta1 * state.get("exp_avg", 0 * g) + (1 - beta1) * g
            v = beta2 * state.get("exp_avg_sq", 0 * g) + (1 - beta2) * g * g
            state["exp_avg_sq"] = v
            unbiased = m / (1 - beta1**step), v / (1 - beta2**step)
            param -= lr * unbiased[0] / (unbiased[1] ** 0.5 + eps)


if __name__ == "__main__":
    import itertools
    import math

    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.activation import Tanh
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import mse_loss
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed

    def moves(make, gradients):
        """How far each step moves one parameter that gets these gradients."""
        p = tensor([0.0], requires_grad=True)
        optimizer, places = make([p]), [0.0]
        for gradient in gradients:
            p.grad = tensor([gradient])
            optimizer.step()
            places.append(p.item())
        return [round(a - b, 4) + 0.0 for a, b in itertools.pairwise(places)]

    # The formula, step by step, in plain Python.
    def by_hand(gradients, lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8):
        m = v = 0.0
        for step, g in enumerate(gradients, 1):
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
            unbiased = m / (1 - beta1**step), v / (1 - beta2**step)
            yield round(lr * unbiased[0] / (math.sqrt(unbiased[1]) + eps), 4)

    gradients = [1.0, -3.0, 0.5, 2.0]
    print("by hand", list(by_hand(gradients)))  # -> by hand [0.1, -0.0494, -0.0277, 0.0115]
    print("Adam   ", moves(lambda p: Adam(p, lr=0.1), gradients))
    # -> Adam    [0.1, -0.0494, -0.0277, 0.0115]
    louder = [1000 * g for g in gradients]
    print("louder ", moves(lambda p: Adam(p, lr=0.1), louder))
    # -> louder  [0.1, -0.0494, -0.0277, 0.0115]

    for betas in ((1.0, 0.999), (0.9, -0.1)):
        try:
            Adam([tensor([0.0], requires_grad=True)], betas=betas)
        except ValueError as error:
            print(error)
    # -> Invalid beta parameter at index 0: 1.0
    # -> Invalid beta parameter at index 1: -0.1

    # One network, one budget of 300 steps, and for each rule the best of the rates that were tried.
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

    losses = {
        "SGD": train(lambda p: SGD(p, lr=0.2)),
        "SGD, momentum": train(lambda p: SGD(p, lr=0.2, momentum=0.9)),
        "Adagrad": train(lambda p: Adagrad(p, lr=0.2)),
        "RMSprop": train(lambda p: RMSprop(p, lr=0.01)),
        "Adam": train(lambda p: Adam(p, lr=0.03)),
    }
    for name, loss in losses.items():
        print(f"{name:14} {loss:.4f}")  # -> ...
    print("Adam is ten times better than plain SGD:", losses["Adam"] * 10 < losses["SGD"])
    # -> Adam is ten times better than plain SGD: True
