"""Step layers05: Linear: checking operands

Addmm checks nothing. NumPy broadcasts a bias with one element to fifty outputs, and backward
returns fifty gradients: the demo shows a parameter of one element with a gradient of fifty. An
input that is not a tensor fails somewhere inside. And error messages are about arrays that the
caller has never seen.

So `linear` checks its operands first:

    operands that are not tensors of one type     refused, by check_operands (step matmul04)
    a weight that is not a matrix, a 0-d input    matmul and + compute or refuse them
    a bias of another shape                       expand_as, whose gradient is summed again

All other operands go to Addmm. For sizes that do not match, translate_error replaces NumPy's
message by one that names the two matrices.

The trap: `product + bias` would also broadcast the product to a larger bias. expand_as broadcasts
only the bias.

Changed: linear. New: Addmm.translate_error.
Try: give linear a bias [3, 50] and rows [3, 100]. Should that be allowed? What does PyTorch say?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty
from tinytorch.ops.matmul import MatMul, check_operands, matmul, matmul_arrays
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

    @classmethod
    def translate_error(cls, error: Exception, arrays: list) -> Exception:
        return MatMul.translate_error(error, [arrays[0], arrays[1].T])


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: [..., n] with a weight [m, n] gives [..., m].

    Raises:
        RuntimeError: where shapes or types do not fit.
    """
    check_operands("linear", *(input, weight) if bias is None else (input, weight, bias))
    if weight.array.ndim != 2 or input.array.ndim == 0:
        product = matmul(input, weight.T if weight.array.ndim == 2 else weight)
        return product if bias is None else product + bias.expand_as(product)
    if bias is None:
        return Addmm.apply(input, weight)
    if bias.array.shape != weight.array.shape[:1]:
        product = Addmm.apply(input, weight)
        return product + bias.expand_as(product)  # which a bias of more dimensions refuses
    return Addmm.apply(input, weight, bias)


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

    x, weight = randn(64, 100), Parameter(randn(50, 100))

    # The fast way with a bias that it does not fit.
    one = Parameter(randn(1))
    Addmm.apply(x, weight, one).sum().backward()
    print("parameter", list(one.shape), "gradient", list(one.grad.shape))
    # -> parameter [1] gradient [50]
    one.grad = None
    linear(x, weight, one).sum().backward()
    print("now:", one.grad.tolist())  # -> now: [3200.0]

    for wrong in (
        lambda: linear(randn(64, 99), weight),
        lambda: linear(x, weight, randn(3, 64, 50)),
        lambda: linear(x.double(), weight),
        lambda: linear([1.0], weight),
    ):
        try:
            wrong()
        except (RuntimeError, TypeError) as error:
            print(f"{type(error).__name__}: {str(error).partition(', of')[0]}")
    # -> RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x99 and 100x50)
    # -> RuntimeError: expand([3, 64, 50], size=[64, 50]): the number of sizes provided (2) ...
    # -> RuntimeError: expected m1 and m2 to have the same dtype, but got: double != float
    # -> TypeError: linear(): argument 1 must be Tensor, not list
    print(linear(x, weight[0]).shape, linear(x, weight, one.expand(50)).shape)
    # -> tinytorch.Size([64]) tinytorch.Size([64, 50])
