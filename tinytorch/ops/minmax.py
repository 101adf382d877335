"""The largest and the smallest element: what it is, and where."""

import collections
import functools
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.elementwise import maximum, minimum
from tinytorch.ops.reduction import Reduction, reduced_dims, reduction


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


def named(function: type[Function], name: str) -> type[Function]:
    """The same operation, whose nodes have another of PyTorch's names."""
    return type(function.__name__, (function,), {"name": lambda ctx: name})


# Of Amax and Amin: the operation on all elements, that along a dimension, and on pairs.
FORMS = {
    Amax: (named(Amax, "MaxBackward1"), named(TakeAlong, "MaxBackward0"), maximum, MaxResult),
    Amin: (named(Amin, "MinBackward1"), named(TakeAlong, "MinBackward0"), minimum, MinResult),
}


def max_or_min(
    value: type[Amax], index: type[ArgMax], input: Tensor, dim: Any, keepdim: bool, other: Any
) -> Any:
    """max or min, in the form that the arguments ask for: of all, along a dimension, of pairs."""
    of_all, along, of_pairs, result = FORMS[value]
    if isinstance(dim, Tensor):
        other, dim = dim, None
    if other is not None:
        return of_pairs(input, other)
    if dim is None:
        return of_all.apply(input)
    dim = normalize_dim(dim, input.array.ndim)
    indices = index.apply(input, dim, keepdim)
    return result(along.apply(input, indices, dim), indices)


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
