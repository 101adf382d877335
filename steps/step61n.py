"""Step 61n: Slices, repetitions, flips and diagonals

Step 61g moved all elements and lost none. Most operations on shapes are not like that: a slice
leaves elements out, `repeat` writes them several times, a diagonal picks a few. What happens to the
gradient? One sentence covers them all. What was moved is moved back, what was left out gets zero,
what was repeated is added up:

    y = x[1:3]           x[1:3] gets g, the rest 0          Slice    and PutSlice
    y = diagonal of x    the diagonal gets g, the rest 0    Diagonal and PutDiagonal
    y = x repeated       the sum over the repetitions       Repeat
    y = x reversed       g reversed                         Flip
    y = x rolled by k    g rolled by -k                     Roll
    y = lower triangle   the lower triangle of g            Triangle

Each of these is linear: y = A x for a matrix A of zeros and ones that is never written down. The
gradient is A^T g; the operation A^T is called the adjoint of A. Picking elements out is also called
a gather, and its adjoint, which puts them back in their places, a scatter. Whether the code for A
and the code for A^T match can be tested without any derivative. For all x and g

    (A x) . g = x . (A^T g)

which is known as the dot-product test, or adjoint test. A^T is such an operation again. So each
backward is one call, and the second derivative, the gradient of that call, needs no further code.

Three traps:

- repeat copies. If the repetition is only an input to further arithmetic, `expand` gives it with a
  stride of 0, and takes no memory.
- NumPy's flip is a view with a negative stride. PyTorch has no negative strides: flip copies.
- diagonal() is a view, and diag() of a matrix is a copy: only a write into the former changes x.

Small parts are taken in large numbers: a loader asks for x[i] 64 times for one batch. So where no
gradient is wanted, Slice.apply makes the view alone: no node, in half the time.

Changed: a new module, parts.py, finished here. New: Slice, Repeat, Flip, Roll, Triangle, Diagonal
and the functions made of them.
Try: roll the gradient by +k instead of -k in Roll.backward. Half a turn stays right.
"""

from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their operators and methods)
from tinytorch.ops.broadcast import as_integer, as_shape
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
    return Diagonal.apply(input, offset, *normalize_dims((dim1, dim2), input.array.ndim))


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
    import numpy as np

    from tinytorch.autograd.engine import grad
    from tinytorch.core.dtype import float64

    x = tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    g = tensor([10.0, 20.0])
    part = Slice.apply(x, (slice(1, 3),))
    print("slice:", part.tolist(), "gradient:", grad(part, x, g)[0].tolist())
    # -> slice: [2.0, 3.0] gradient: [0.0, 10.0, 20.0, 0.0]

    g = tensor([1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0])
    print("repeat:", x.repeat(2).tolist(), "gradient:", grad(x.repeat(2), x, g)[0].tolist())
    # -> repeat: [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0] gradient: [11.0, 22.0, 33.0, 44.0]

    g = tensor([1.0, 0.0, 0.0, 0.0])
    print("roll:", x.roll(1).tolist(), "gradient:", grad(x.roll(1), x, g)[0].tolist())
    # -> roll: [4.0, 1.0, 2.0, 3.0] gradient: [0.0, 0.0, 0.0, 1.0]

    # The adjoint test, with random x and g: (A x) . g = x . (A^T g).
    rng = np.random.default_rng(0)
    operations = {
        "select": lambda x: x.select(0, 2),
        "slice": lambda x: Slice.apply(x, key_along(1, slice(1, 3))),
        "diagonal": lambda x: x.diagonal(1),
        "repeat": lambda x: x.repeat(2, 1, 2),
        "flip": lambda x: x.flip(0, 1),
        "roll": lambda x: x.roll((1, 2), (0, 1)),
        "tril": lambda x: x.tril(),
        "diag": lambda x: x.select(0, 0).diag(-1),
    }
    for name, operation in operations.items():
        x = tensor(rng.standard_normal((3, 4)), dtype=float64, requires_grad=True)
        y = operation(x)
        g = tensor(rng.standard_normal(y.shape), dtype=float64)
        left, right = (y * g).sum().item(), (x * grad(y, x, g)[0]).sum().item()
        print(f"{name:9}", "fits:", abs(left - right) < 1e-12, " view:", y._base is not None)
    # -> select    fits: True  view: True
    # -> slice     fits: True  view: True
    # -> diagonal  fits: True  view: True
    # -> repeat    fits: True  view: False
    # -> flip      fits: True  view: False
    # -> roll      fits: True  view: False
    # -> tril      fits: True  view: False
    # -> diag      fits: True  view: False

    # Without a gradient there is no node; a write into the part still finds the whole.
    y = tensor([1.0, 2.0, 3.0])
    part = y.select(0, 1)
    part.mul_(x.sum())
    print(part._base is y, y.grad_fn is not None)  # -> True True

    # The strides of a repetition: 500,000 new elements, or none.
    row = tensor(np.zeros((1, 1000)))
    print("repeat:", row.repeat(500, 1).stride(), "expand:", row.expand(500, 1000).stride())
    # -> repeat: (1000, 1) expand: (0, 1)

    # A write into the view changes the matrix, a write into the copy does not.
    matrix = tensor([[1.0, 2.0], [3.0, 4.0]])
    matrix.diagonal().add_(1.0)
    matrix.diag().add_(100.0)
    print("written through the view only:", matrix.tolist())
    # -> written through the view only: [[2.0, 2.0], [3.0, 5.0]]

    # A reader that may not look ahead: at position i it sees 0..i.
    print("causal:", tensor([[True] * 3] * 3).tril().tolist()[1])  # -> causal: [True, True, False]
    try:
        x.select(1, 4)
    except IndexError as error:
        print("IndexError:", error)
        # -> IndexError: index 4 is out of bounds for dimension 1 with size 4
