"""Step rules13: Adagrad and RMSprop on flat chunks

Adagrad and RMSprop still have the loops over tensors of steps rules01 and rules02. They lack what
the others have: weight decay, maximize, a rate that is a tensor, and the speed of the flat memory
(steps rules04 to rules08).

To move them there, three lines of each change:

    state_names     the names of what was in the state: "sum", "square_avg"
    update_chunk    the formula, with the state changed in place
    the signature   weight_decay and maximize, which FlatOptimizer.update reads

s = s + g * g becomes s += g * g, and the first step needs no special case, for the block of the
state begins with zeros. Both have "step" among their names. Nothing here needs it, but the
state_dict of PyTorch's contains it; a state that is loaded there must have it.

Unlike Adam's, these formulas do not use scratch memory: they are used less, and are easier to read
like this. A chunk fits into the cache, so the new arrays cost little.

The trap: (1 - alpha) * g * g takes two passes over the array, g * g * (1 - alpha) too, but in
float16 they differ: g * g overflows from 256 on, while with the small factor first it does not.

Changed: Adagrad, RMSprop; their update became update_chunk. Moved: flat.py.
Try: s = s + g * g in Adagrad. Which promises break, and why not the first step's?
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


if __name__ == "__main__":
    import itertools

    import numpy as np

    from tinytorch.core.dtype import float16
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn

    def moves(make, gradients):
        """How far each step moves one parameter that gets these gradients."""
        p = tensor([0.0], requires_grad=True)
        optimizer, places = make([p]), [0.0]
        for gradient in gradients:
            p.grad = tensor([gradient])
            optimizer.step()
            places.append(p.item())
        return [round(a - b, 4) + 0.0 for a, b in itertools.pairwise(places)]

    print(moves(lambda p: Adagrad(p, lr=0.1), [5.0] * 4))  # -> [0.1, 0.0707, 0.0577, 0.05]
    print(moves(lambda p: RMSprop(p, lr=0.1), [5.0] * 4))  # -> [1.0, 0.7089, 0.5802, 0.5038]
    print(moves(lambda p: Adagrad(p, lr=tensor(0.1), maximize=True), [5.0]))  # -> [-0.1]

    # Small and large parameters, with decay, against the formula on tensors.
    def difference(kind, formula, **options):
        manual_seed(0)
        params = [randn(3, 4).requires_grad_(), randn(200, 200).requires_grad_()]
        copies, states = [param.detach().clone() for param in params], [0.0, 0.0]
        optimizer = kind(params, lr=0.1, weight_decay=0.01, **options)
        for _ in range(3):
            for i, param in enumerate(params):
                param.grad = randn(*param.shape)
                g = param.grad + 0.01 * copies[i]
                states[i] = formula(states[i], g)
                copies[i] = copies[i] - 0.1 * g / (states[i] ** 0.5 + 1e-8)
            optimizer.step()
        pairs = zip(params, copies, strict=True)
        return max((param - other).abs().max().item() for param, other in pairs)

    print(difference(Adagrad, lambda s, g: s + g * g, eps=1e-8) < 1e-5)  # -> True
    print(difference(RMSprop, lambda s, g: 0.5 * s + 0.5 * g * g, alpha=0.5) < 1e-5)  # -> True

    p = tensor([0.0], requires_grad=True)
    p.grad = tensor([2.0])
    for kind in (Adagrad, RMSprop):
        optimizer = kind([p])
        optimizer.step()
        print({name: round(value.item(), 2) for name, value in optimizer.state[p].items()})
    # -> {'step': 1.0, 'sum': 4.0}
    # -> {'step': 1.0, 'square_avg': 0.04}

    # The trap: which factor comes first, in half precision.
    g = tensor([300.0], dtype=float16).array
    with np.errstate(over="ignore"):
        print(((1 - 0.99) * g * g).item(), (g * g * (1 - 0.99)).item())  # -> 900.0 inf
