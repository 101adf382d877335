"""Step layers03: Linear: inputs of any dimension

A batch of sentences has three dimensions: [sentences, words, numbers]. The layer does the same to
each row, whatever the other dimensions are. But Addmm of step layers02 handles two dimensions only;
any other input still uses three nodes.

A reshape to two dimensions costs nothing if the array is contiguous, and then one product computes
all rows. The result is reshaped back, and in backward x and G are reshaped:

    [..., n]  ->  [rows, n]  ->  [rows, m]  ->  [..., m]

A single row, [n], has no other dimensions: their product is 1, and it becomes [1, n].

The trap: the number of rows is computed by math.prod, and not left to reshape as -1. With 0 rows
and 0 inputs, -1 could be any number, and NumPy refuses to guess.

Changed: Addmm.forward, Addmm.backward, linear.
Try: write x.reshape(-1, x.shape[-1]) in forward. Which line of the demo fails?
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

    layer, stack = Linear(100, 50), randn(64, 8, 100)

    def composed(x):
        return x @ layer.weight.T + layer.bias

    def gradients(function, x):
        layer.zero_grad()
        function(x).square().sum().backward()
        return layer.weight.grad, layer.bias.grad

    def compare(x):
        pairs = zip(gradients(layer, x), gradients(composed, x), strict=True)
        return all((a - b).abs().max().item() < 1e-3 * b.abs().max().item() for a, b in pairs)

    print(layer(stack).shape, layer(stack[0, 0]).shape, layer(randn(0, 2, 100)).shape)
    # -> tinytorch.Size([64, 8, 50]) tinytorch.Size([50]) tinytorch.Size([0, 2, 50])
    print(linear(randn(2, 3, 0), randn(4, 0)).tolist() == [[[0.0] * 4] * 3] * 2)  # -> True
    print("same gradients:", compare(stack), compare(stack[0, 0]), compare(stack[0]))
    # -> same gradients: True True True
    one, three = (
        min(timeit.repeat(lambda f=f: gradients(f, stack), number=20)) for f in (layer, composed)
    )
    print(f"one node takes {one / three:.2f} of the time of three")  # -> ...
