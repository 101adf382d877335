"""Step extremes04: max in three forms

PyTorch's max is three functions under one name, and programs use all of them:

    max(x)          the largest element of all             equal ones share the gradient, as amax
    max(x, 1)       (values, indices) of each row          the first one gets the gradient
    max(x, y)       the larger of each pair                maximum, step elementwise09

The second returns two tensors, since a program that asks for the largest score mostly wants its
class too. The two are a named tuple: values, indices = max(x, 1), or max(x, 1).values.
`named_result` makes its class, which prints as in PyTorch.

Values come from indices: argmax, then TakeAlong. So the gradient goes to the one place that was
reported, also in a tie. That is where amax and max differ: one shares, the other chooses.

The second argument decides which form is meant: a tensor means pairs. `max_or_min` makes this
choice for both functions.

The trap: `max` and `min` now hide Python's own in this module.

New: named_result, MaxResult, MinResult, max_or_min, max, min.
Try: look at grad_fn of both parts of max(x, 1), for an x that requires grad.
"""

import collections
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor
from tinytorch.ops import comparison  # noqa: F401  (its operators)
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


def take_along(x: Any, index: Any, dim: int, xp: Any) -> Any:
    """The elements of x at `index` along `dim`, in the shape of the index."""
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


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core import printing  # noqa: F401  (the repr of a tensor)
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    def gradient(function, data):
        x = tensor(data, requires_grad=True)
        function(x).backward()
        return x.grad.tolist()

    x = tensor([[3.0, 9.0, 4.0], [8.0, 1.0, 8.0]])
    values, indices = max(x, 1)
    print("largest of each row:", values.tolist(), "at", indices.tolist())
    # -> largest of each row: [9.0, 8.0] at [1, 0]
    print(min(x, 0))
    # -> tinytorch.return_types.min(
    # -> values=tensor([3., 1., 4.]),
    # -> indices=tensor([0, 1, 0]))
    print("of all:", max(x).item(), " of pairs:", max(x, tensor(5.0)).tolist())
    # -> of all: 9.0  of pairs: [[5.0, 9.0, 5.0], [8.0, 5.0, 8.0]]
    print("by keyword:", min(x, other=tensor([1.0, 2.0, 3.0])).tolist())
    # -> by keyword: [[1.0, 2.0, 3.0], [1.0, 1.0, 3.0]]

    # A tie: shared by all, given to the first one by max along a dimension.
    tie = [8.0, 1.0, 8.0]
    print("max of all:", gradient(max, tie), " as amax:", gradient(amax, tie))
    # -> max of all: [0.5, 0.0, 0.5]  as amax: [0.5, 0.0, 0.5]
    print("max(dim) chooses:", gradient(lambda x: max(x, 0).values, tie))
    # -> max(dim) chooses: [1.0, 0.0, 0.0]

    z = tensor([[0.3, -1.2, 2.0], [0.1, 0.7, -0.4]], dtype=float64, requires_grad=True)
    for function in (lambda z: max(z * z, 1).values, lambda z: min(z, 0, keepdim=True)[0]):
        print(gradcheck(function, (z,)), gradgradcheck(function, (z,)))
        # -> True True
        # -> True True
