"""Step 61u: Joining and splitting: cat, stack, split, unbind

Samples arrive one by one, and training wants batches; the parts of a sequence are computed one
after the other, and belong in one tensor. Two operations put tensors together, and each has an
opposite that takes them apart again:

    cat     one after the other, along a dimension they have       split   (and chunk)
    stack   side by side, along a new dimension                    unbind

The gradient of joining is cutting, and the gradient of cutting is joining. So Cat.backward is one
call of Split, and Split.backward one call of Cat: both can be differentiated as often as you like.
Cat takes any number of inputs, and Split has several outputs. Three things follow:

- A part that is not used has no gradient. The engine then passes zeros of its shape, so that all
  parts can be joined.
- A tensor that is joined with itself gets a gradient from both places. They are added, as always.
- The parts are views. A write into one changes the whole, and the graph must know of it. The
  outputs of one call share one node, so `views_of` notes for each part which slice of x it shows.
  (PyTorch forbids such a write to the parts of one call. Here it gives the right gradient.)

The trap is a loop: `out = cat([out, new])` copies everything joined so far each time, about n^2 / 2
elements for n parts. Collect the parts in a list, and join them once.

Different types are promoted as in an addition. One old habit of PyTorch is kept as well: a tensor
of shape [0] can be joined with any other.

Changed: a new module, joining.py, finished here. New: cat, stack, split, chunk, unbind; `for` row
in x, which is unbind; and padding with a constant, which is PutSlice with a value other than 0.
Try: give ctx.sizes[::-1] to the Split in Cat.backward, and see which line of the demo notices.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import promote_types
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction  # noqa: F401  (sum, as a method)
from tinytorch.ops.arithmetic import number_like
from tinytorch.ops.broadcast import as_integer
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.parts import PutSlice, Slice, flip, key_along
from tinytorch.ops.shape import Reshape


class Cat(Function):
    """y = the inputs one after the other along `dim`. The gradient is split where they meet."""

    def forward(ctx, *args: Any) -> Any:
        *arrays, ctx.dim = args
        ctx.sizes = [array.shape[ctx.dim] for array in arrays]
        return ctx.xp.asarray(ctx.xp.concatenate(arrays, axis=ctx.dim), order="C")

    def backward(ctx, g: Any) -> Any:
        return *ctx.call(Split, g, ctx.sizes, ctx.dim), None


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
    if () in shapes:
        raise RuntimeError("zero-dimensional tensor cannot be concatenated")
    first = shapes[0]
    if first == (0,):
        first = next((shape for shape in shapes if shape != (0,)), (0,))
    dim = normalize_dim(dim if axis is None else axis, len(first))
    if shapes.count(first) != len(shapes):
        nothing = (*first[:dim], 0, *first[dim + 1 :])
        tensors = [x if x.array.shape != (0,) else Reshape.apply(x, nothing) for x in tensors]
        for number, x in enumerate(tensors):
            shape = list(x.array.shape)
            if len(shape) != len(first) or (*shape[:dim], 0, *shape[dim + 1 :]) != nothing:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected "
                    f"{list(first)} but got {shape} for tensor number {number} in the list."
                )
    return Cat.apply(*tensors, dim)


def stack(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors of one shape side by side along a new dimension at the place `dim`.

    Raises:
        RuntimeError: the list is empty, or the shapes differ.
    """
    tensors, dim = tensor_list("stack", tensors), dim if axis is None else axis
    first = tensors[0].array.shape
    for number, x in enumerate(tensors):
        if x.array.shape != first:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and "
                f"{list(x.array.shape)} at entry {number}"
            )
    return Stack.apply(*tensors, normalize_dim(dim, tensors[0].array.ndim + 1))


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
    fill = number_like(0 if value is None else value, input.dtype)
    return PutSlice.apply(input, tuple(shape), (*place, ...), fill)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.engine import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64

    a = tensor([[1.0, 2.0]], requires_grad=True)
    b = tensor([[3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    joined = cat([a, b])
    print("cat:", joined.tolist())  # -> cat: [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    (joined * tensor([[1.0], [10.0], [100.0]])).sum().backward()
    print("a:", a.grad.tolist(), "b:", b.grad.tolist())
    # -> a: [[1.0, 1.0]] b: [[10.0, 10.0], [100.0, 100.0]]

    x = tensor([1.0, 2.0], requires_grad=True)
    print("stack:", stack([x, x]).tolist(), "last:", stack([x, x], dim=-1).tolist())
    # -> stack: [[1.0, 2.0], [1.0, 2.0]] last: [[1.0, 1.0], [2.0, 2.0]]
    weights = tensor([[1.0, 2.0], [10.0, 20.0]])
    print("x twice:", grad(stack([x, x]), x, weights)[0].tolist())  # -> x twice: [11.0, 22.0]

    print("for:", [row.tolist() for row in stack([x, x])])  # -> for: [[1.0, 2.0], [1.0, 2.0]]

    # Split in three, use the middle: the others get zeros.
    x = tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    first, middle, last = x.split(2)
    print("split:", first.tolist(), middle.tolist(), last.tolist())
    # -> split: [1.0, 2.0] [3.0, 4.0] [5.0]
    (middle * middle).sum().backward()
    print("gradient:", x.grad.tolist())  # -> gradient: [0.0, 0.0, 6.0, 8.0, 0.0]
    print("one node:", first.grad_fn is last.grad_fn, first.grad_fn.name())
    # -> one node: True SplitBackward0

    # A write into a part changes the whole, and its gradient: y = (x_1, x_2, x_3, 10 x_4, 10 x_5).
    y = x * 1.0
    y.chunk(2)[1].mul_(10.0)
    print("written:", y.tolist(), "gradient:", grad(y.sum(), x)[0].tolist())
    # -> written: [1.0, 2.0, 3.0, 40.0, 50.0] gradient: [1.0, 1.0, 1.0, 10.0, 10.0]

    # Both ways, to second order.
    z = tensor(np.random.default_rng(0).standard_normal((3, 2)), dtype=float64, requires_grad=True)
    print("cat of the rows:", gradcheck(lambda z: cat(z.unbind()) * cat(z.unbind(1)), z))
    # -> cat of the rows: True
    print("to second order:", gradgradcheck(lambda z: cat(z.unbind()) * cat(z.unbind(1)), z))
    # -> to second order: True

    # Room around a picture of one point.
    print("padded:", constant_pad(tensor([[7.0]]), (1, 1, 0, 1)).tolist())
    # -> padded: [[0.0, 7.0, 0.0], [0.0, 0.0, 0.0]]

    print("types:", cat([tensor([1, 2]), tensor([0.5])]).tolist())  # -> types: [1.0, 2.0, 0.5]
    try:
        cat([a, b], dim=1)
    except RuntimeError as error:
        print("RuntimeError:", str(error).partition(". ")[0])
        # -> RuntimeError: Sizes of tensors must match except in dimension 1

    # The loop: how many elements are copied to join 1,000 parts of one element?
    parts = list(tensor(np.zeros(1000)).split(1))
    out, copied = parts[0], 0
    for part in parts[1:]:
        out = cat([out, part])
        copied += len(out)
    print("in a loop:", copied, "at once:", len(cat(parts)))
    # -> in a loop: 500499 at once: 1000
