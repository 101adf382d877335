"""Step rules01: Adagrad: a rate for each element

SGD has one rate for all weights. But a weight behind a rare word gets a gradient in one batch out
of fifty, and one behind a frequent word a large one in every batch. With a rate that suits the
second, the first learns too little. In the demo two weights should both become 1. The gradient of
the frequent one is ten times as large, and from a rate of 0.1 on SGD diverges. With 0.09 the rare
one arrives at 0.55.

So divide each element's step by the size of its own gradients so far. For the size, take the root
of the sum of their squares:

    s = s + g^2                         p = p - lr * g / (sqrt(s) + eps)

Each element now moves by lr at its first step, whether its gradient is 100 or 0.01; the direction
is no longer that of the gradient. eps avoids 0 / 0.

The trap: s only grows. After n equal gradients it is n g^2, so the steps shrink like 1 / sqrt(n),
forever.

(In PyTorch's state, s is called sum.)

New: Adagrad. Moved: optimizer.py, convert_parameters.py.
Try: lr=0.1 for Adagrad in the demo's race. Do the weights arrive?
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


if __name__ == "__main__":
    import itertools

    from tinytorch.core.tensor import tensor

    def moves(make, gradients):
        """How far each step moves one parameter that gets these gradients."""
        p = tensor([0.0], requires_grad=True)
        optimizer, places = make([p]), [0.0]
        for gradient in gradients:
            p.grad = tensor([gradient])
            optimizer.step()
            places.append(p.item())
        return [round(a - b, 4) + 0.0 for a, b in itertools.pairwise(places)]

    # Gradients of 100 and of 0.01: SGD's steps differ, Adagrad's first steps do not.
    print([moves(lambda p: SGD(p, lr=0.1), [g]) for g in (100.0, 0.01)])  # -> [[10.0], [0.001]]
    print([moves(lambda p: Adagrad(p, lr=0.1), [g]) for g in (100.0, 0.01)])  # -> [[0.1], [0.1]]

    # A frequent word, ten times in each batch, and a rare one, in every 50th. Both weights should
    # become 1.
    def learned(make):
        w = tensor([0.0, 0.0], requires_grad=True)
        optimizer = make([w])
        for number in range(200):
            x = tensor([10.0, 1.0 if number % 50 == 0 else 0.0])
            optimizer.zero_grad()
            ((w - 1).square() * x).sum().backward()
            optimizer.step()
        return [round(value, 2) for value in w.tolist()]

    print("SGD    ", learned(lambda p: SGD(p, lr=0.09)))  # -> SGD     [1.0, 0.55]
    print("SGD, with 0.11:", learned(lambda p: SGD(p, lr=0.11)))  # -> SGD, with 0.11: [-685...
    print("Adagrad", learned(lambda p: Adagrad(p, lr=0.5)))  # -> Adagrad [1.0, 0.91]

    # The same gradient again and again: the steps shrink like 1 / sqrt(n).
    print(moves(lambda p: Adagrad(p, lr=0.1), [5.0] * 4))  # -> [0.1, 0.0707, 0.0577, 0.05]
    late = moves(lambda p: Adagrad(p, lr=0.1), [5.0] * 1000)[-1]
    print("the 1000th step:", late)  # -> the 1000th step: 0.0032
