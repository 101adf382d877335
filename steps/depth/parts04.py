"""Step parts04: The diagonal: a stride of n + 1

To add 1 to each element x[i, i] of a matrix takes two selects for each i, in a loop. But the
diagonal has a stride too. In an n x n matrix one step to the right and one down is n + 1
places in memory:

    1 2 3
    4 5 6        memory  1 2 3 4 5 6 7 8 9        the diagonal: shape [3], stride 4
    7 8 9                ^       ^       ^

So it is a view, like a slice, and has the same pair of operations (step parts01):

    y = diagonal of x                 the diagonal gets g, the rest 0      Diagonal, PutDiagonal
    y = zeros, with x as diagonal     the diagonal of g                    PutDiagonal, Diagonal

NumPy has a diagonal, but it may not be written to. einsum, a notation for products of steps
matmul01 to matmul07 and einsum01 to einsum06, can read a diagonal as "ii->i", and gives a view that
may be. The `...` stand for further dimensions: a batch of matrices has a diagonal for each.

The trap: PyTorch has two names for two things. x.diagonal() is a view, and x.diag() of a matrix is
a copy; only a write into the former changes x. And diag() of a vector goes the other way, and makes
a matrix.

New: diagonal_of, Diagonal, PutDiagonal, diagonal, diag_embed, diag.
Try: use xp.diagonal(array) in diagonal_of. Where does it fail, in which of the two Functions?
"""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their operators and methods)
from tinytorch.ops.arguments import as_shape
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


def diagonal_of(xp: Any, array: Any) -> Any:
    """The diagonal of each matrix as a view that can be written to; the last dimension of the
    result."""
    n = min(array.shape[-2:])
    return xp.einsum("...ii->...i", array[..., :n, :n])


class Diagonal(Function):
    """y = the elements x[i, i]: a view. The gradient is put there, among zeros."""

    view = True

    def forward(ctx, x: Any) -> Any:
        ctx.shape = x.shape
        return diagonal_of(ctx.xp, x)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(PutDiagonal, g, ctx.shape)


class PutDiagonal(Function):
    """y = zeros of a shape, with x on a diagonal: the adjoint of `Diagonal`."""

    def forward(ctx, x: Any, shape: tuple) -> Any:
        out = ctx.xp.zeros(shape, x.dtype)
        diagonal_of(ctx.xp, out)[...] = x
        return out

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Diagonal, g)


@tensor_method("diagonal")
def diagonal(input: Tensor) -> Tensor:
    """A view of the diagonal of a matrix."""
    return Diagonal.apply(input)


@tensor_method("diag_embed")
def diag_embed(input: Tensor) -> Tensor:
    """Matrices with the last dimension of `input` on the diagonal: [..., n] gives [..., n, n]."""
    return PutDiagonal.apply(input, (*input.array.shape, input.array.shape[-1]))


@tensor_method("diag")
def diag(input: Tensor) -> Tensor:
    """A matrix with `input` on the diagonal, or a copy of the diagonal of a matrix."""
    if input.array.ndim == 1:
        return diag_embed(input)
    return Clone.apply(Diagonal.apply(input))


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad

    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], requires_grad=True)
    print("diagonal:", x.diagonal().tolist(), "stride:", x.diagonal().stride())
    # -> diagonal: [1.0, 5.0, 9.0] stride: (4,)
    g = tensor([1.0, 2.0, 3.0])
    print("gradient:", grad(x.diagonal(), x, g)[0].tolist())
    # -> gradient: [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]

    # A write into the view changes the matrix, a write into the copy does not.
    matrix = tensor([[1.0, 2.0], [3.0, 4.0]])
    matrix.diagonal().add_(1.0)
    matrix.diag().add_(100.0)
    print("written through the view only:", matrix.tolist())
    # -> written through the view only: [[2.0, 2.0], [3.0, 5.0]]
    try:
        np.diagonal(matrix.array)[0] = 7.0
    except ValueError as error:
        print("NumPy:", error)  # -> NumPy: assignment destination is read-only

    v = tensor([1.0, 2.0], requires_grad=True)
    g = tensor([[10.0, 20.0], [30.0, 40.0]])
    print("a matrix:", v.diag().tolist(), "gradient:", grad(v.diag(), v, g)[0].tolist())
    # -> a matrix: [[1.0, 0.0], [0.0, 2.0]] gradient: [10.0, 40.0]
    wide = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    print("of 2 x 3:", wide.diagonal().tolist(), "a batch:", diag_embed(wide).shape)
    # -> of 2 x 3: [1.0, 5.0] a batch: tinytorch.Size([2, 3, 3])
