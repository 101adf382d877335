"""Step parts05: The other diagonals

How much does a row change from one element to the next? Written as a matrix D, so that D x has the
differences, there are -1 on the diagonal and 1 beside it, one place higher. So far there is only
one diagonal, and of a batch only that of its last two dimensions.

Diagonal number k is the main diagonal of a smaller matrix: leave out the first k columns, or for a
negative k the first -k rows.

    k = 1      . 2 .            k = -1     . . .
               . . 6                       4 . .
               . . .                       . 8 .

    array[..., max(-k, 0):, max(k, 0):]          one slice for both signs

Other dimensions than the last two are moved to the end first. Both are views, so Diagonal stays
one, and PutDiagonal can write through it. Only diagonal_of changes; the Functions pass the place
on.

The trap: PyTorch's functions differ in their defaults. diagonal takes dimensions 0 and 1,
diag_embed the last two. Of a batch [b, n, n] you mean x.diagonal(dim1=-2, dim2=-1), and
x.diagonal() goes across the batch.

Changed: diagonal_of, Diagonal, PutDiagonal, diagonal, diag_embed, diag.
Try: give the upper diagonal of D three ones, as many as the lower one has. What does the error say?
"""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their operators and methods)
from tinytorch.ops.arguments import as_integer, as_shape
from tinytorch.ops.conversion import Clone
from tinytorch.ops.dims import normalize_dim, normalize_dims
from tinytorch.ops.shape import Reshape


def key_along(dim: int, part: Any) -> tuple:
    """The key that takes `part` (an index or a slice) of dimension `dim`, and all of the others."""
    return (slice(None),) * dim + (part, ...)


class Slice(Function):
    """y = x[key] for a key of integers, slices, None and ...: a view. The gradient of what the
    key leaves out is zero."""

    view = True

    def forward(ctx, x: Any, key: tuple) -> Any:
        ctx.shape, ctx.key = x.shape, key
        return x[key]

    def backward(ctx, g: Any) -> Any:
        return ctx.call(PutSlice, g, ctx.shape, ctx.key)


class PutSlice(Function):
    """y = zeros of a shape, with y[key] = x: the opposite of `Slice`."""

    def forward(ctx, x: Any, shape: tuple, key: tuple) -> Any:
        ctx.key = key
        out = ctx.xp.zeros(shape, x.dtype)
        out[key] = x
        return out

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Slice, g, ctx.key)


@tensor_method("select")
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """A view of the slice `index` along `dim`, without that dimension."""
    return Slice.apply(input, key_along(normalize_dim(dim, input.array.ndim), index))


class Repeat(Function):
    """y = x repeated `times` along each dimension, a copy. Backward sums over the repetitions."""

    def forward(ctx, x: Any, times: tuple[int, ...]) -> Any:
        pairs = zip(times, x.shape, strict=True)
        ctx.split = tuple(size for pair in pairs for size in pair)  # times, n, times, n, ...
        return ctx.xp.tile(x, times)

    def backward(ctx, g: Any) -> Any:
        return g.reshape(ctx.split).sum(axis=tuple(range(0, len(ctx.split), 2)))


@tensor_method("repeat")
def repeat(self: Tensor, *sizes: Any) -> Tensor:
    """A copy that holds the tensor `sizes[i]` times along dimension i; more sizes, more dims."""
    times, shape = as_shape(sizes), self.array.shape
    new = len(times) - len(shape)
    return Repeat.apply(Reshape.apply(self, (1,) * new + shape), times)


class Flip(Function):
    """y = x with the order of some dimensions reversed, a copy. The gradient is reversed too."""

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        return ctx.xp.flip(x, dims).copy()

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Flip, g, ctx.dims)


@tensor_method("flip")
def flip(input: Tensor, *sizes: Any, dims: Any = None) -> Tensor:
    """A copy with the order of the dimensions `dims` reversed."""
    dims = normalize_dims(as_shape(sizes if dims is None else (dims,)), input.array.ndim)
    return Flip.apply(input, dims) if input.array.ndim else Clone.apply(input)


class Roll(Function):
    """y = x with its elements moved along `dims`, cyclically; the gradient moves back."""

    def forward(ctx, x: Any, shifts: tuple[int, ...], dims: tuple[int, ...] | None) -> Any:
        ctx.shifts, ctx.dims = shifts, dims
        return ctx.xp.asarray(ctx.xp.roll(x, shifts, dims), order="C")

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Roll, g, tuple(-shift for shift in ctx.shifts), ctx.dims)


@tensor_method("roll")
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """A copy, moved by `shifts` along `dims`; what leaves at one end enters at the other.

    Without `dims` all elements are moved as one row.

    Raises:
        RuntimeError: there are not as many shifts as dims.
    """
    shifts, dims = as_shape((shifts,)), () if dims is None else as_shape((dims,))
    if len(shifts) == 1 and not dims:
        return Roll.apply(input, shifts, None)
    if len(shifts) != len(dims) or not shifts:
        raise RuntimeError(f"shifts and dimensions must align. shifts: {shifts}, dims: {dims}")
    if input.array.ndim == 0:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    return Roll.apply(input, shifts, tuple(normalize_dim(dim, input.array.ndim) for dim in dims))


def diagonal_of(xp: Any, array: Any, offset: int, dim1: int, dim2: int) -> Any:
    """A diagonal as a view that can be written to; it is the last dimension of the result."""
    array = xp.moveaxis(array, (dim1, dim2), (-2, -1))
    array = array[..., max(-offset, 0) :, max(offset, 0) :]
    n = min(array.shape[-2:])
    return xp.einsum("...ii->...i", array[..., :n, :n])


class Diagonal(Function):
    """y = the elements x[i, i + offset]: a view. The gradient is put there, among zeros."""

    view = True

    def forward(ctx, x: Any, *place: int) -> Any:
        ctx.shape, ctx.place = x.shape, place
        return diagonal_of(ctx.xp, x, *place)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(PutDiagonal, g, ctx.shape, *ctx.place)


class PutDiagonal(Function):
    """y = zeros of a shape, with x on a diagonal: the adjoint of `Diagonal`."""

    def forward(ctx, x: Any, shape: tuple, *place: int) -> Any:
        ctx.place = place
        out = ctx.xp.zeros(shape, x.dtype)
        diagonal_of(ctx.xp, out, *place)[...] = x
        return out

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Diagonal, g, *ctx.place)


@tensor_method("diagonal")
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonals in the plane of `dim1` and `dim2`, as the last dimension.

    A positive `offset` counts upwards from the main diagonal.

    Raises:
        RuntimeError: the two dimensions are the same.
    """
    return Diagonal.apply(
        input, as_integer(offset), *normalize_dims((dim1, dim2), input.array.ndim)
    )


@tensor_method("diag_embed")
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dimension of `input` on a diagonal: [..., n] gives [..., n, n]."""
    *shape, n = input.array.shape
    dims = normalize_dims((dim1, dim2), len(shape) + 2)
    for dim in sorted(dims):
        shape.insert(dim, n + abs(offset))
    return PutDiagonal.apply(input, tuple(shape), offset, *dims)


@tensor_method("diag")
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with `input` on a diagonal, or a copy of a diagonal of a matrix."""
    if input.array.ndim == 1:
        return diag_embed(input, diagonal)
    if input.array.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.array.ndim}D")
    return Clone.apply(Diagonal.apply(input, diagonal, 0, 1))


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad

    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], requires_grad=True)
    print("upper:", x.diagonal(1).tolist(), "lower:", x.diagonal(-1).tolist())
    # -> upper: [2.0, 6.0] lower: [4.0, 8.0]
    g = tensor([10.0, 20.0])
    print("gradient:", grad(x.diagonal(1), x, g)[0].tolist())
    # -> gradient: [[0.0, 10.0, 0.0], [0.0, 0.0, 20.0], [0.0, 0.0, 0.0]]

    v = tensor([1.0, 2.0], requires_grad=True)
    print("put there:", v.diag(1).tolist(), "gradient:", grad(v.diag(1), v, x.detach())[0].tolist())
    # -> put there: [[0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]] gradient: [2.0, 6.0]
    print("a copy:", x.diag(1)._base is None)  # -> a copy: True

    # D x: the differences of neighbours; the last row is left with -x.
    D = tensor([-1.0, -1.0, -1.0]).diag() + tensor([1.0, 1.0]).diag(1)
    print("D:", D.tolist())  # -> D: [[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [0.0, 0.0, -1.0]]
    print("differences:", (D * tensor([1.0, 4.0, 9.0])).sum(1).tolist())
    # -> differences: [3.0, 5.0, -9.0]

    batch = tensor(np.arange(18.0).reshape(2, 3, 3))
    print("of each matrix:", batch.diagonal(dim1=-2, dim2=-1).tolist())
    # -> of each matrix: [[0.0, 4.0, 8.0], [9.0, 13.0, 17.0]]
    print("across the batch:", batch.diagonal().tolist())
    # -> across the batch: [[0.0, 12.0], [1.0, 13.0], [2.0, 14.0]]
    print("at other dimensions:", tensor([[1.0, 2.0]]).diag_embed(0, 0, 1).shape)
    # -> at other dimensions: tinytorch.Size([2, 2, 1])
    try:
        batch.diag()
    except RuntimeError as error:
        print(error)  # -> diag(): Supports 1D or 2D tensors. Got 3D
