"""Step 86: A rate of its own for each parameter

SGD has one rate for all. But a weight behind a rare feature gets a gradient in one batch of a
hundred, one behind a loud feature gets huge ones all the time. The methods of this step divide the
step of each element by the size of its own gradients so far, so that all move at about rate lr:

    Adagrad   s = s + g^2                     p -= lr g / (sqrt(s) + eps)     slows down forever
    RMSprop   s = alpha s + (1 - alpha) g^2   p -= lr g / (sqrt(s) + eps)     forgets what is old
    Adam      m = beta1 m + (1 - beta1) g
              v = beta2 v + (1 - beta2) g^2   p -= lr m / (sqrt(v) + eps)     with momentum

Adam's m and v start at zero, so at first they are too small: after one step m is only 0.1 g, v only
0.001 g^2. Divided by 1 - beta^step both are right again. So the first step of Adam is lr long,
whatever the gradient is: multiply the loss by 1000, and Adam walks the same way.

The trap is weight_decay. In SGD it may be added to the gradient. In Adam that addition is divided
by sqrt(v) too, so weights with large gradients are pulled less than others. AdamW pulls directly:
p = p - lr * weight_decay * p. This is what people mean by weight decay today; use AdamW.

amsgrad divides by the largest v that there ever was. RMSprop's `centered` takes the variance in
place of the mean square. `maximize` goes uphill.

Adam is written for the pieces of step 85: t is the one array between, each line is one pass over
128 KB, and p, m and v are changed where they are. Two tricks save passes: the corrections for the
start are plain numbers, folded into eps and lr; and (1 - beta2) g^2 is ((1 - beta2) g) g.
(The names in state, exp_avg and exp_avg_sq, are PyTorch's: a state_dict goes both ways.)

Changed: nothing. New: Adam, AdamW, RMSprop, Adagrad. Moved: optimizer.py, flat.py and sgd.py.
Try: leave `* root` out of the line with eps, and compare the first steps with the formula.
"""

import importlib
import itertools
import math
from collections.abc import Iterable
from typing import Any

from tinytorch.core.device import device_of
from tinytorch.core.dtype import float32
from tinytorch.core.tensor import tensor
from tinytorch.nn.activation import Tanh
from tinytorch.nn.container import Sequential
from tinytorch.nn.linear import Linear
from tinytorch.nn.loss import mse_loss
from tinytorch.ops.creation import full_like, linspace
from tinytorch.ops.random import manual_seed
from tinytorch.optim.flat import FlatOptimizer
from tinytorch.optim.optimizer import check_at_least, check_switches
from tinytorch.optim.sgd import SGD

# Importing the modules of the operations brings their methods to Tensor.
operations = "arithmetic comparison elementwise indexing reduction sampling shape sorting"
for name in operations.split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":

    def moves(make, gradients):
        """How far each step moves one parameter that gets these gradients."""
        p = tensor([0.0], requires_grad=True)
        optimizer, places = make([p]), [0.0]
        for gradient in gradients:
            p.grad = tensor([gradient])
            optimizer.step()
            places.append(p.item())
        return [round(a - b, 4) + 0.0 for a, b in itertools.pairwise(places)]

    # Gradients of 100 and of 0.01: the same steps.
    print("SGD    ", moves(lambda p: SGD(p, lr=0.1), [100.0, 0.01]))  # -> SGD     [10.0, 0.001]
    print("Adam   ", moves(lambda p: Adam(p, lr=0.1), [100.0] * 3))  # -> Adam    [0.1, 0.1, 0.1]
    print("Adam   ", moves(lambda p: Adam(p, lr=0.1), [0.01] * 3))  # -> Adam    [0.1, 0.1, 0.1]
    print("Adagrad", moves(lambda p: Adagrad(p, lr=0.1), [5.0] * 4))
    # -> Adagrad [0.1, 0.0707, 0.0577, 0.05]
    print("RMSprop", moves(lambda p: RMSprop(p, lr=0.1), [5.0] * 4))
    # -> RMSprop [1.0, 0.7089, 0.5802, 0.5038]
    print("uphill ", moves(lambda p: Adam(p, lr=0.1, maximize=True), [5.0]))  # -> uphill  [-0.1]

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

    # Weight decay, with a large gradient: Adam hardly pulls, AdamW does.
    for make in (Adam, AdamW):
        p = tensor([10.0], requires_grad=True)
        optimizer = make([p], lr=0.1, weight_decay=0.1)
        for number in range(100):
            p.grad = tensor([1000.0 * (-1) ** number])  # there and back again
            optimizer.step()
        print(f"{make.__name__:5} pulls 10 to {p.item():.1f}")
    # -> Adam  pulls 10 to 9.8
    # -> AdamW pulls 10 to 3.6

    # One network, one budget of 300 steps, five optimizers.
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
        "SGD": train(lambda p: SGD(p, lr=0.05)),
        "SGD, momentum": train(lambda p: SGD(p, lr=0.05, momentum=0.9)),
        "Adagrad": train(lambda p: Adagrad(p, lr=0.05)),
        "RMSprop": train(lambda p: RMSprop(p, lr=0.005)),
        "Adam": train(lambda p: Adam(p, lr=0.01)),
    }
    for name, loss in losses.items():
        print(f"{name:14} {loss:.4f}")  # -> ...
    print("Adam is ten times better than SGD:", losses["Adam"] * 10 < losses["SGD"])
    # -> Adam is ten times better than SGD: True
