"""Joining and splitting: cat, stack, split, chunk, unbind, and padding by a constant."""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import promote_types
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.scalar import checked_number
from tinytorch.ops.shape import Reshape
from tinytorch.ops.slicing import PutSlice, Slice, flip, key_along


def different_shapes(arrays: list) -> str:
    """Each shape once, for a message."""
    return " and ".join(str(list(shape)) for shape in dict.fromkeys(x.shape for x in arrays))


class Cat(Function):
    """y = the inputs one after the other along `dim`. The gradient is split where they meet."""

    def forward(ctx, *args: Any) -> Any:
        *arrays, ctx.dim = args
        y = ctx.xp.asarray(ctx.xp.concatenate(arrays, axis=ctx.dim), order="C")
        ctx.sizes = [array.shape[ctx.dim] for array in arrays]
        return y

    def backward(ctx, g: Any) -> Any:
        return *ctx.call(Split, g, ctx.sizes, ctx.dim), None

    @classmethod
    def translate_error(cls, error: Exception, args: list) -> Exception:
        *arrays, dim = args
        shapes = different_shapes(arrays)
        return RuntimeError(
            f"Sizes of tensors must match except in dimension {dim}, and 0-d tensors cannot be "
            f"joined: the shapes are {shapes}"
        )


class Split(Function):
    """Several outputs: x cut into parts of `sizes` along `dim`. Their gradients are joined."""

    view = True

    def forward(ctx, x: Any, sizes: list[int], dim: int) -> Any:
        ctx.dim, ends = dim, accumulate(sizes)
        pairs = zip(sizes, ends, strict=True)
        ctx.keys = [key_along(dim, slice(end - size, end)) for size, end in pairs]
        return tuple(x[key] for key in ctx.keys)

    def backward(ctx, *grads: Any) -> Any:
        return ctx.call(Cat, *grads, ctx.dim)

    def view_call(ctx, number: int, args: tuple) -> tuple:
        return Slice, (ctx.keys[number],)


class Stack(Function):
    """y = the inputs side by side along a new dimension. The gradient is unbound."""

    def forward(ctx, *args: Any) -> Any:
        (*arrays, dim), xp = args, ctx.xp
        ctx.dim = dim  # for dim 0, xp.stack takes two to nine times as long as xp.array
        return xp.array(arrays) if dim == 0 else xp.asarray(xp.stack(arrays, axis=dim), order="C")

    def backward(ctx, g: Any) -> Any:
        return *ctx.call(Unbind, g, ctx.dim), None

    @classmethod
    def translate_error(cls, error: Exception, args: list) -> Exception:
        shapes = different_shapes(args[:-1])
        return RuntimeError(f"stack expects each tensor to be equal size, but got {shapes}")


class Unbind(Function):
    """Several outputs: x[0], x[1], ... along `dim`. Their gradients are stacked."""

    view = True

    def forward(ctx, x: Any, dim: int) -> Any:
        ctx.dim = dim
        return tuple(x[key_along(dim, i)] for i in range(x.shape[dim]))

    def backward(ctx, *grads: Any) -> Any:
        return ctx.call(Stack, *grads, ctx.dim)

    def view_call(ctx, number: int, args: tuple) -> tuple:
        return Slice, (key_along(ctx.dim, number),)


def tensor_list(name: str, tensors: Any) -> list[Tensor]:
    """`tensors` as a list of tensors of one promoted type.

    Raises:
        TypeError: `tensors` is not a list or tuple of tensors.
        RuntimeError: the list is empty (ValueError from cat, as in PyTorch).
    """
    if not isinstance(tensors, (tuple, list)):
        raise TypeError(f"{name}(): tensors must be a tuple or list, not {type(tensors).__name__}")
    if {*map(type, tensors)} != {Tensor}:
        for number, x in enumerate(tensors):
            if not isinstance(x, Tensor):
                found = type(x).__name__
                raise TypeError(f"{name}(): expected Tensor as element {number}, but got {found}")
    if not tensors:
        raise (ValueError if name == "cat" else RuntimeError)(f"{name}() expects a non-empty list")
    if len({x.array.dtype for x in tensors}) == 1:
        return list(tensors)
    dtype = reduce(promote_types, [x.dtype for x in tensors])
    return [cast(x, dtype) for x in tensors]


def cat(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """The tensors one after the other along `dim`; their other sizes are equal.

    Different types are promoted. A tensor of shape (0,) fits everywhere, as in PyTorch. `axis` is
    another name for `dim`.

    Raises:
        ValueError: the list is empty.
        RuntimeError: the shapes do not fit.
    """
    tensors = tensor_list("cat", tensors)
    shapes = [x.array.shape for x in tensors]
    longest = max(shapes, key=len)
    dim = normalize_dim(dim if axis is None else axis, len(longest))
    if (0,) in shapes and len(longest) > 1:
        nothing = (*longest[:dim], 0, *longest[dim + 1 :])
        tensors = [x if x.array.shape != (0,) else Reshape.apply(x, nothing) for x in tensors]
    return Cat.apply(*tensors, dim)


def stack(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors of one shape side by side along a new dimension at the place `dim`.

    Raises:
        RuntimeError: the list is empty, or the shapes differ.
    """
    tensors, dim = tensor_list("stack", tensors), dim if axis is None else axis
    return Stack.apply(*tensors, normalize_dim(dim, tensors[0].array.ndim + 1))


@checked
def split(
    tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Views of parts along `dim`: of one size (the last may be smaller), or of a list of sizes.

    Raises:
        RuntimeError: a size is negative, or the sizes do not sum to the size of the dimension.
    """
    if tensor.array.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    sizes, dim = split_size_or_sections, normalize_dim(dim, tensor.array.ndim)
    n = tensor.array.shape[dim]
    if not isinstance(sizes, (tuple, list)):
        sizes = as_integer(sizes)
        if sizes < 0 or (sizes == 0 and n):
            raise RuntimeError(f"split_size {sizes} cannot split a dimension of size {n}")
        sizes = [min(sizes, n - start) for start in range(0, n, sizes or 1)] or [0]
    sizes = [as_integer(size) for size in sizes]
    if min(sizes, default=0) < 0 or sum(sizes) != n:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at "
            f"dimension {dim}), but got split_sizes={sizes}"
        )
    return Split.apply(tensor, sizes, dim)


split_method = tensor_method("split")(lambda self, split_size, dim=0: split(self, split_size, dim))


@tensor_method("chunk")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` parts of equal size along `dim`; the last may be smaller."""
    chunks = as_integer(chunks)
    if input.array.ndim == 0 or chunks < 1:
        raise RuntimeError(f"chunk expects 1 or more dims and chunks, got {input.ndim}, {chunks}")
    n = input.array.shape[normalize_dim(dim, input.array.ndim)]
    return split(input, -(-n // chunks) if n else [0] * chunks, dim)


@tensor_method("unbind")
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of the slices along `dim`: x.unbind() is (x[0], x[1], ...)."""
    if input.array.ndim == 0:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return Unbind.apply(input, normalize_dim(dim, input.array.ndim))


@tensor_method("__iter__")
def iterate(self: Tensor) -> Iterator[Tensor]:
    """The views x[0], x[1], ...

    Raises:
        TypeError: the tensor is 0-d.
    """
    if self.array.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(unbind(self))


backwards = tensor_method("__reversed__")(lambda self: flip(self, 0) if self.array.ndim else self)


def constant_pad(input: Tensor, pad: Sequence[int], value: float | None = None) -> Tensor:
    """`input` with elements equal to `value`, or 0, around it; a negative number removes elements.

    pad: (before, after) of the last dimension, then of the one before it, and so on.

    Raises:
        RuntimeError: more is taken away than is there, or the value does not fit the type.
    """
    shape, ndim = list(input.array.shape), input.array.ndim
    if len(pad) % 2 or len(pad) > 2 * ndim:
        raise RuntimeError(f"Padding length must be even and at most {2 * ndim}, got {len(pad)}")
    keep, place = [slice(None)] * ndim, [slice(None)] * ndim
    for dim, before, after in zip(range(ndim - 1, -1, -1), pad[::2], pad[1::2], strict=False):
        n = shape[dim]
        shape[dim] += before + after
        if min(shape[dim], n + min(before, 0) + min(after, 0)) < 0:
            raise RuntimeError(f"padding ({before}, {after}) takes more than the size {n} away")
        keep[dim] = slice(max(-before, 0), n - max(-after, 0))
        place[dim] = slice(max(before, 0), shape[dim] - max(after, 0))
    if min(pad, default=0) < 0:
        input = Slice.apply(input, (*keep, ...))
    fill = 0 if value is None else checked_number(float(value), input.dtype)
    return PutSlice.apply(input, tuple(shape), (*place, ...), fill)
