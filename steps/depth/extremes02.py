"""Step extremes02: argmax and argmin: dimensions, nothing, ties

Step 38d has an argmax for one purpose, to count right answers. This one takes what PyTorch's takes.

Without `dim`, the place is counted in the flattened tensor: in a [2, 3] tensor, 4 is row 1, column
1. With keepdim, the result gets its lost dimension back with size 1, or all of them. In a tie the
first one counts.

The sum of no elements is 0, but their maximum is not defined, and NumPy raises a ValueError.
PyTorch raises an IndexError if a dimension is given, and otherwise an error that depends on the
function. `check_not_empty` does the same for amax and argmax.

Two conventions of PyTorch: argmax of booleans is refused, as it has no kernel for them. And a 0-d
tensor counts as a row of one element (step reduce02): its place is 0.

The trap: argmax(x) == target compares a place in all of x with a class. A batch needs argmax(x, 1).

Changed: Amax.forward. New: check_not_empty, ArgMax, ArgMin, arg_extreme, argmax, argmin.
Try: leave the check out of ArgMax.forward. Which error do you see in its place?
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
    from tinytorch.core.tensor import tensor

    x = tensor([[3.0, 9.0, 4.0], [8.0, 1.0, 8.0]], requires_grad=True)
    print(
        "of all:",
        argmax(x).item(),
        " of rows:",
        argmax(x, 1).tolist(),
        argmax(x, -1, True).tolist(),
    )
    # -> of all: 1  of rows: [1, 0] [[1], [0]]
    print(
        "the smallest of each column:", argmin(x, 0).tolist(), list(argmin(x, keepdim=True).shape)
    )
    # -> the smallest of each column: [0, 1, 0] [1, 1]
    print("requires grad:", argmax(x).requires_grad, argmax(x).dtype)
    # -> requires grad: False tinytorch.int64
    print("0-d:", argmax(tensor(3.0), 0).item())  # -> 0-d: 0

    right = argmax(x, 1) == tensor([1, 2])
    print("right:", right.tolist())  # -> right: [True, False]

    empty = tensor([[], []])
    wrong = (
        lambda: amax(empty),
        lambda: amax(empty, 1),
        lambda: argmax(empty),
        lambda: argmax(x > 0),
    )
    for call in wrong:
        try:
            call()
        except (RuntimeError, IndexError) as error:
            print(f"{type(error).__name__}: {error}")
            # -> RuntimeError: max(): Expected reduction dim to be specified, and ... is [2, 0]
            # -> IndexError: max(): Expected reduction dim to be specified, and ... is [2, 0]
            # -> IndexError: argmax(): Expected reduction dim to be specified, and ... is [2, 0]
            # -> RuntimeError: argmax(): does not support bool input
