"""Step shape06: Shapes and dimensions that are refused

A matrix has two dimensions, and x.permute(0) orders one. The answer so far is NumPy's: "axes don't
match array". x.movedim(0, (0, 1)) complains about zip(). Worse are mistakes that say nothing: NumPy
takes any negative size for -1, so x.reshape(-2, 3) is a matrix [2, 3].

Each operation checks what it alone can know, before the array library is asked:

    reshape, view        sizes, none below -1       translate_error: the count does not match
    transpose            both dimensions exist
    permute              each dimension exactly once
    flatten              the start is not after the end

translate_error is the place for what forward raised (step errors02): it sees the error and the
arguments.

Two rare cases belong here. A tensor of 0 dimensions is treated as if it had one (step reduce02), so
its transpose(0, -1) is itself. And an empty tensor has no elements to walk between: NumPy gives
strides of 0, PyTorch those of a size of 1, and programs that print strides find PyTorch's.

The trap: `reshape(shape=(2, 3))` and `permute(dims=...)` are written in programs too. A function
that takes sizes one by one and also by name has to ask which of both came.

Changed: Reshape.translate_error, reshape, transpose, permute, movedim, flatten, stride.
Try: take translate_error away, and read NumPy's message.
"""

import math
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their operators and methods)
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.conversion import Clone
from tinytorch.ops.dims import normalize_dim, normalize_dims


class Reshape(Function):
    """y = the elements of x, in their order, in another shape. The gradient gets the old shape.

    A view where the memory allows it, else a copy.
    """

    view = True

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape = x.shape
        return x.reshape(shape)

    def backward(ctx, g: Any) -> Any:
        return g.reshape(ctx.shape)

    @classmethod
    def translate_error(cls, error: Exception, arrays: list) -> Exception:
        x, shape = arrays
        if isinstance(error, TypeError):
            return TypeError(f"reshape(): a shape is made of integers, got {shape}")
        return RuntimeError(f"shape '{list(shape)}' is invalid for input of size {x.size}")

    def name(ctx) -> str:
        return "ViewBackward0" if type(ctx) is Reshape else super().name()


class Squeeze(Reshape):
    """y = x without dimensions of size 1."""


class Unsqueeze(Reshape):
    """y = x with one more dimension of size 1."""


@tensor_method("reshape")
def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """The elements of `input` in the shape `reshape(2, 3)`, `reshape((2, 3))` or `shape=(2, 3)`.

    One size may be -1: it follows from the others. The result shares the memory of `input` where
    that is possible.

    Raises:
        RuntimeError: the number of elements differs.
        TypeError: there are no sizes, as in `reshape()`; `reshape(())` has the shape ().
    """
    if shape is None:
        if not sizes:
            raise TypeError("reshape() is missing its sizes")
        one = len(sizes) == 1 and isinstance(sizes[0], (tuple, list))
        shape = tuple(sizes[0]) if one else sizes
    if shape and min(shape) < -1:
        raise RuntimeError(f"invalid shape dimension {min(shape)} of shape {list(shape)}")
    return Reshape.apply(input, shape)


@tensor_method("view")
def view(self: Tensor, *sizes: Any) -> Tensor:
    """`reshape` that never copies.

    Raises:
        RuntimeError: the new shape does not fit the memory.
    """
    out = reshape(self, *sizes)
    if out._base is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return out


class Transpose(Function):
    """y = x with two dimensions exchanged: a view. The gradient exchanges them back."""

    view = True

    def forward(ctx, x: Any, dim0: int, dim1: int) -> Any:
        ctx.dims = dim0, dim1
        return x.swapaxes(dim0, dim1)

    def backward(ctx, g: Any) -> Any:
        return g.swapaxes(*ctx.dims)


@tensor_method("transpose", "swapaxes")
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """A view of `input` with `dim0` and `dim1` exchanged.

    Raises:
        IndexError: there is no such dimension.
    """
    ndim = input.array.ndim
    dim0, dim1 = normalize_dim(dim0, ndim), normalize_dim(dim1, ndim)
    return Transpose.apply(input, dim0, dim1) if ndim else Reshape.apply(input, ())


class Permute(Function):
    """y = x, its dimensions in the order `dims`: a view. The gradient gets the old order back."""

    view = True

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        return x.transpose(dims)

    def backward(ctx, g: Any) -> Any:
        back = sorted(range(len(ctx.dims)), key=ctx.dims.__getitem__)
        return ctx.call(Permute, g, tuple(back))


@tensor_method("permute")
def permute(input: Tensor, *sizes: Any, dims: Any = None) -> Tensor:
    """A view of `input` with its dimensions in another order: `x.permute(2, 0, 1)`.

    Raises:
        RuntimeError: a dimension is missing or named twice.
        TypeError: no order is given.
    """
    if not sizes and dims is None:
        raise TypeError("permute() missing 1 required positional argument: 'dims'")
    dims, ndim = as_shape(sizes if dims is None else (dims,)), input.array.ndim
    if len(dims) != ndim:
        raise RuntimeError(f"permute: {ndim} dimensions cannot have the order {list(dims)}")
    return Permute.apply(input, normalize_dims(dims, ndim))


@tensor_method("T")
@property
def matrix_transpose(self: Tensor) -> Tensor:
    """The tensor with its dimensions in reverse order; for a matrix its transpose."""
    if self.array.ndim == 2:
        return Transpose.apply(self, 0, 1)
    return Permute.apply(self, tuple(reversed(range(self.array.ndim))))


@tensor_method("mT")
@property
def matrices_transpose(self: Tensor) -> Tensor:
    """A batch of matrices, each one transposed: the last two dimensions exchanged."""
    return Transpose.apply(self, -2, -1)


@tensor_method("movedim")
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """A view with the dimensions `source` moved to `destination`, the others in order."""
    ndim = input.array.ndim
    source, destination = normalize_dims(source, ndim), normalize_dims(destination, ndim)
    if len(source) != len(destination):
        raise RuntimeError(f"movedim: source {source} and destination {destination} do not match")
    order = [dim for dim in range(ndim) if dim not in source]
    for place, dim in sorted(zip(destination, source, strict=True)):
        order.insert(place, dim)
    return Permute.apply(input, tuple(order[:ndim]))


@tensor_method("squeeze")
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """A view without the dimensions of size 1: all of them, or those named by `dim`."""
    shape = input.array.shape
    dims = range(len(shape)) if dim is None else normalize_dims(dim, len(shape))
    return Squeeze.apply(input, tuple(n for i, n in enumerate(shape) if n != 1 or i not in dims))


@tensor_method("unsqueeze")
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A view with a new dimension of size 1 at position `dim`."""
    shape = input.array.shape
    dim = normalize_dim(dim, len(shape) + 1)
    return Unsqueeze.apply(input, (*shape[:dim], 1, *shape[dim:]))


@tensor_method("flatten")
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from `start_dim` to `end_dim` as one; a 0-d tensor becomes 1-d."""
    shape = input.array.shape
    start, end = normalize_dim(start_dim, len(shape)), normalize_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end and shape:
        return input
    size = math.prod(shape[start : end + 1])
    return Reshape.apply(input, (*shape[:start], size, *shape[end + 1 :]))


@tensor_method("stride")
def stride(self: Tensor, dim: int | None = None) -> Any:
    """How many elements of memory lie from one index to the next, for each dimension or for one."""
    steps = tuple(step // self.array.itemsize for step in self.array.strides)
    if not self.array.size:  # then NumPy's are 0
        sizes = [n or 1 for n in self.array.shape]
        steps = tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
    return steps if dim is None else steps[normalize_dim(dim, len(steps))]


@tensor_method("is_contiguous")
def is_contiguous(self: Tensor) -> bool:
    """Whether the elements lie in memory row by row, without gaps."""
    return self.array.flags.c_contiguous


@tensor_method("contiguous")
def contiguous(input: Tensor) -> Tensor:
    """The tensor itself if it is contiguous, else a copy that is."""
    return input if is_contiguous(input) else Clone.apply(input, "C")


if __name__ == "__main__":
    import numpy as np

    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    try:
        x.array.transpose((0,))
    except ValueError as error:
        print("NumPy:", error)  # -> NumPy: axes don't match array

    WRONG = {
        "reshape(4, 2)": lambda: x.reshape(4, 2),
        "reshape(-2, 3)": lambda: x.reshape(-2, 3),
        "reshape(2.0, 3)": lambda: x.reshape(2.0, 3),
        "view()": lambda: tensor(7.0).view(),
        "transpose(0, 2)": lambda: x.transpose(0, 2),
        "permute(0)": lambda: x.permute(0),
        "permute(0, 0)": lambda: x.permute(0, 0),
        "permute()": lambda: x.permute(),
        "movedim(0, (0, 1))": lambda: x.movedim(0, (0, 1)),
        "flatten(1, 0)": lambda: x.flatten(1, 0),
    }
    for call, wrong in WRONG.items():
        try:
            wrong()
        except (RuntimeError, TypeError, IndexError) as error:
            print(f"{call}: {type(error).__name__}: {error}")
    # -> reshape(4, 2): RuntimeError: shape '[4, 2]' is invalid for input of size 6
    # -> reshape(-2, 3): RuntimeError: invalid shape dimension -2 of shape [-2, 3]
    # -> reshape(2.0, 3): TypeError: reshape(): a shape is made of integers, got (2.0, 3)
    # -> view(): TypeError: reshape() is missing its sizes
    # -> transpose(0, 2): IndexError: Dimension out of range ... [-2, 1], but got 2)
    # -> permute(0): RuntimeError: permute: 2 dimensions cannot have the order [0]
    # -> permute(0, 0): RuntimeError: a dim appears multiple times in the list of dims (0, 0)
    # -> permute(): TypeError: permute() missing 1 required positional argument: 'dims'
    # -> movedim(0, (0, 1)): RuntimeError: movedim: source (0,) and destination (0, 1) do not match
    # -> flatten(1, 0): RuntimeError: flatten() has invalid args: start_dim cannot come after ...

    # Sizes and dimensions by name.
    print(x.reshape(shape=(3, 2)).shape, x.permute(dims=(1, 0)).shape)
    # -> tinytorch.Size([3, 2]) tinytorch.Size([3, 2])

    # No dimension, and no element.
    one = tensor(7.0)
    print(one.transpose(0, -1).shape, one.movedim(0, -1).shape)
    # -> tinytorch.Size([]) tinytorch.Size([])
    empty = tensor(np.zeros((2, 0, 3)))
    print("NumPy:", empty.array.strides, "ours:", empty.stride(), "of one dimension:", x.stride(-2))
    # -> NumPy: (0, 0, 0) ours: (3, 3, 1) of one dimension: 3
