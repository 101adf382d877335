"""Step layers06: Linear: the graph that PyTorch shows

Programs print the graph, and search it: for the node of a layer, or for the parameters behind it.
In PyTorch a linear layer is a call of addmm(bias, x, weight.T), so the first of its next_functions
belongs to the bias. Here it is the last, as in our forward. And our node is always named after its
class, AddmmBackward0, where PyTorch has four names:

    rows of x            with a bias          without
    [n, features]        AddmmBackward0       MmBackward0
    more dimensions      ViewBackward0        UnsafeViewBackward0

With more dimensions the last call is the reshape of the result, hence its name. Our node finds the
shape of its result in ctx.outputs[0][0], and `ctx.edges` tells it whether there is a bias.

The trap: only what is shown changes. Backward reads ctx.edges, whose order is that of forward's
arguments. An override of next_functions must not be used for anything else.

New: Addmm.next_functions, Addmm.name.
Try: take `name` away. Which lines of the demo change? And without next_functions?
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

    @property
    def next_functions(ctx) -> tuple:  # the bias comes first in PyTorch's addmm
        x, weight, *bias = super().next_functions
        return (*bias, x, weight)

    def name(ctx) -> str:  # of the last of the calls that PyTorch makes
        names = ("Mm", "UnsafeView") if len(ctx.edges) == 2 else ("Addmm", "View")
        return names[len(ctx.outputs[0][0]) != 2] + "Backward0"


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

    x, weight, bias = randn(64, 100), Parameter(randn(50, 100)), Parameter(randn(50))
    cases = ((x, None), (x, bias.expand(50)), (randn(2, 3, 100), None), (randn(2, 3, 100), bias))
    for input, b in cases:
        node = linear(input, weight, b).grad_fn
        print(node.name(), [n and n.name().split("::")[-1] for n, _ in node.next_functions])
    # -> MmBackward0 [None, 'AccumulateGrad']
    # -> AddmmBackward0 ['ExpandBackward0', None, 'AccumulateGrad']
    # -> UnsafeViewBackward0 [None, 'AccumulateGrad']
    # -> ViewBackward0 ['AccumulateGrad', None, 'AccumulateGrad']

    # The gradients go where they belong: bias [50], weight [50, 100].
    linear(x, weight, bias).sum().backward()
    print(bias.grad.tolist() == [64.0] * 50, weight.grad.shape)
    # -> True tinytorch.Size([50, 100])
