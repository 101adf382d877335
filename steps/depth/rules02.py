"""Step rules02: RMSprop in the package's dress

Step 45b built RMSprop: a running mean of the squares, so that a long training does not come to a
stop as with Adagrad (step rules01).

    s = alpha * s + (1 - alpha) * g^2          p = p - lr * g / (sqrt(s) + eps)

The trap: s begins at zero. After one step it is (1 - alpha) g^2, a hundredth of the truth, so the
first step is ten times lr. Step rules03 mends this.

(In PyTorch's state, s is called square_avg.)

New: RMSprop.
Try: alpha=0.5 in the demo's last lines. How long is the first step?
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

    # The same gradient again and again: Adagrad's steps shrink, those of RMSprop approach lr.
    print(moves(lambda p: Adagrad(p, lr=0.1), [5.0] * 4))  # -> [0.1, 0.0707, 0.0577, 0.05]
    print(moves(lambda p: RMSprop(p, lr=0.1), [5.0] * 4))  # -> [1.0, 0.7089, 0.5802, 0.5038]
    late = [
        moves(lambda p, kind=kind: kind(p, lr=0.1), [5.0] * 1000)[-1] for kind in (Adagrad, RMSprop)
    ]
    print("the 1000th step:", late)  # -> the 1000th step: [0.0032, 0.1]

    # The size of the gradients does not matter.
    print([moves(lambda p: RMSprop(p, lr=0.1), [g] * 2) for g in (100.0, 0.01)])
    # -> [[1.0, 0.7089], [1.0, 0.7089]]
