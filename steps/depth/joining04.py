"""Step joining04: cat and stack: one type, and only tensors

cat([counts, weights]) joins int64 and float32. NumPy makes float64 of them, and the rest of the
program computes in float64, at half the speed and without a word. An addition would give float32
(step 61b). So all tensors are cast to their promoted type first: promote_types of the first two,
of that and the third, and so on. functools.reduce is this loop.

Mistakes need clear errors as well. cat(a, b), without the brackets, takes b for a dimension. An
array among the tensors would pass, and have no history. An empty list has no shape.

`tensor_list` does both, for cat and stack. They are called for each batch, often with many small
tensors, so the usual case is quick: one set tells whether all are exactly of type Tensor, another
whether they have one dtype. Only if not, it looks for the one that is to blame.

The trap: an error of the right kind. PyTorch raises ValueError for an empty list in cat, and
RuntimeError in stack; a program that catches one of them would miss the other.

`axis` is NumPy's word for `dim`, and PyTorch takes it too.

Changed: cat, stack. New: tensor_list.
Try: leave the cast out, and find the line of the demo that changes.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import promote_types
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction  # noqa: F401  (sum, as a method)
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.slicing import Slice, flip, key_along


class Cat(Function):
    """y = the inputs one after the other along `dim`. The gradient is split where they meet."""

    def forward(ctx, *args: Any) -> Any:
        *arrays, ctx.dim = args
        y = ctx.xp.asarray(ctx.xp.concatenate(arrays, axis=ctx.dim), order="C")
        ctx.sizes = [array.shape[ctx.dim] for array in arrays]
        return y

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

    Different types are promoted. `axis` is another name for `dim`.

    Raises:
        ValueError: the list is empty.
    """
    tensors = tensor_list("cat", tensors)
    dim = normalize_dim(dim if axis is None else axis, tensors[0].array.ndim)
    return Cat.apply(*tensors, dim)


def stack(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Tensors of one shape side by side along a new dimension at the place `dim`.

    Raises:
        RuntimeError: the list is empty.
    """
    tensors, dim = tensor_list("stack", tensors), dim if axis is None else axis
    return Stack.apply(*tensors, normalize_dim(dim, tensors[0].array.ndim + 1))


@checked
def split(
    tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts along `dim`: of one size (the last may be smaller), or of a list of sizes."""
    sizes, dim = split_size_or_sections, normalize_dim(dim, tensor.array.ndim)
    n = tensor.array.shape[dim]
    if not isinstance(sizes, (tuple, list)):
        sizes = [min(sizes, n - start) for start in range(0, n, sizes)]
    return Split.apply(tensor, sizes, dim)


split_method = tensor_method("split")(lambda self, split_size, dim=0: split(self, split_size, dim))


@tensor_method("chunk")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` parts of equal size along `dim`; the last may be smaller."""
    chunks = as_integer(chunks)
    n = input.array.shape[normalize_dim(dim, input.array.ndim)]
    return split(input, -(-n // chunks), dim)


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


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad

    counts, weights = tensor([1, 2]), tensor([0.5], requires_grad=True)
    print("NumPy:", np.concatenate([counts.array, weights.array]).dtype)  # -> NumPy: float64
    joined = cat([counts, weights])
    print("ours:", joined.dtype, joined.tolist())  # -> ours: tinytorch.float32 [1.0, 2.0, 0.5]
    print("gradient:", grad(joined.sum(), weights)[0].tolist())  # -> gradient: [1.0]
    print("stack:", stack([counts, tensor([True, False])]).tolist())
    # -> stack: [[1, 2], [1, 0]]
    print("axis:", cat([joined, joined], axis=-1).shape, stack([joined, joined], axis=1).shape)
    # -> axis: tinytorch.Size([6]) tinytorch.Size([3, 2])

    WRONG = {
        "cat(a, b)": lambda: cat(counts, counts),
        "cat([a, array])": lambda: cat([counts, counts.array]),
        "cat([])": lambda: cat([]),
        "stack([])": lambda: stack([]),
    }
    for call, wrong in WRONG.items():
        try:
            wrong()
        except (TypeError, ValueError, RuntimeError) as error:
            print(f"{call}: {type(error).__name__}: {error}")
    # -> cat(a, b): TypeError: cat(): tensors must be a tuple or list, not Tensor
    # -> cat([a, array]): TypeError: cat(): expected Tensor as element 1, but got ndarray
    # -> cat([]): ValueError: cat() expects a non-empty list
    # -> stack([]): RuntimeError: stack() expects a non-empty list
