"""Step reduce01: Reductions in the package's dress

Step 72b built the base class: `begin` notes the dimensions in forward, `spread` gives the gradient
a shape that fits the input again. Here it gets devices, types, and a name for its node.
reduced_dims turns `dim` into a tuple, `count` is how many elements become one.

The gradient is repeated by Expand (step tensor07), which does not copy and is itself
differentiable.

PyTorch's node of a sum over some dimensions has another name than that over all: SumBackward1 and
SumBackward0. `name` says which.

The trap is that of step 35b: without `spread`, a square matrix gets the wrong gradient and no
error, since [3] fits [3, 3] along the wrong dimension.

Changed: Reduction, Sum, Mean, sum, mean. New: reduced_dims, Reduction.count, Sum.name. From here on
`sum` hides Python's own.
Try: expand g in place of ctx.spread(g) in Sum.backward. Which line of the demo is wrong now?
"""

import math
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops import arithmetic, comparison  # noqa: F401  (their operators)
from tinytorch.ops.broadcast import Expand


def reduced_dims(dim: Any) -> tuple[int, ...] | None:
    """The dimensions that `dim` names, counted from the front; None, for all, if it is None."""
    return dim if dim is None or isinstance(dim, tuple) else (dim,)


class Reduction(Function):
    """Base of the reductions: one result for all elements along some dimensions.

    `dims` are counted from the front, None for all; `keepdims` keeps them, of size 1.
    """

    def begin(ctx, x: Any, dims: tuple[int, ...] | None, keepdims: bool) -> None:
        """Saves the shapes for backward."""
        ctx.shape, ctx.dims, ctx.kept = x.shape, dims, None
        if dims is not None and not keepdims:
            ctx.kept = tuple(1 if i in dims else n for i, n in enumerate(x.shape))

    def count(ctx) -> int:
        """The number of elements that become one."""
        return math.prod(ctx.shape if ctx.dims is None else [ctx.shape[dim] for dim in ctx.dims])

    def spread(ctx, value: Any) -> Any:
        """A result, or its gradient, in a shape that broadcasts against the input."""
        return value if ctx.kept is None else value.reshape(ctx.kept)


class Sum(Reduction):
    """y = x_1 + ... + x_n;   dy/dx_i = 1: each element gets the gradient of the sum."""

    def forward(ctx, x: Any, dims: Any = None, keepdims: bool = False) -> Any:
        ctx.begin(x, dims, keepdims)
        return x.sum(axis=dims, keepdims=keepdims)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, ctx.spread(g), ctx.shape)

    def name(ctx) -> str:  # PyTorch has a form without dimensions and one with them
        return f"{type(ctx).__name__}Backward{int(ctx.dims is not None)}"


class Mean(Sum):
    """y = (x_1 + ... + x_n) / n;   dy/dx_i = 1 / n."""

    def forward(ctx, x: Any, dims: Any = None, keepdims: bool = False) -> Any:
        return super().forward(x, dims, keepdims) / ctx.count()

    def backward(ctx, g: Any) -> Any:
        return super().backward(g / ctx.count())


@tensor_method("sum")
def sum(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum over `dim` (an int, several, or None for all), which is kept as 1 with keepdim."""
    return Sum.apply(input, reduced_dims(dim), keepdim)


@tensor_method("mean")
def mean(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The mean over `dim`."""
    return Mean.apply(input, reduced_dims(dim), keepdim)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    print(sum(x).item(), sum(x, 0).tolist(), sum(x, 1).tolist())
    # -> 21.0 [5.0, 7.0, 9.0] [6.0, 15.0]
    print("kept as 1:", sum(x, dim=1, keepdim=True).tolist())  # -> kept as 1: [[6.0], [15.0]]
    print("means:", mean(x).item(), mean(x, 0).tolist())  # -> means: 3.5 [2.5, 3.5, 4.5]

    # Row sums of shape [2], weighted, and summed again: each element gets the weight of its row.
    y = sum(x, 1)
    (y * tensor([10.0, 100.0])).sum().backward()
    print("gradient of x:", x.grad.tolist())
    # -> gradient of x: [[10.0, 10.0, 10.0], [100.0, 100.0, 100.0]]
    print("y has", list(y.shape), "and its gradient is spread as", y.grad_fn.kept)
    # -> y has [2] and its gradient is spread as (2, 1)

    print("nodes:", sum(x).grad_fn.name(), y.grad_fn.name(), mean(x, 0).grad_fn.name())
    # -> nodes: SumBackward0 SumBackward1 MeanBackward1

    # The trap: without `spread`, a square matrix gives the wrong gradient and no error.
    g, square = np.array([1.0, 10.0, 100.0]), (3, 3)
    print("wrong, all rows alike:", np.broadcast_to(g, square)[0])
    # -> wrong, all rows alike: [  1.  10. 100.]
    print("right, row by row:", np.broadcast_to(g.reshape(3, 1), square)[0])
    # -> right, row by row: [1. 1. 1.]

    x.grad = None
    mean(x, (0, 1)).backward()
    print("a mean of", mean(x).grad_fn.count(), "shares:", x.grad.tolist()[0])
    # -> a mean of 6 shares: [0.16667, 0.16667, 0.16667]

    # A gradient that is repeated has itself a derivative: the sum.
    z = tensor([[0.3, -1.2, 2.0]], dtype=float64, requires_grad=True)
    print("to second order:", gradgradcheck(lambda z: mean(z * z, 1, True), (z,)))
    # -> to second order: True
