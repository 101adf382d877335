"""Step softmax07: Faster softmax of short rows

Attention takes the softmax of hundreds of thousands of short rows, and there NumPy's overhead of
each row weighs more than the arithmetic. Three changes help, and the demo measures them:

- The maximum of a short row comes from its place (step extremes05).
- The maximum is often not needed. If all scores lie between -10 and 10, e^x neither overflows nor
  vanishes. Two passes over the whole array find this out, and no row needs its maximum.
- Dividing each row by its sum broadcasts a column, and NumPy starts a new loop for every row.
  np.repeat writes the sums out, and then two long arrays are divided in one loop.

The result is the same, up to rounding. All of this is about NumPy. A GPU has a kernel of its own,
which does everything in one pass. It is registered for softmax_forward, a singledispatch (step
products03).

The trap of the second change is nan. nan < 10 is False, so an array with a nan is computed the long
way. So is one with -inf, a masked score.

Changed: minus_max, Softmax. New: sums_over, softmax_forward.
Try: write 1000 in place of 10. Which line of the demo changes?
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import Defaults, as_dtype
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators, and clip)
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.minmax import extreme_rows
from tinytorch.ops.reduction import Reduction, Sum, reduced_dims, reduction, summands, wide, widened


def minus_max(x: Any, dims: tuple[int, ...], xp: Any) -> Any:
    """A new array: x minus its maximum over `dims`, so that exp of it is at most 1."""
    x = xp.asarray(x, order="C")
    if x.size == 0:
        return x.copy()
    if dims == (x.ndim - 1,) and x.size > 200 and x.shape[-1] <= 128:
        return x - extreme_rows(x, "max")
    return xp.asarray(x - x.max(axis=dims, keepdims=True))


class Logsumexp(Reduction):
    """y = log(exp(x_1) + ... + exp(x_n));   dy/dx_i = exp(x_i - y).

    exp(1000) is inf, so the largest, m, is taken out: y = m + log(sum of exp(x_i - m)).
    """

    saves = 0, ~0
    lowest = {4: -3e38, 8: -1e308}  # by item size: the lowest finite number, nearly

    def forward(ctx, x: Any, dims: Any, keepdims: bool) -> Any:
        ctx.begin(x, dims, keepdims)
        xp = ctx.xp
        m = x.max(axis=dims, keepdims=True) if x.size else x.sum(axis=dims, keepdims=True)
        m = xp.where(xp.isfinite(m), m, xp.zeros_like(m))  # inf - inf would be nan
        total = xp.exp(x - m).sum(axis=dims, keepdims=keepdims)
        y = xp.log(total) + m.reshape(total.shape)
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g: Any) -> Any:
        x, y = ctx.saved
        # Where all x_i are -inf, so is y: with a finite number in its place x_i - y is not nan.
        y = ctx.xp.clip(y, ctx.lowest[y.dtype.itemsize], None)
        return ctx.spread(g) * ctx.xp.exp(x - ctx.spread(y))


def sums_over(ctx: Function, x: Any) -> Any:
    """The sum of x over ctx.dims, in a shape that broadcasts against x."""
    sums = ctx.call(Sum, x, ctx.dims, True)
    short = x.__class__ is np.ndarray and ctx.dims == (x.ndim - 1,) and 1 < x.shape[-1] < 64
    # Over short rows NumPy's broadcast takes several times as long as repeating the sums.
    return np.repeat(sums.reshape(-1), x.shape[-1]).reshape(x.shape) if short else sums


@functools.singledispatch
def softmax_forward(x: Any, ctx: Function) -> Any:
    """The softmax of the array x along ctx.dims. An array type may bring a kernel of its own."""
    y = wide(x)
    if x.__class__ is np.ndarray and x.size > 1000 and -10 < y.min() and y.max() < 10:
        y = ctx.xp.exp(y)  # no maximum is needed: nothing overflows, and no sum is near 0
    else:
        y = minus_max(y, ctx.dims, ctx.xp)
        ctx.xp.exp(y, out=y)  # in place: allocating a large array is slow
    y /= sums_over(ctx, y)
    return y.astype(x.dtype, copy=False)


class Softmax(Function):
    """y_i = exp(x_i) / (sum of exp(x_k));   dL/dx_i = y_i (g_i - sum of g_k y_k)."""

    saves = (~0,)

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        y = softmax_forward(x, ctx)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        (y,) = ctx.saved
        gy = g * y
        return gy - y * sums_over(ctx, gy)


class LogSoftmax(Function):
    """y_i = x_i - log(sum of exp(x_k));   dL/dx_i = g_i - exp(y_i) (sum of g_k).

    The logarithm of a softmax would be log(0) = -inf already for x = [0, 200].
    """

    saves = (~0,)

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        y = minus_max(wide(x), dims, ctx.xp)
        y -= ctx.xp.log(ctx.call(Sum, ctx.xp.exp(y), dims, True))
        y = y.astype(x.dtype, copy=False)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        (y,) = ctx.saved
        return g - ctx.xp.exp(y) * ctx.call(Sum, g, ctx.dims, True)


@reduction
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over `dim`, without overflow. Integers become the default float type."""
    if dim is None:
        raise TypeError("logsumexp(): argument 'dim' must be tuple of ints, not NoneType")
    if not input.is_floating_point():
        input = cast(input, Defaults.dtype)
    return widened(Logsumexp, input, reduced_dims(dim, input.array.ndim), keepdim)


def softmax_along(function: type[Function], input: Tensor, dim: int, dtype: Any) -> Tensor:
    """Softmax or LogSoftmax along one dimension.

    Raises:
        TypeError: `dim` is not an integer.
        NotImplementedError: `input` is of an integer type.
    """
    ndim = input.array.ndim
    dim = normalize_dim(dim, ndim)
    if dtype is not None:
        input = cast(input, as_dtype(dtype))
    if not input.is_floating_point():
        raise NotImplementedError(f"softmax() is not implemented for {input.dtype!r}")
    return function.apply(input, (dim,) if ndim else ())


@reduction
def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(input), divided by its sum along `dim`: positive numbers that add up to 1."""
    return softmax_along(Softmax, input, dim, dtype)


@reduction
def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """log(softmax(input, dim)), accurate also where the softmax underflows to 0."""
    return softmax_along(LogSoftmax, input, dim, dtype)


class Cumsum(Function):
    """y_i = x_1 + ... + x_i. x_i is in y_i and all after it: backward sums from the other end."""

    def forward(ctx, x: Any, dim: int, backwards: bool = False, dtype: Any = None) -> Any:
        ctx.dim, ctx.backwards = dim, backwards
        if x.ndim == 0:
            return x.astype(dtype or x.dtype)
        z = ctx.xp.asarray(ctx.xp.flip(wide(x), dim) if backwards else wide(x), order="C")
        y = ctx.xp.cumsum(z, axis=dim, dtype=dtype or z.dtype)
        return (ctx.xp.flip(y, dim) if backwards else y).astype(dtype or x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Cumsum, g, ctx.dim, not ctx.backwards)


@reduction
def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums along `dim`. Integers and booleans are added as int64."""
    input, total = summands(input, dtype)
    return Cumsum.apply(input, normalize_dim(dim, input.array.ndim), False, total)


cumsum_ = tensor_method("cumsum_")(in_place(cumsum))


class Shift(Function):
    """y_i = x_(i - steps) along `dim`, and `fill` where that is outside: [1 2 3] -> [0 1 2]."""

    def forward(ctx, x: Any, dim: int, steps: int, fill: float = 0.0) -> Any:
        ctx.dim, ctx.steps = dim, steps
        y = ctx.xp.roll(x, steps, dim)
        outside = slice(None, steps) if steps > 0 else slice(steps, None)
        y[(slice(None),) * dim + (outside,)] = fill
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Shift, g, ctx.dim, -ctx.steps)


def product_before(ctx: Function, x: Any, dim: int, direction: int) -> Any:
    """The product of all factors before x_i (direction 1) or after it (-1).

    Each round doubles the number of factors: 1, 2, 4, ... There is no division, so a factor of 0
    does no harm, here and in the derivatives.
    """
    y, steps = ctx.call(Shift, x, dim, direction, 1.0), 1
    while steps < x.shape[dim]:
        y = y * ctx.call(Shift, y, dim, direction * steps, 1.0)
        steps *= 2
    return y


class Prod(Reduction):
    """y = x_1 ... x_n;   dy/dx_i = y / x_i, or the product of all others if y is 0."""

    saves = 0, ~0

    def forward(ctx, x: Any, dims: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
        ctx.begin(x, dims, keepdims)
        y = wide(x).prod(axis=dims, keepdims=keepdims, dtype=dtype)
        y = y.astype(dtype or x.dtype, copy=False)
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g: Any) -> Any:
        x, y = ctx.saved
        if ctx.shape == ():
            return g
        if bool(y.all()):
            return ctx.spread(g * y) / x
        along = 0 if ctx.dims is None else ctx.dims[0]
        row = x.reshape((-1,)) if ctx.dims is None and x.ndim > 1 else x
        others = product_before(ctx, row, along, 1) * product_before(ctx, row, along, -1)
        return ctx.spread(g) * (others if row is x else others.reshape(ctx.shape))

    def name(ctx) -> str:  # PyTorch has a form without dimensions and one with them
        return f"{type(ctx).__name__}Backward{int(ctx.dims is not None)}"


@reduction
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None):
    """The product of all elements, or along one dimension. The gradient is right for zeros too."""
    ndim = input.array.ndim
    dims = None if dim is None else reduced_dims(normalize_dim(dim, ndim), ndim)
    input, total = summands(input, dtype)
    return Prod.apply(input, dims, keepdim, total)


if __name__ == "__main__":
    import timeit

    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    def plain(x):  # step softmax01
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def seconds(function):
        return min(timeit.repeat(function, number=2, repeat=5))

    small = np.random.default_rng(0).standard_normal((20_000, 32), dtype=np.float32)
    for name, rows in (("small scores", small), ("large scores", small * 30)):
        x = tensor(rows)
        ratio = seconds(lambda: plain(rows)) / seconds(lambda: softmax(x, -1))  # noqa: B023
        print(f"{name}: the plain formula takes {ratio:.1f} times as long")  # -> ...
        print("the same:", np.allclose(softmax(x, -1).numpy(), plain(rows), atol=1e-6))
        # -> the same: True
        # -> the same: True

    masked = tensor([[0.0, -math.inf, 0.0], [1000.0, 1000.0, math.nan]])
    print(softmax(masked, 1).tolist())  # -> [[0.5, 0.0, 0.5], [nan, nan, nan]]
    gy = np.ones((2, 3))
    ctx = softmax(tensor(gy, requires_grad=True), 1).grad_fn
    print("sums, repeated:", sums_over(ctx, gy).tolist())
    # -> sums, repeated: [[3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]

    z = tensor([[0.5, 2.0, -1.0]], dtype=float64, requires_grad=True)
    print(gradcheck(softmax, (z, 1)), gradgradcheck(softmax, (z, 1)))  # -> True True
