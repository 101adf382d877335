"""Step parts03: Flip and roll: permutations and their inverses

A picture seen in a mirror is one more sample to learn from, for nothing. No operation so far can
turn a row around: a reshape keeps the order, and a permutation of dimensions too.

A flip and a roll put each element in another place, each place gets one element. As a matrix, A is
a permutation; its transpose is its inverse. So the gradient goes the same way back:

    y = x reversed           1 2 3 4 -> 4 3 2 1        g reversed: a flip is its own inverse
    y = x rolled by 1        1 2 3 4 -> 4 1 2 3        g rolled by -1

In a roll, what leaves at one end comes in at the other. (Without that, by zeros, it would be a
Slice and a PutSlice.) Without `dims` all elements are one row, also those of a matrix.

Two traps, both about memory:

- NumPy's flip is a view with a negative stride. PyTorch has no negative strides, so flip copies:
  a write into the result does not reach x.
- NumPy keeps the order in memory that x has, and rolls a transposed matrix into a transposed one.
  PyTorch's result lies row by row, and programs call view on it. Hence order="C".

A gradient test of roll with half a turn would find nothing: there, +k and -k are the same.

New: Flip, flip, Roll, roll.
Try: roll the gradient by +k in Roll.backward. Which of the two lines of the test stays True?
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


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad
    from tinytorch.core.dtype import float64

    x = tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    print("flip:", x.flip(0).tolist(), "roll:", x.roll(1).tolist())
    # -> flip: [4.0, 3.0, 2.0, 1.0] roll: [4.0, 1.0, 2.0, 3.0]
    g = tensor([1.0, 0.0, 0.0, 0.0])
    print("gradients:", grad(x.flip(0), x, g)[0].tolist(), grad(x.roll(1), x, g)[0].tolist())
    # -> gradients: [0.0, 0.0, 0.0, 1.0] [0.0, 0.0, 0.0, 1.0]

    picture = tensor([[1, 2, 3], [4, 5, 6]])
    print("mirror:", picture.flip(dims=(1,)).tolist(), "a number:", tensor(7).flip(()).item())
    # -> mirror: [[3, 2, 1], [6, 5, 4]] a number: 7
    print("down by 1:", picture.roll(1, 0).tolist(), "as one row:", picture.roll(1).tolist())
    # -> down by 1: [[4, 5, 6], [1, 2, 3]] as one row: [[6, 1, 2], [3, 4, 5]]

    # The memory: a view in NumPy, a copy here, and row by row.
    mirror = picture.flip(1)
    print("strides:", np.flip(picture.array, 1).strides, "ours:", mirror.array.strides)
    # -> strides: (24, -8) ours: (24, 8)
    rolled = np.roll(picture.T.array, 1, 0)
    print("row by row:", rolled.flags.c_contiguous, "ours:", picture.T.roll(1, 0).is_contiguous())
    # -> row by row: False ours: True

    # The adjoint test of step parts02, for a quarter of a turn and for half a turn.
    rng = np.random.default_rng(0)
    for k in (1, 2):
        x = tensor(rng.standard_normal((3, 4)), dtype=float64, requires_grad=True)
        g = tensor(rng.standard_normal((3, 4)), dtype=float64)
        y = x.roll(k, 1)
        left, right = (y * g).sum().item(), (x * grad(y, x, g)[0]).sum().item()
        print(f"roll by {k} of 4 fits: {abs(left - right) < 1e-12}")
    # -> roll by 1 of 4 fits: True
    # -> roll by 2 of 4 fits: True

    for wrong in (lambda: picture.roll((1, 2), 0), lambda: tensor(1.0).roll(1, 0)):
        try:
            wrong()
        except (RuntimeError, IndexError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> RuntimeError: shifts and dimensions must align. shifts: (1, 2), dims: (0,)
    # -> IndexError: Dimension specified as 0 but tensor has no dimensions
