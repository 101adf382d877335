"""Step 72b: A base class of reductions

Sums, means, variances, maxima have different formulas, and half of each is the same: which
dimensions go, does the result keep them with size 1, how many elements become one, and in which
shape does a gradient fit the input again? In steps 35b to 38d each class answered anew. Here a base
class answers once:

    begin    the dimensions as a tuple, the shape of x, the shape with 1 in them, the count
    spread   a result, or its gradient, in the shape with 1: it broadcasts against x

    x  [2, 3]  -- sum over 1 -->  y  [2]
    gx [2, 3]  <-- formula --  [2, 1]  <-- spread --  g  [2]

What is left of Sum and Mean is their formula. (The finished Sum also adds halves as float32, as in
step 61f.)

The trap is the one of step 35b: a gradient of shape [3] broadcasts against a square [3, 3] without
spread, along the wrong dimension, and nothing complains.

PyTorch: the same functions. Its C++ has one such frame for all reductions, too.

New: Reduction, Sum, Mean, sum, mean. `sum` hides Python's own here.
Try: write g in place of ctx.spread(g). Which lines are wrong without an error? (Expand trusts its
caller and compares no shapes.)

"""

import math

from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import tensor, tensor_method
from tinytorch.ops import arithmetic, elementwise, shape  # noqa: F401  (methods)
from tinytorch.ops.broadcast import Expand


class Reduction(Function):
    """Base of the operations that make one element of many, along the dimensions `dims`."""

    def begin(ctx, x, dim):
        """The dimensions as a tuple, and the shapes that backward needs."""
        dims = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
        ctx.dims, ctx.shape = tuple(i % x.ndim for i in dims), x.shape
        ctx.kept = tuple(1 if i in ctx.dims else n for i, n in enumerate(x.shape))
        ctx.count = math.prod(x.shape[i] for i in ctx.dims)
        return ctx.dims

    def spread(ctx, value):
        """A result or its gradient in a shape that broadcasts against the input."""
        return value.reshape(ctx.kept)


class Sum(Reduction):
    """y = x_1 + ... + x_n;   dy/dx_i = 1."""

    def forward(ctx, x, dim, keepdim):
        return x.sum(axis=ctx.begin(x, dim), keepdims=keepdim)

    def backward(ctx, g):
        return ctx.call(Expand, ctx.spread(g), ctx.shape)


class Mean(Sum):
    """y = (x_1 + ... + x_n) / n;   dy/dx_i = 1 / n."""

    def forward(ctx, x, dim, keepdim):
        return super().forward(x, dim, keepdim) / ctx.count

    def backward(ctx, g):
        return super().backward(g / ctx.count)


@tensor_method("sum")
def sum(input, dim=None, keepdim=False):
    return Sum.apply(input, dim, keepdim)


@tensor_method("mean")
def mean(input, dim=None, keepdim=False):
    return Mean.apply(input, dim, keepdim)


if __name__ == "__main__":
    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    print(sum(x).item(), sum(x, 0).tolist(), sum(x, -1).tolist())
    # -> 21.0 [5.0, 7.0, 9.0] [6.0, 15.0]
    print(mean(x).item(), mean(x, 1, keepdim=True).tolist())  # -> 3.5 [[2.0], [5.0]]
    sum(sum(x, 1) * tensor([10.0, 100.0])).backward()
    print("each row its own:", x.grad.tolist())
    # -> each row its own: [[10.0, 10.0, 10.0], [100.0, 100.0, 100.0]]

    # A square: here a gradient along the wrong dimension would fit.
    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    sum(sum(x, 1) * tensor([10.0, 100.0])).backward()
    print("a square:", x.grad.tolist())  # -> a square: [[10.0, 10.0], [100.0, 100.0]]

    z = tensor([[0.3, -1.2, 2.0], [0.5, 0.1, -0.7]], dtype=float64, requires_grad=True)
    for f in (lambda z: sum(z * z, (0, 1)), lambda z: mean(z * z, 1)):
        print(gradcheck(f, (z,)), gradgradcheck(f, (z,)))
        # -> True True
        # -> True True
