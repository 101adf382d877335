"""Step 61g: Views: reshape, transpose, permute

A picture of 8 x 8 points is to enter a matrix product as one row of 64. So far a tensor keeps the
shape it was made with. Copying the elements would cost time and memory for nothing: they already
lie in one row. An array is such a row, a shape, and strides, which say how far to walk in memory
for one step in each dimension:

    place of x[i, j] = i * stride[0] + j * stride[1]

For [2, 3] the strides are (3, 1). Swap the sizes and the strides, and the same memory shows the
transpose. Such a result is called a view, or zero-copy: no element is moved. Reshape, transpose and
permute compute nothing, and neither do their gradients, which only take back the old shape or the
old order. The old order is the inverse permutation. A swap of two dimensions is its own inverse;
the inverse of (1, 2, 0) is (2, 0, 1).

Three traps:

- x.reshape(3, 2) and x.T have the same shape and different elements. reshape keeps the order in
  which the elements are read, row after row. Nothing complains if you take the wrong one.
- After a transpose, the order of reading is not the order in memory, and no strides can describe
  x.T.reshape(6). There `reshape` makes a copy and says nothing; `view` raises. If you want to write
  into the result and so into x, use `view`. This is why PyTorch has both.
- squeeze() removes all dimensions of size 1. One day a batch (samples that are computed together)
  holds a single sample, and squeeze() removes its dimension too: name the one you mean.

A write into a view is a write into x, and the graph knows. The in-place operations were built for
that: `view = True` is all that an operation has to say.

Three operations do nearly all the work: most functions here call one of them under another name.

Changed: a new module, shape.py, finished here. New: Reshape, Transpose, Permute, and the functions
that PyTorch builds from them.
Try: let Permute.backward use ctx.dims itself. A swap such as (1, 0) stays right, (1, 2, 0) fails.
"""

import math
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their operators and methods)
from tinytorch.ops.broadcast import as_shape
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
    """
    if shape is None:
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


@tensor_method("transpose", "swapaxes", "swapdims")
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


@tensor_method("t")
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; a vector is returned as it is.

    Raises:
        RuntimeError: there are more than two dimensions.
    """
    if input.array.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return transpose(input, 0, 1) if input.array.ndim == 2 else Reshape.apply(input, input.shape)


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
    if self.array.ndim < 2:
        raise RuntimeError(f"mT is only supported on (batches of) matrices, not on {self.ndim}-D")
    return Transpose.apply(self, -2, -1)


@tensor_method("movedim", "moveaxis")
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


@tensor_method("view_as")
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """`view` in the shape of `other`."""
    return view(self, other.array.shape)


@tensor_method("reshape_as")
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`reshape` in the shape of `other`."""
    return reshape(self, other.array.shape)


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


@tensor_method("unflatten")
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """Dimension `dim` as several dimensions of `sizes`, one of which may be -1."""
    shape, sizes = input.array.shape, as_shape((sizes,))
    dim = normalize_dim(dim, len(shape))
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    return Reshape.apply(input, (*shape[:dim], *sizes, *shape[dim + 1 :]))


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


@tensor_method("ravel")
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension; the tensor itself, or a view, where that is possible."""
    return flatten(contiguous(input))


if __name__ == "__main__":
    import timeit

    import numpy as np

    from tinytorch.autograd.gradcheck import gradcheck
    from tinytorch.core.dtype import float64

    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    print("reshape:  ", x.reshape(3, 2).tolist())
    # -> reshape:   [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    print("transpose:", x.T.tolist())  # -> transpose: [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    print("strides:", x.stride(), "of the transpose:", x.T.stride())
    # -> strides: (3, 1) of the transpose: (1, 3)

    # The gradient goes back to where its element stands in x.
    (x.T * tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).sum().backward()
    print("gradient of x:", x.grad.tolist())  # -> gradient of x: [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]

    # View or copy?
    print("T shares the memory:", np.shares_memory(x.array, x.T.array))
    # -> T shares the memory: True
    print("T.reshape(6) does not:", np.shares_memory(x.array, x.T.reshape(6).array))
    # -> T.reshape(6) does not: False
    try:
        x.T.view(6)
    except RuntimeError as error:
        print(str(error).partition(" (")[0])
        # -> view size is not compatible with input tensor's size and stride
    print("contiguous:", x.is_contiguous(), x.T.is_contiguous(), x.T.contiguous().stride())
    # -> contiguous: True False (2, 1)

    # A write into a view is a write into its base, and y's gradient knows that it was doubled.
    x.grad = None
    y = x * 1.0
    y.view(6).mul_(2.0)
    y.sum().backward()
    print("y:", y.tolist(), "gradient:", x.grad.tolist()[0])
    # -> y: [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]] gradient: [2.0, 2.0, 2.0]

    # Three dimensions in another order, and back.
    pictures = tensor(np.arange(24.0).reshape(2, 3, 4), dtype=float64, requires_grad=True)
    print("permute:", pictures.permute(1, 2, 0).shape, "movedim:", pictures.movedim(0, -1).shape)
    # -> permute: tinytorch.Size([3, 4, 2]) movedim: tinytorch.Size([3, 4, 2])
    print("inverse order found:", gradcheck(lambda x: x.permute(1, 2, 0), pictures))
    # -> inverse order found: True

    # Names for everyday uses.
    print("rows for a network:", pictures.flatten(1).shape)
    # -> rows for a network: tinytorch.Size([2, 12])
    print("each matrix transposed:", pictures.mT.shape)
    # -> each matrix transposed: tinytorch.Size([2, 4, 3])
    column = tensor([1.0, 2.0]).unsqueeze(1)
    print("a column:", column.tolist(), "and back:", column.squeeze(1).tolist())
    # -> a column: [[1.0], [2.0]] and back: [1.0, 2.0]
    one_sample = tensor([[[7.0], [8.0]]])
    print("squeeze() took the batch too:", one_sample.squeeze().shape, one_sample.squeeze(2).shape)
    # -> squeeze() took the batch too: tinytorch.Size([2]) tinytorch.Size([1, 2])

    large = tensor(np.zeros((1000, 1000)))
    view_time = min(timeit.repeat(lambda: large.T, number=20))
    copy_time = min(timeit.repeat(lambda: large.T.contiguous(), number=20))
    print(f"a million elements: a view takes 1/{copy_time / view_time:.0f} of a copy's time")
    # -> ...
