"""The same elements in another shape or order: reshape, transpose and their kin."""

import math
import operator
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor_method
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
    def explain(cls, error: Exception, arrays: list) -> Exception:
        x, shape = arrays
        if isinstance(error, TypeError):
            return TypeError(f"reshape(): a shape is made of integers, got {shape}")
        return RuntimeError(f"shape '{list(shape)}' is invalid for input of size {x.size}")


@tensor_method("reshape")
def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """The elements of `input` in the shape `reshape(2, 3)`, `reshape((2, 3))` or `shape=(2, 3)`.

    One size may be -1: it follows from the others. The result shares the memory of `input` where
    that is possible. RuntimeError where the number of elements differs.
    """
    if shape is None:
        shape = sizes if len(sizes) != 1 or isinstance(sizes[0], int) else tuple(sizes[0])
    if shape and min(shape) < -1:
        raise RuntimeError(f"invalid shape dimension {min(shape)} of shape {list(shape)}")
    return Reshape.apply(input, shape)


@tensor_method("view")
def view(self: Tensor, *sizes: Any) -> Tensor:
    """`reshape` that never copies: RuntimeError where the new shape does not fit the memory."""
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
    """A view of `input` with `dim0` and `dim1` exchanged. IndexError for a wrong dimension."""
    ndim = input.array.ndim
    dim0, dim1 = normalize_dim(dim0, ndim), normalize_dim(dim1, ndim)
    return Transpose.apply(input, dim0, dim1) if ndim else Reshape.apply(input, ())


class Permute(Function):
    """y = x with its dimensions in the order `dims`: a view. The gradient goes back in order."""

    view = True

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        return ctx.xp.transpose(x, dims)

    def backward(ctx, g: Any) -> Any:
        back = sorted(range(len(ctx.dims)), key=ctx.dims.__getitem__)
        return ctx.call(Permute, g, tuple(back))


@tensor_method("permute")
def permute(input: Tensor, *sizes: Any, dims: Any = None) -> Tensor:
    """A view of `input` with its dimensions in another order: `x.permute(2, 0, 1)`.

    RuntimeError unless each dimension is named once.
    """
    dims, ndim = as_shape(sizes if dims is None else (dims,)), input.array.ndim
    if len(dims) != ndim:
        raise RuntimeError(f"permute: {ndim} dimensions cannot have the order {list(dims)}")
    return Permute.apply(input, normalize_dims(dims, ndim))


@tensor_method("t")
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; a vector as it is. RuntimeError for more dimensions."""
    if input.array.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return Transpose.apply(input, 0, 1) if input.array.ndim == 2 else input


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
    """A view with the dimensions `source` at the places `destination`, the others in order."""
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


@tensor_method("squeeze")
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """A view without the dimensions of size 1: all of them, or those named by `dim`."""
    shape = input.array.shape
    dims = range(len(shape)) if dim is None else normalize_dims(dim, len(shape))
    return Reshape.apply(input, tuple(n for i, n in enumerate(shape) if n != 1 or i not in dims))


@tensor_method("unsqueeze")
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A view with a new dimension of size 1 at the place `dim`."""
    shape = input.array.shape
    dim = normalize_dim(dim, len(shape) + 1)
    return Reshape.apply(input, (*shape[:dim], 1, *shape[dim:]))


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
    """How many elements of memory lie between neighbours, for each dimension or for one."""
    steps = tuple(step // self.array.itemsize for step in self.array.strides)
    return steps if dim is None else steps[normalize_dim(dim, len(steps))]


@tensor_method("is_contiguous")
def is_contiguous(self: Tensor) -> bool:
    """Whether the elements lie in memory one after the other, the last dimension fastest."""
    expected = self.array.itemsize
    for n, step in zip(reversed(self.array.shape), reversed(self.array.strides), strict=True):
        if n != 1 and step != expected:
            return self.array.size == 0
        expected *= n
    return True


@tensor_method("contiguous")
def contiguous(input: Tensor) -> Tensor:
    """The tensor itself if it is contiguous, else a copy that is."""
    return input if is_contiguous(input) else Clone.apply(input)


@tensor_method("ravel")
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension; the tensor itself, or a view, where that is possible."""
    return flatten(contiguous(input))


class Slice(Function):
    """y = x[key] for a key of integers, slices, None and ...: a view. The gradient of what the
    key leaves out is zero."""

    view = True

    def forward(ctx, x: Any, key: tuple) -> Any:
        ctx.shape, ctx.key = x.shape, key
        try:
            return x[key]
        except IndexError as error:
            raise IndexError(str(error).replace("axis", "dimension")) from None

    def backward(ctx, g: Any) -> Any:
        return ctx.call(PutSlice, g, ctx.shape, ctx.key)


class PutSlice(Function):
    """y = zeros (or `value`) of a shape, with y[key] = x: what `Slice` does, backwards."""

    def forward(ctx, x: Any, shape: tuple, key: tuple, value: Any = 0) -> Any:
        ctx.key = key
        out = ctx.xp.full(shape, value, x.dtype) if value else ctx.xp.zeros(shape, x.dtype)
        out[key] = x
        return out

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Slice, g, ctx.key)


@tensor_method("select")
def select(input: Tensor, dim: int, index: Any) -> Tensor:
    """A view of place `index` in dimension `dim`, without that dimension. IndexError outside."""
    if input.array.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, input.array.ndim)
    return Slice.apply(input, (slice(None),) * dim + (operator.index(index), ...))


@tensor_method("narrow")
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A view of the `length` places from `start` on in dimension `dim`. A negative start counts
    from the end. RuntimeError where the part reaches over the end, IndexError for a bad start."""
    if input.array.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if isinstance(start, Tensor) and (start.array.ndim or start.array.dtype.kind not in "iu"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    dim = normalize_dim(dim, input.array.ndim)
    start, size = operator.index(start), input.array.shape[dim]
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected [{-size}, {size}], but got {start})")
    start = start + size if start < 0 else start
    if length < 0 or start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return Slice.apply(input, (slice(None),) * dim + (slice(start, start + length), ...))


class Repeat(Function):
    """y = x repeated `times` along each dimension, a copy. Backward sums over the repetitions."""

    def forward(ctx, x: Any, times: tuple[int, ...]) -> Any:
        pairs = zip(times, x.shape, strict=True)
        ctx.split = tuple(size for pair in pairs for size in pair)  # times, n, times, n, ...
        return ctx.xp.tile(x, times)

    def backward(ctx, g: Any) -> Any:
        return g.reshape(ctx.split).sum(axis=tuple(range(0, len(ctx.split), 2)))


@tensor_method("repeat")
def repeat(self: Tensor, *sizes: Any, repeats: Any = None) -> Tensor:
    """A copy that holds the tensor `sizes[i]` times along dimension i; more sizes, more dims."""
    times, shape = as_shape(sizes if repeats is None else (repeats,)), self.array.shape
    new = len(times) - len(shape)
    if new < 0 or min(times, default=0) < 0:
        raise RuntimeError(f"repeat: {len(shape)} dimensions cannot be repeated {list(times)}")
    if not times:
        return Clone.apply(self)
    return Repeat.apply(Reshape.apply(self, (1,) * new + shape), times)


@tensor_method("tile")
def tile(input: Tensor, *sizes: Any, dims: Any = None) -> Tensor:
    """`repeat` that takes missing sizes in front as 1."""
    times = as_shape(sizes if dims is None else (dims,))
    return repeat(input, (1,) * (input.array.ndim - len(times)) + times)


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
    """y = x with its elements moved along `dims`, round the end; the gradient moves back."""

    def forward(ctx, x: Any, shifts: tuple[int, ...], dims: tuple[int, ...] | None) -> Any:
        ctx.shifts, ctx.dims = shifts, dims
        return ctx.xp.roll(x, shifts, dims)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Roll, g, tuple(-shift for shift in ctx.shifts), ctx.dims)


@tensor_method("roll")
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """A copy, moved by `shifts` along `dims`; what leaves at one end enters at the other.

    Without `dims` all elements are moved as one row. RuntimeError where the numbers differ.
    """
    shifts, dims = as_shape((shifts,)), () if dims is None else as_shape((dims,))
    if len(shifts) == 1 and not dims:
        return Roll.apply(input, shifts, None)
    if len(shifts) != len(dims) or not shifts:
        raise RuntimeError(f"shifts and dimensions must align. shifts: {shifts}, dims: {dims}")
    if input.array.ndim == 0:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    return Roll.apply(input, shifts, tuple(normalize_dim(dim, input.array.ndim) for dim in dims))


class Triangle(Function):
    """y = x on one side of diagonal number k and on it, zero on the other side."""

    def forward(ctx, x: Any, name: str, k: int) -> Any:
        if x.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        ctx.parameters = name, k
        return getattr(ctx.xp, name)(x, k)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Triangle, g, *ctx.parameters)


@tensor_method("tril")
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of each matrix; the other elements are zero."""
    return Triangle.apply(input, "tril", diagonal)


@tensor_method("triu")
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of each matrix; the other elements are zero."""
    return Triangle.apply(input, "triu", diagonal)


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
    """y = zeros of a shape, with x on a diagonal: what `Diagonal` does, backwards."""

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

    An `offset` above 0 is that far above the main diagonal. RuntimeError where the dims are one.
    """
    ndim = input.array.ndim
    a, b = normalize_dim(dim1, ndim), normalize_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return Diagonal.apply(input, offset, a, b)


@tensor_method("diag")
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with `input` on a diagonal, or a copy of a diagonal of a matrix."""
    if input.array.ndim == 1:
        n = input.array.size + abs(diagonal)
        return PutDiagonal.apply(input, (n, n), diagonal, 0, 1)
    if input.array.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.array.ndim}D")
    return Clone.apply(Diagonal.apply(input, diagonal, 0, 1))
