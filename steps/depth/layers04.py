"""Step layers04: Linear: small batches, and the order of a product

A program that answers one request at a time has a batch of a few rows. Such a product is slow: for
eight rows of 1,000 numbers, X W^T of step layers03 takes about twice as long as the transposed
product, which has the same numbers:

    X W^T  =  (W X^T)^T          [8, 1000] [1000, 1000]   or   [1000, 1000] [1000, 8]

BLAS, the library that multiplies matrices, is faster with few columns than with few rows. So Addmm
takes the second order where there are less than half as many rows as outputs. The demo measures
both.

The trap: a transposed array is a view with other strides. Without ascontiguousarray all later
operations would be slower. A measurement of the product alone does not show that.

Changed: Addmm.forward.
Try: measure the two orders for 8, 64, 512 and 4,096 rows of 1,000. Where do they meet?
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
        rows = x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
        if 2 * len(rows) < len(weight):  # BLAS likes few columns better than few rows
            y = ctx.xp.ascontiguousarray(matmul_arrays(weight, rows.T).T)
        else:
            y = matmul_arrays(rows, weight.T)
        if bias is not None:
            y += bias
        return y if x.ndim == 2 else y.reshape((*x.shape[:-1], len(weight)))

    def backward(ctx, g: Any) -> Any:
        x, weight = ctx.saved
        need_x, need_weight, *need_bias = ctx.needs_input_grad
        shape = x.shape
        if len(shape) != 2:
            n = math.prod(shape[:-1])
            x, g = x.reshape(n, shape[-1]), g.reshape(n, weight.shape[0])
        return (
            matmul_arrays(g, weight).reshape(shape) if need_x else None,
            matmul_arrays(g.T, x) if need_weight else None,
            g.sum(axis=0) if any(need_bias) else None,
        )


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: [..., n] with a weight [m, n] gives [..., m]."""
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

    # Eight rows, written either way.
    few, wide = randn(8, 1000).array, randn(1000, 1000).array
    row_by_row, turned = (
        min(timeit.repeat(f, number=5)) for f in (lambda: few @ wide.T, lambda: (wide @ few.T).T)
    )
    print(f"(W X^T)^T takes {turned / row_by_row:.2f} of the time of X W^T")  # -> ...
    print(abs(few @ wide.T - (wide @ few.T).T).max() < 1e-3)  # -> True

    # A few rows, and many: the same numbers as before, and a contiguous result.
    layer = Linear(100, 50)
    for rows in (8, 64):
        x = randn(rows, 100)
        y, expected = layer(x), x @ layer.weight.T + layer.bias
        print((y - expected).abs().max().item() < 1e-5, y.array.flags.c_contiguous)
    # -> True True
    # -> True True
