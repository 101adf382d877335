"""Step parts09: Padding with any number

The largest neighbour of each element, at the edges too: the row gets a frame, one element at each
end, and then two shifted slices are compared. A frame of zeros is wrong if all numbers are
negative: the demo finds a largest neighbour of 0 where there is none. The frame has to be -inf,
which never wins.

PutSlice of step parts01 makes the frame: zeros of a larger shape, with x in the middle. Any other
number will do as well. It is a constant, so it has no derivative, and backward remains a Slice.

    y = value everywhere,  y[key] = x           dL/dx = g[key]

The map is not linear any more: x = 0 does not give 0. It is linear plus a constant, which is called
affine, and the adjoint test of step parts02 applies to the linear part alone.

Why keep zeros at all, if full can do both? The operating system hands out new memory that is
already zero, and `zeros` need not write it; `full` writes each element.

Changed: PutSlice.forward takes the number.
Try: a frame of +inf, and min instead of max.
"""

from typing import Any

from tinytorch.autograd.inplace import in_place
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
        try:
            return x[key]
        except IndexError as error:
            text = str(error).replace("array", "tensor").replace("axis", "dimension")
            raise IndexError(text) from None

    def backward(ctx, g: Any) -> Any:
        return ctx.call(PutSlice, g, ctx.shape, ctx.key)

    def name(ctx) -> str:
        """PyTorch splits a key into several calls; this is the name of the last one."""
        kinds = [type(part) for part in ctx.key if part not in (..., slice(None))]
        names = {int: "SelectBackward0", type(None): "UnsqueezeBackward0"}
        return names.get(kinds[-1] if kinds else slice, "SliceBackward0")


class PutSlice(Function):
    """y = zeros (or `value`) of a shape, with y[key] = x: the adjoint of `Slice`."""

    def forward(ctx, x: Any, shape: tuple, key: tuple, value: Any = 0) -> Any:
        ctx.key = key
        out = ctx.xp.full(shape, value, x.dtype) if value else ctx.xp.zeros(shape, x.dtype)
        out[key] = x
        return out

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Slice, g, ctx.key)


@tensor_method("select")
def select(input: Tensor, dim: int, index: Any) -> Tensor:
    """A view of the slice `index` along `dim`, without that dimension.

    Raises:
        IndexError: there is no such slice.
    """
    if input.array.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, input.array.ndim)
    return Slice.apply(input, key_along(dim, as_integer(index)))


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
    return Repeat.apply(Reshape.apply(self, (1,) * new + shape), times)


@tensor_method("tile")
def tile(input: Tensor, *sizes: Any, dims: Any = None) -> Tensor:
    """`repeat`, where missing sizes in front count as 1."""
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
    return Triangle.apply(input, "tril", as_integer(diagonal))


@tensor_method("triu")
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of each matrix; the other elements are zero."""
    return Triangle.apply(input, "triu", as_integer(diagonal))


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


tril_ = tensor_method("tril_")(in_place(tril))


triu_ = tensor_method("triu_")(in_place(triu))


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.ops.elementwise import maximum

    x = tensor([-5.0, -1.0, -2.0, -4.0], requires_grad=True)

    def largest_neighbour(x, value):
        framed = PutSlice.apply(x, (6,), (slice(1, 5),), value)
        return maximum(Slice.apply(framed, (slice(0, 4),)), Slice.apply(framed, (slice(2, 6),)))

    print("zeros:", largest_neighbour(x, 0).tolist())  # -> zeros: [0.0, -2.0, -1.0, 0.0]
    inf = float("inf")
    print("-inf: ", largest_neighbour(x, -inf).tolist())  # -> -inf:  [-1.0, -2.0, -1.0, -2.0]

    # The gradient of the frame goes nowhere: with zeros, the two elements at the ends get less.
    g = tensor([1.0, 10.0, 100.0, 1000.0])
    print("zeros:", grad(largest_neighbour(x, 0), x, g)[0].tolist())
    # -> zeros: [0.0, 100.0, 10.0, 0.0]
    print("-inf: ", grad(largest_neighbour(x, -inf), x, g)[0].tolist())
    # -> -inf:  [0.0, 101.0, 1010.0, 0.0]
