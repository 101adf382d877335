"""Step extremes03: Take along a dimension, and put back: a pair

Step 72d has the pair gather and scatter_add. For places of maxima and of sorted elements a faster
pair will do, as no place is taken twice: then to put is enough, and nothing has to be added.

    x  [[3 9 4], [8 1 8]]   at [1, 0]   ->   y  [9 8]             take
    gx [[0 g 0], [h 0 0]]   at [1, 0]   <-   g  [g h]             put into zeros

The backward of TakeAlong is PutAlong, and that of PutAlong is TakeAlong, so second derivatives are
there without another line. Sorting will need the same pair (step sorting01).

NumPy's take_along_axis wants an index with as many dimensions as x. An index that lacks `dim` takes
one element of each row: it gets the dimension for the call, and the result loses it again.

The trap: put overwrites. If an index appeared twice in a row, one of two gradients would be lost.
So these are for indices that differ, as places of maxima and of sorted elements do.

A 0-d tensor has one element: it is copied.

`saves = (1,)`: what is kept is argument 1, the index (step node02).

New: take_along, TakeAlong, PutAlong.
Try: take the index [[0, 0]] from the demo's row, and call backward. Is the gradient right?
"""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor
from tinytorch.ops import comparison  # noqa: F401  (its operators)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.reduction import Reduction, reduced_dims, reduction


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


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    x = tensor([[3.0, 9.0, 4.0], [8.0, 1.0, 8.0]], requires_grad=True)
    y = TakeAlong.apply(x, argmax(x, 1), 1)
    print("taken at", argmax(x, 1).tolist(), "->", y.tolist())  # -> taken at [1, 0] -> [9.0, 8.0]
    y.backward(tensor([10.0, 100.0]))
    print("put back:", x.grad.tolist())  # -> put back: [[0.0, 10.0, 0.0], [100.0, 0.0, 0.0]]

    # Several of a row, and what they were put into.
    row, index = tensor([[10.0, 20.0, 30.0]]), tensor([[2, 0]])
    taken = TakeAlong.apply(row, index, 1)
    print(taken.tolist(), "->", PutAlong.apply(taken, index, 1, (1, 3)).tolist())
    # -> [[30.0, 10.0]] -> [[10.0, 0.0, 30.0]]
    zero = tensor(7.0), tensor(0)
    print("0-d:", TakeAlong.apply(*zero, 0).item(), PutAlong.apply(*zero, 0, ()).item())
    # -> 0-d: 7.0 7.0

    z = tensor([[0.3, -1.2, 2.0], [0.1, 0.7, -0.4]], dtype=float64, requires_grad=True)
    for function in (
        lambda z: TakeAlong.apply(z * z, tensor([1, 0, 1]), 0),
        lambda z: PutAlong.apply(z * z, tensor([[0, 2, 3], [1, 0, 2]]), 1, (2, 4)),
    ):
        print(gradcheck(function, (z,)), gradgradcheck(function, (z,)))
        # -> True True
        # -> True True
