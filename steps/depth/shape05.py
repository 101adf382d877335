"""Step shape05: Dimensions of size 1, and flatten

Each row of a table is to be divided by its own largest element. The maxima are a vector [2], the
table is [2, 3], and broadcasting aligns at the right: 2 against 3, an error. With a square table
there is no error, and each column is divided instead. The vector has to become a column [2, 1].

A dimension of size 1 can be put in or taken out anywhere, without touching memory: the index of
that dimension is always 0, so its stride is never used.

    maxima.unsqueeze(1)    [2] -> [2, 1]
    column.squeeze(1)      [2, 1] -> [2]

The other everyday shape is "one row for each sample", [100, 8, 8] -> [100, 64]: flatten merges
neighbouring dimensions.

The trap: squeeze() without a dimension removes all of size 1. One day a batch (samples that are
computed together) holds a single sample, and squeeze() removes its dimension too. Name the one you
mean.

All three are a Reshape. So that the graph says what the program has written, each has a class of
its own, since a node is named after its class. (PyTorch calls a reshape that is a view
ViewBackward0.)

New: Reshape.name, Squeeze, Unsqueeze, squeeze, unsqueeze, flatten.
Try: divide by the maxima of a square table without unsqueeze, and look for an error.
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

    def name(ctx) -> str:
        return "ViewBackward0" if type(ctx) is Reshape else super().name()


class Squeeze(Reshape):
    """y = x without dimensions of size 1."""


class Unsqueeze(Reshape):
    """y = x with one more dimension of size 1."""


@tensor_method("reshape")
def reshape(input: Tensor, *sizes: Any) -> Tensor:
    """The elements of `input` in the shape `reshape(2, 3)` or `reshape((2, 3))`.

    One size may be -1: it follows from the others. The result shares the memory of `input` where
    that is possible.
    """
    one = len(sizes) == 1 and isinstance(sizes[0], (tuple, list))
    return Reshape.apply(input, tuple(sizes[0]) if one else sizes)


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
    """A view of `input` with `dim0` and `dim1` exchanged."""
    return Transpose.apply(input, dim0, dim1)


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
def permute(input: Tensor, *sizes: Any) -> Tensor:
    """A view of `input` with its dimensions in another order: `x.permute(2, 0, 1)`."""
    return Permute.apply(input, normalize_dims(as_shape(sizes), input.array.ndim))


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
    order = [dim for dim in range(ndim) if dim not in source]
    for place, dim in sorted(zip(destination, source, strict=True)):
        order.insert(place, dim)
    return Permute.apply(input, tuple(order))


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
    if start == end and shape:
        return input
    size = math.prod(shape[start : end + 1])
    return Reshape.apply(input, (*shape[:start], size, *shape[end + 1 :]))


@tensor_method("stride")
def stride(self: Tensor) -> tuple[int, ...]:
    """How many elements of memory lie from one index to the next, for each dimension."""
    return tuple(step // self.array.itemsize for step in self.array.strides)


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

    from tinytorch.autograd.gradcheck import gradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.minmax import amax

    table = tensor([[1.0, 2.0, 4.0], [3.0, 6.0, 6.0]], dtype=float64, requires_grad=True)
    maxima = amax(table, 1)
    try:
        table / maxima
    except RuntimeError as error:
        print("RuntimeError:", str(error).partition(" at ")[0])
        # -> RuntimeError: The size of tensor a (3) must match the size of tensor b (2)
    print((table / maxima.unsqueeze(1)).tolist())  # -> [[0.25, 0.5, 1.0], [0.5, 1.0, 1.0]]

    column = maxima.unsqueeze(-1)
    print("a column:", column.tolist(), "and back:", column.squeeze(1).tolist())
    # -> a column: [[4.0], [6.0]] and back: [4.0, 6.0]
    one_sample = tensor([[[7.0], [8.0]]])
    print("squeeze() took the batch too:", one_sample.squeeze().shape, one_sample.squeeze(2).shape)
    # -> squeeze() took the batch too: tinytorch.Size([2]) tinytorch.Size([1, 2])

    pictures = tensor(np.zeros((100, 8, 8)))
    print("a row for each:", pictures.flatten(1).shape, "all:", pictures.flatten().shape)
    # -> a row for each: tinytorch.Size([100, 64]) all: tinytorch.Size([6400])
    print("nothing to merge:", pictures.flatten(1, 1) is pictures)  # -> nothing to merge: True

    views = (column, column.squeeze(), table.flatten())
    print("the graph says:", *(view.grad_fn.name() for view in views))
    # -> the graph says: UnsqueezeBackward0 SqueezeBackward0 ViewBackward0
    print("derivatives:", gradcheck(lambda x: x.flatten() * x.unsqueeze(0).flatten(1), table))
    # -> derivatives: True
