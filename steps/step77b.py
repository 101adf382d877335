"""Step 77b: A rate of its own for each parameter

SGD has one rate for all parameters. But a weight behind a rare feature gets a gradient in one batch
out of a hundred, and one behind a loud feature gets huge gradients all the time. The optimizers of
this step divide the step of each element by the size of its own past gradients, so that all of them
move at a rate of about lr:

    Adagrad   s = s + g^2                     p -= lr g / (sqrt(s) + eps)     slows down forever
    RMSprop   s = alpha s + (1 - alpha) g^2   p -= lr g / (sqrt(s) + eps)     forgets what is old
    Adam      m = beta1 m + (1 - beta1) g
              v = beta2 v + (1 - beta2) g^2   p -= lr m / (sqrt(v) + eps)     with momentum

Adam's m and v start at zero, so at first they are too small: after one step m is only 0.1 g, and v
only 0.001 g^2. Dividing them by 1 - beta^step makes up for that. So the first step of Adam has the
length lr, whatever the gradient: multiply the loss by 1000, and Adam takes the same path.

The trap is weight_decay. In SGD it may be added to the gradient. In Adam, what is added there is
divided by sqrt(v) too, so weights with large gradients are pulled less than others. AdamW pulls
directly: p = p - lr * weight_decay * p. That is what people mean by weight decay today; use AdamW.

`amsgrad` divides by the largest v so far. RMSprop's `centered` divides by the standard deviation of
the gradients instead of their root mean square. `maximize` goes uphill.

Adam is written for the pieces of step 77a: t is the only temporary array, each line is one pass
over 256 KB, and p, m and v are changed in place. Scalars are cheap, passes are not: so the
corrections for the start go into eps and lr, and (1 - beta2) g^2 is the square of sqrt(1 - beta2)
g. (The names in state, exp_avg and exp_avg_sq, are PyTorch's: a state_dict works in both.)

Changed: nothing. New: Adam, AdamW, RMSprop, Adagrad. Moved: flat.py and sgd.py.
Try: leave `* root` out of the line with lr, and compare the first steps with the formula.
"""

import importlib
import math
from collections.abc import Iterable
from typing import Any

from tinytorch.core.dtype import float32
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.creation import full_like
from tinytorch.optim.flat import FlatOptimizer, FlatParameters
from tinytorch.optim.optimizer import checked

# Importing these modules, which import the others, gives Tensor its methods.
for name in "elementwise gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    import itertools

    from tinytorch.nn.activation import Tanh
    from tinytorch.nn.container import Sequential
    from tinytorch.nn.linear import Linear
    from tinytorch.nn.loss import mse_loss
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

    # Gradients of 100 and of 0.01: Adam takes the same steps.
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
