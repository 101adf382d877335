"""Broadcasting, and its mirror image: the gradient of a repeated element is a sum."""

from typing import Any

import numpy as np

from tinytorch.autograd.node import Function, sum_to
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import int64
from tinytorch.core.tensor import Size, Tensor, tensor_method
from tinytorch.ops.arguments import as_shape


class Expand(Function):
    """y = x repeated to `shape`, without a copy (stride 0). Backward sums what was repeated."""

    view = True

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape, new = x.shape, len(shape) - x.ndim
        each = zip(x.strides, x.shape, shape[new:], strict=False)
        steps = [step if n == m else 0 if n == 1 else None for step, n, m in each]
        if new < 0 or None in steps:
            raise RuntimeError(
                f"The expanded sizes {list(shape)} must match the existing sizes {list(x.shape)}"
            )
        if x.__class__ is not np.ndarray:
            return ctx.xp.broadcast_to(x, shape)
        # Not np.broadcast_to: its result is read-only, and it takes more than twice as long.
        strides = (0,) * new + tuple(steps)
        if x.flags.c_contiguous:
            return np.ndarray(shape, x.dtype, x, 0, strides)
        return np.lib.stride_tricks.as_strided(x, shape, strides)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SumTo, g, ctx.shape)


class SumTo(Function):
    """y = x summed over the dimensions along which `shape` would be broadcast to x's shape."""

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape = x.shape
        return sum_to(x, shape)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, g, ctx.shape)


@tensor_method("expand")
def expand(input: Tensor, *sizes: Any) -> Tensor:
    """A view in which dimensions of size 1 are repeated to `sizes`; -1 keeps a size.

    Raises:
        RuntimeError: a size other than 1 would have to change, or there are too few sizes.
    """
    sizes, shape = as_shape(sizes), input.array.shape
    new = len(sizes) - len(shape)
    if new < 0:
        raise RuntimeError(
            f"expand({list(shape)}, size={list(sizes)}): the number of sizes provided "
            f"({len(sizes)}) must be greater or equal to the number of dimensions in the tensor "
            f"({len(shape)})"
        )
    target = list(sizes)
    for i, size in enumerate(sizes):
        old = shape[i - new] if i >= new else None
        if size == -1 and old is not None:
            target[i] = old
        elif size < 0 or (old not in (None, 1, size)):
            raise RuntimeError(
                f"The expanded size of the tensor ({size}) must match the existing size ({old}) "
                f"at non-singleton dimension {i}.  Target sizes: {list(sizes)}.  Tensor sizes: "
                f"{list(shape)}"
            )
    return Expand.apply(input, tuple(target))


@tensor_method("expand_as")
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """A view of `input` in the shape of `other`."""
    return expand(input, other.array.shape)


@tensor_method("broadcast_to")
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """A view of `input` broadcast to the shape `size`."""
    return expand(input, size)


@tensor_method("sum_to_size")
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Sum to the shape `size`, which must broadcast to the shape of `input`.

    Raises:
        RuntimeError: it does not.
    """
    size, shape = as_shape(size), input.array.shape
    extra = len(shape) - len(size)
    if extra < 0 or any(n not in (1, shape[extra + i]) for i, n in enumerate(size)):
        raise RuntimeError(f"size {list(size)} is not expandable to size {list(shape)}.")
    if not input.is_floating_point() and (size != shape or size == ()):
        input = input.to(int64)  # integers and booleans are added up as int64
    return SumTo.apply(input, size)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape to which all `shapes` are broadcast.

    Raises:
        RuntimeError: the shapes do not fit.
    """
    shapes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    result = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for i in range(1, len(shape) + 1):
            if shape[-i] != 1 and result[-i] not in (1, shape[-i]):
                raise RuntimeError(
                    f"Shape mismatch: objects cannot be broadcast to a single shape: "
                    f"{', '.join(str(list(s)) for s in shapes)}"
                )
            result[-i] = shape[-i] if shape[-i] != 1 else result[-i]
    return Size(result)


@checked
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors as views of one common shape."""
    shape = broadcast_shapes(*(tensor.array.shape for tensor in tensors))
    return tuple(expand(tensor, shape) for tensor in tensors)
