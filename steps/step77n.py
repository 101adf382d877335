"""Step 77n: Adagrad, RMSprop, Adam: a rate for each element

SGD has one rate for all parameters. But a weight behind a rare feature gets a gradient in one batch
out of a hundred, and one behind a loud feature gets huge gradients all the time. The optimizers of
this step divide the step of each element by the size of its own past gradients, so that all of them
move at a rate of about lr:

    Adagrad   s = s + g^2                     p -= lr g / (sqrt(s) + eps)     slows down forever
    RMSprop   s = alpha s + (1 - alpha) g^2   p -= lr g / (sqrt(s) + eps)     forgets what is old
    Adadelta  s as RMSprop's; a, the same mean of the squares of its own steps d:
              d = sqrt(a + eps) / sqrt(s + eps) g             p -= lr d       finds its own rate
    Adam      m = beta1 m + (1 - beta1) g
              v = beta2 v + (1 - beta2) g^2   p -= lr m / (sqrt(v) + eps)     with momentum

Adam's m and v start at zero, so at first they are too small: after one step m is only 0.1 g, and v
only 0.001 g^2. Dividing them by 1 - beta^step makes up for that. So the first step of Adam has the
length lr, whatever the gradient: multiply the loss by 1000, and Adam takes the same path.

The trap is weight_decay. In SGD it may be added to the gradient. In Adam, what is added there is
divided by sqrt(v) too, so weights with large gradients are pulled less than others. AdamW pulls
directly: p = p - lr * weight_decay * p. That is what people mean by weight decay today; use AdamW.

Each update_chunk is the formula of its paper, on the chunks of step 77g. Adam's is the one that is
measured: it moves millions of weights in each step of a training. So it makes as few new arrays as
possible, and its corrections for the start change lr and eps, which are numbers, instead of m and
v, which are arrays.
(`maximize` goes uphill. The names in state, exp_avg and exp_avg_sq, are PyTorch's: a state_dict
works in both.)

Changed: nothing. New: Adam, AdamW, RMSprop, Adagrad, Adadelta.
Moved: flat.py and sgd.py.
Try: leave `* root` out of the line with lr, and compare the first steps with the formula.
"""

import importlib
import math
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.dtype import float32
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import full_like
from tinytorch.optim.flat import FlatOptimizer
from tinytorch.optim.optimizer import checked

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
    print("Adadelta", moves(lambda p: Adadelta(p, lr=100.0), [5.0] * 4))
    # -> Adadelta [0.3162, 0.3244, 0.3301, 0.3345]
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

    # One network, one budget of 300 steps, six optimizers.
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
        "Adadelta": train(lambda p: Adadelta(p)),
        "Adam": train(lambda p: Adam(p, lr=0.01)),
    }
    for name, loss in losses.items():
        print(f"{name:14} {loss:.4f}")  # -> ...
    print("Adam is ten times better than SGD:", losses["Adam"] * 10 < losses["SGD"])
    # -> Adam is ten times better than SGD: True
