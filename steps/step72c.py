"""Step 72c: The variance, in two passes

The variance is the mean of the squares minus the square of the mean. So one pass over the data is
enough: add up x and x^2. Three heights of 10,000, 10,001 and 10,002 mm have the variance 2/3, and
in float32 this formula says 0. Squares of 100,000,000 have steps of 8 there, and the difference is
lost in them.

Two passes keep the digits: first the mean, then the squares of the deviations, which are small
numbers.

    y = sum of (x_i - m)^2 / (n - 1)      dy/dx_i = 2 (x_i - m) / (n - 1)

m depends on x, too. Why is it not in the derivative? Its part is -2 (sum of x_j - m) / (n - 1)
times dm/dx_i, and the deviations from the mean add up to 0.

n - 1 is for a sample: it lies nearer to its own mean than to the true one, and its squares are too
small by (n - 1) / n on average. correction=0 divides by n, as batch normalisation does (step 52a).

The trap: backward needs x - m. If forward saved this array, a second derivative would take it for a
constant and be wrong. So x is saved, and the deviation is computed again from it.

PyTorch: torch.var(x, dim, correction=1). It runs through the data once, with a rule by Welford that
updates mean and squares together and loses nothing.

New: Var, var.
Try: save ctx.deviation(x) and use it in backward. Which line of the demo notices?
In depth: reduce01 to reduce09, softmax01 to softmax07, norm01 to norm14.
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


class Var(Reduction):
    """y = sum of (x_i - m)^2 / (n - 1), m the mean of x;   dy/dx_i = 2 (x_i - m) / (n - 1)."""

    def forward(ctx, x, dim, keepdim, correction):
        ctx.begin(x, dim)
        ctx.save_for_backward(x)
        ctx.divisor = ctx.count - correction
        return (ctx.deviation(x) ** 2).sum(axis=ctx.dims, keepdims=keepdim) / ctx.divisor

    def deviation(ctx, x):
        """x minus its mean."""
        return x - ctx.call(Mean, x, ctx.dims, True)

    def backward(ctx, g):
        (x,) = ctx.saved
        return ctx.spread(g) * 2 * ctx.deviation(x) / ctx.divisor


@tensor_method("sum")
def sum(input, dim=None, keepdim=False):
    return Sum.apply(input, dim, keepdim)


@tensor_method("mean")
def mean(input, dim=None, keepdim=False):
    return Mean.apply(input, dim, keepdim)


@tensor_method("var")
def var(input, dim=None, keepdim=False, correction=1):
    return Var.apply(input, dim, keepdim, correction)


if __name__ == "__main__":
    x = tensor([10000.0, 10001.0, 10002.0], requires_grad=True)
    print("one pass:  ", (mean(x * x) - mean(x) * mean(x)).item())  # -> one pass:   0.0
    print("two passes:", f"{var(x, correction=0).item():.4f}", var(x).item())
    # -> two passes: 0.6667 1.0
    var(x).backward()
    print("gradient:", x.grad.tolist())  # -> gradient: [-1.0, 0.0, 1.0]

    z = tensor([[0.3, -1.2, 2.0], [0.5, 0.1, -0.7]], dtype=float64, requires_grad=True)
    print([f"{v:.4f}" for v in var(z, 1).tolist()], tuple(var(z, 0, keepdim=True).shape))
    # -> ['2.5633', '0.3733'] (1, 3)
    for f in (var, lambda z: var(z, 1, correction=0) * mean(z, 1)):
        print(gradcheck(f, (z,)), gradgradcheck(f, (z,), raise_exception=False))
        # -> True True
        # -> True True
