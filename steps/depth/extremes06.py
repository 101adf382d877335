"""Step extremes06: The Euclidean norm, and its gradient at 0

The Euclidean norm of a vector is its length. Programs clip gradients by it and keep weights small
with it, and the distance of two points is the norm of their difference.

    |x| = sqrt(x_1^2 + ... + x_n^2)          d|x|/dx_i = x_i / |x|

The gradient is x, scaled to length 1: the direction of x, in which the length grows fastest.

At x = 0 there is no such direction. The graph of |x| over the plane is a cone, and 0 is its tip.
The formula says 0 / 0, nan, and a single nan soon makes every weight nan. PyTorch takes 0, one of
the subgradients (step elementwise03): y + (y == 0) is 1 where y is 0, and x / 1 is 0.

Composed from operations, sqrt(sum(x * x)) has the same value, and the gradient nan: sqrt has an
infinite slope at 0, and does not know what comes before it. That is one reason why the norm is a
Function of its own.

Halves: 300 fits float16, but its square does not. `widened` (step reduce06) computes in float32.

The trap: sqrt(sum(x * x)) also loses small numbers, as 1e-30 squared is 0 in float32. PyTorch's
norm does the same.

Changed: the reductions are imported. New: Norm, norm.
Try: divide by y alone in backward.
"""

import collections
import functools
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor
from tinytorch.ops import comparison  # noqa: F401  (its operators)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.elementwise import maximum, minimum
from tinytorch.ops.reduction import Reduction, Sum, reduced_dims, reduction, summands, widened


def named_result(name: str, *fields: str) -> type:
    """A named tuple that prints as PyTorch's results with several parts do."""

    def show(self: tuple) -> str:
        parts = ",\n".join(f"{field}={value!r}" for field, value in zip(fields, self, strict=True))
        return f"tinytorch.return_types.{name}(\n{parts})"

    result = collections.namedtuple(name, fields)
    result.__repr__ = show
    return result


MaxResult = named_result("max", "values", "indices")
MinResult = named_result("min", "values", "indices")


@functools.singledispatch
def extreme_rows(x: Any, method: str) -> Any:
    """The "max" or "min" of each row; the last dimension stays, of size 1."""
    return getattr(x, method)(axis=-1, keepdims=True)


@extreme_rows.register(np.ndarray)
def extreme_rows_numpy(x: np.ndarray, method: str) -> np.ndarray:
    # In short rows NumPy finds the index of the maximum faster than the maximum.
    places = getattr(x, f"arg{method}")(axis=-1).ravel() + np.arange(0, x.size, x.shape[-1])
    return x.reshape(-1).take(places).reshape(*x.shape[:-1], 1)


def check_not_empty(name: str, x: Any, dims: Any, error: type = RuntimeError) -> None:
    """Checks that there is an element to choose from.

    Raises:
        IndexError: the array is empty along a named dimension.
        error: it is empty and no dimension is named.
    """
    if x.size == 0 and (dims is None or 0 in [x.shape[dim] for dim in dims]):
        raise (error if dims is None else IndexError)(
            f"{name}(): Expected reduction dim to be specified, and to have non-zero size; the "
            f"shape is {list(x.shape)}"
        )


class Amax(Reduction):
    """y = the largest x_i;   dy/dx_i = 1 where x_i = y, divided by the number of such x_i."""

    saves = 0, ~0
    method = "max"

    def forward(ctx, x: Any, dims: Any = None, keepdims: bool = False) -> Any:
        check_not_empty(ctx.method, x, dims)
        ctx.begin(x, dims, keepdims)
        if dims == (x.ndim - 1,) and x.size > 1000:
            y = extreme_rows(x, ctx.method).reshape(x.shape[:-1] + (1,) * keepdims)
        else:
            y = getattr(x, ctx.method)(axis=dims, keepdims=keepdims)
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g: Any) -> Any:
        x, y = ctx.saved
        found = x == ctx.spread(y)
        return ctx.spread(g) * found / found.sum(axis=ctx.dims, keepdims=True, dtype=g.dtype)


class Amin(Amax):
    """y = the smallest x_i; the gradient as that of Amax."""

    method = "min"


class ArgMax(Function):
    """The index of the first largest x_i along `dim`, or among all elements for None."""

    differentiable = False
    method = "argmax"

    def forward(ctx, x: Any, dim: int | None, keepdims: bool) -> Any:
        check_not_empty(ctx.method, x, None if dim is None else (dim,), IndexError)
        index = getattr(x, ctx.method)(axis=dim if x.ndim else None)
        if not keepdims:
            return index
        return index.reshape([1 if dim in (None, i) else n for i, n in enumerate(x.shape)])


class ArgMin(ArgMax):
    """The index of the first smallest x_i."""

    method = "argmin"


def row_positions(index: Any, array: Any, xp: Any) -> Any:
    """Where the elements `index` of the last dimension are in the flat array: one row of positions
    for each row."""
    starts = xp.arange(0, array.size, array.shape[-1])
    return index.reshape(starts.size, -1) + starts[:, None]


def take_along(x: Any, index: Any, dim: int, xp: Any) -> Any:
    """The elements of x at `index` along `dim`, in the shape of the index."""
    if dim == x.ndim - 1 and index.size:  # xp.take_along_axis takes four times as long
        return x.reshape(-1).take(row_positions(index, x, xp)).reshape(index.shape)
    places = index if index.ndim == x.ndim else xp.expand_dims(index, dim)
    return xp.take_along_axis(x, places, axis=dim).reshape(index.shape)


class TakeAlong(Function):
    """y = the elements of x at `index` along `dim`, where an index appears once in its row.

    An index without that dimension takes one element of each row, and the result does not have the
    dimension either. The gradient goes to where the elements came from; all others get 0.
    """

    saves = (1,)

    def forward(ctx, x: Any, index: Any, dim: int) -> Any:
        ctx.dim, ctx.shape = dim, x.shape
        ctx.save_for_backward(index)
        return take_along(x, index, dim, ctx.xp) if x.ndim else x.copy()

    def backward(ctx, g: Any) -> Any:
        return ctx.call(PutAlong, g, ctx.saved[0], ctx.dim, ctx.shape), None


class PutAlong(Function):
    """The reverse of TakeAlong: zeros of the given shape, with the elements of x at `index`."""

    saves = (1,)

    def forward(ctx, x: Any, index: Any, dim: int, shape: tuple[int, ...]) -> Any:
        ctx.dim = dim
        ctx.save_for_backward(index)
        if not shape:
            return x.copy()
        y = ctx.xp.zeros(shape, x.dtype)
        if dim == len(shape) - 1 and index.size:
            ctx.xp.put(y, row_positions(index, y, ctx.xp), x)
            return y
        if x.ndim < len(shape):
            x, index = ctx.xp.expand_dims(x, dim), ctx.xp.expand_dims(index, dim)
        ctx.xp.put_along_axis(y, index, x, axis=dim)
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(TakeAlong, g, ctx.saved[0], ctx.dim), None


@reduction
def amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest elements over `dim`. Equal ones share the gradient. Errors for empty input."""
    return Amax.apply(input, reduced_dims(dim, input.array.ndim), keepdim)


@reduction
def amin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The smallest elements over `dim`. Equal ones share the gradient. Errors for empty input."""
    return Amin.apply(input, reduced_dims(dim, input.array.ndim), keepdim)


def arg_extreme(function: type[ArgMax], input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """The index of the largest or the smallest element.

    Raises:
        RuntimeError: `input` is boolean.
        IndexError: `input` is empty.
    """
    if input.dtype is bool_:
        raise RuntimeError(f"{function.method}(): does not support bool input")
    if dim is not None:
        dim = normalize_dim(dim, input.array.ndim)
    return function.apply(input, dim, keepdim)


@reduction
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The int64 index of the first largest element along `dim`, or in input.flatten()."""
    return arg_extreme(ArgMax, input, dim, keepdim)


@reduction
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The int64 index of the first smallest element along `dim`, or in input.flatten()."""
    return arg_extreme(ArgMin, input, dim, keepdim)


def max_or_min(
    value: type[Amax], index: type[ArgMax], input: Tensor, dim: Any, keepdim: bool, other: Any
) -> Any:
    """max or min, in the form that the arguments ask for: of all, along a dimension, of pairs."""
    largest = value is Amax
    if isinstance(dim, Tensor):
        other, dim = dim, None
    if other is not None:
        return (maximum if largest else minimum)(input, other)
    if dim is None:
        return value.apply(input)
    dim = normalize_dim(dim, input.array.ndim)
    indices = index.apply(input, dim, keepdim)
    return (MaxResult if largest else MinResult)(TakeAlong.apply(input, indices, dim), indices)


@reduction
def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """max(input): the largest element; equal ones share the gradient.
    max(input, dim): (values, indices) along one dimension; only the element chosen gets gradient.
    max(input, other): the larger element of each pair, as `maximum`.
    """
    return max_or_min(Amax, ArgMax, input, dim, keepdim, other)


@reduction
def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
    """The smallest element, (values, indices) along `dim`, or the smaller of pairs: see `max`."""
    return max_or_min(Amin, ArgMin, input, dim, keepdim, other)


class Norm(Reduction):
    """y = sqrt(x_1^2 + ... + x_n^2);   dy/dx_i = x_i / y, and 0 where y is 0."""

    saves = 0, ~0

    def forward(ctx, x: Any, dims: Any, keepdims: bool) -> Any:
        ctx.begin(x, dims, keepdims)
        y = ctx.xp.sqrt(ctx.call(Sum, x * x, dims, keepdims))
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g: Any) -> Any:
        x, y = ctx.saved
        y = y + (y == 0)
        return ctx.spread(g / y) * x


@reduction
def norm(input: Tensor, *, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The Euclidean norm over `dim`.

    Raises:
        RuntimeError: `input` is of an integer type.
    """
    if not input.is_floating_point():
        raise RuntimeError(f"norm(): Expected a floating point tensor. Got {input.dtype!r}")
    dims = reduced_dims(dim, input.array.ndim)
    input, _ = summands(input, dtype)
    return widened(Norm, input, dims, keepdim)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float16, float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.elementwise import sqrt

    def gradient(function, data):
        x = tensor(data, requires_grad=True)
        function(x).backward()
        return x.grad.tolist()

    v = [3.0, -4.0]
    print("length:", norm(tensor(v)).item(), " direction:", gradient(norm, v))
    # -> length: 5.0  direction: [0.6, -0.8]
    print("of each row:", norm(tensor([v, [5.0, 12.0]]), dim=1, keepdim=True).tolist())
    # -> of each row: [[5.0], [13.0]]
    print("at 0:", gradient(norm, [0.0, 0.0]))  # -> at 0: [0.0, 0.0]
    print("composed, at 0:", gradient(lambda x: sqrt((x * x).sum()), [0.0, 0.0]))
    # -> composed, at 0: [nan, nan]

    half = tensor([300.0, 400.0], dtype=float16)
    print("halves:", norm(half).item(), norm(half).dtype, norm(half, dtype=float64).dtype)
    # -> halves: 500.0 tinytorch.float16 tinytorch.float64
    try:
        norm(tensor([3, 4]))
    except RuntimeError as error:
        print("RuntimeError:", error)
        # -> RuntimeError: norm(): Expected a floating point tensor. Got tinytorch.int64

    z = tensor([[0.3, -1.2, 2.0]], dtype=float64, requires_grad=True)
    for function in (norm, lambda z: norm(z, dim=0, keepdim=True)):
        print(gradcheck(function, (z,)), gradgradcheck(function, (z,)))
        # -> True True
        # -> True True
