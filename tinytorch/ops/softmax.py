"""softmax, log_softmax and logsumexp, without overflow."""

import functools
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import Defaults, as_dtype
from tinytorch.core.tensor import Tensor
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.minmax import extreme_rows
from tinytorch.ops.reduction import Reduction, Sum, reduced_dims, reduction, wide, widened


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
