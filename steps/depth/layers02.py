"""Step layers02: Linear as one node: Addmm

The layer of step layers01 leaves three nodes in the graph: transpose, product, sum. In backward the
product's gradient is that of W^T, and has to be transposed for W. And each node costs time in
Python, which matters for small layers.

For y = x W^T + b the three derivatives can be written down directly. G is the gradient of y:

    dL/dX = G W          dL/dW = G^T X          dL/db = the sum of the rows of G

G^T X has the shape of W, without a transposition. So the layer becomes one Function, Addmm, which
the function `linear` calls. It computes only the gradients that are needed: input data require
none, so for the first layer the product G W is left out.

The bias is optional: `*need_bias` is empty if there is none.

The trap: Addmm requires an x of two dimensions. Until step layers03 an x with more dimensions uses
the three nodes. (PyTorch: F.linear, and addmm = add + matrix product.)

Changed: Linear.forward. New: Addmm, linear.
Try: return matmul_arrays(x.T, g) for the weight. Which line of the demo finds it?
"""

import importlib
import math
import timeit
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty
from tinytorch.ops.matmul import matmul_arrays
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Addmm(Function):
    """Y = X W^T + b;   dL/dX = G W,   dL/dW = G^T X,   dL/db = the sum of the rows of G.

    One node instead of three, and no gradient of W^T that would have to be turned round.
    """

    saves = 0, 1

    def forward(ctx, x: Any, weight: Any, bias: Any = None) -> Any:
        ctx.save_for_backward(x, weight)
        y = matmul_arrays(x, weight.T)
        if bias is not None:
            y += bias
        return y

    def backward(ctx, g: Any) -> Any:
        x, weight = ctx.saved
        need_x, need_weight, *need_bias = ctx.needs_input_grad
        return (
            matmul_arrays(g, weight) if need_x else None,
            matmul_arrays(g.T, x) if need_weight else None,
            g.sum(axis=0) if any(need_bias) else None,
        )


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: [..., n] with a weight [m, n] gives [..., m]."""
    if input.array.ndim != 2:
        product = input @ weight.T
        return product if bias is None else product + bias
    return Addmm.apply(input, weight) if bias is None else Addmm.apply(input, weight, bias)


class Linear(Module):
    """y = x W^T + b, with `weight` [out_features, in_features] and `bias` [out_features]."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features))
        self.bias = Parameter(empty(out_features))
        self.reset_parameters()

    @no_grad()
    def reset_parameters(self) -> None:
        """Draws weight and bias from [-b, b), b = 1 / sqrt(in_features), as PyTorch does."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        for param in (self.weight, self.bias):  # not what a subclass adds
            if param is not None:
                param.uniform_(-bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    x, layer = randn(64, 100), Linear(100, 50)

    def composed(x):
        return x @ layer.weight.T + layer.bias

    def gradients(function, x):
        layer.zero_grad()
        function(x).square().sum().backward()
        return layer.weight.grad, layer.bias.grad

    def compare(x):
        pairs = zip(gradients(layer, x), gradients(composed, x), strict=True)
        return all((a - b).abs().max().item() < 1e-3 * b.abs().max().item() for a, b in pairs)

    def nodes(y):
        found, todo = [], [y.grad_fn]
        while todo:
            node = todo.pop()
            found.append(type(node).__name__)
            todo += [n for n, _ in node.next_functions if n]
        return [name for name in found if name != "AccumulateGrad"]

    print(nodes(composed(x)), nodes(layer(x)))  # -> ['Add', 'MatMul', 'Transpose'] ['Addmm']
    print("same gradients:", compare(x))  # -> same gradients: True
    one, three = (
        min(timeit.repeat(lambda f=f: gradients(f, x), number=50)) for f in (layer, composed)
    )
    print(f"one node takes {one / three:.2f} of the time of three")  # -> ...
    print(nodes(linear(x, layer.weight)), nodes(layer(randn(2, 3, 100))))
    # -> ['Addmm'] ['Add', 'MatMul', 'Transpose']
