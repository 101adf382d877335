"""Step joining03: stack and unbind in the package's dress

Step 56b built stack: tensors side by side along a new dimension. Here the way back is an operation
too, and it makes a tensor iterable:

    stack     side by side, along a new dimension      gradient: unbound
    unbind    x[0], x[1], ... along a dimension        gradients: stacked

    stack([a, b])        a a        stack([a, b], 1)      a b
                         b b                              a b

It is the same pair as cat and split, with an index where the other has a slice. The parts are
views, by the same rule: view_call names the slice. `for` asks a tensor for __iter__, which is
unbind.

The trap: `for x in large` makes all views before the first turn. That is cheap, unless the tensor
is long: a million rows are a million views. Cut it into batches first.

For dim 0, NumPy's array() makes the same as stack() in a fraction of the time, because stack()
first gives each array a new dimension. A loader stacks each batch that it delivers.

New: Stack, Unbind, stack, unbind; Tensor.__iter__ and __reversed__.
Try: stack along dimension 0 in Unbind.backward, whatever ctx.dim is.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction  # noqa: F401  (sum, as a method)
from tinytorch.ops.arguments import as_integer
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


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along `dim`; their other sizes are equal."""
    return Cat.apply(*tensors, normalize_dim(dim, tensors[0].array.ndim))


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new dimension at the place `dim`."""
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
    import timeit

    import numpy as np

    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64

    pictures = [tensor(np.full((8, 8), i)) for i in range(64)]
    print("cat:", cat(pictures).shape, "stack:", stack(pictures).shape)
    # -> cat: tinytorch.Size([512, 8]) stack: tinytorch.Size([64, 8, 8])

    x = tensor([1.0, 2.0], requires_grad=True)
    print("stack:", stack([x, x]).tolist(), "last:", stack([x, x], dim=-1).tolist())
    # -> stack: [[1.0, 2.0], [1.0, 2.0]] last: [[1.0, 1.0], [2.0, 2.0]]
    g = tensor([[1.0, 2.0], [10.0, 20.0]])
    print("x twice:", grad(stack([x, x]), x, g)[0].tolist())  # -> x twice: [11.0, 22.0]

    table = tensor([[1.0, 2.0], [3.0, 4.0]])
    print(
        "for:", [row.tolist() for row in table], "reversed:", [r.tolist() for r in reversed(table)]
    )
    # -> for: [[1.0, 2.0], [3.0, 4.0]] reversed: [[3.0, 4.0], [1.0, 2.0]]
    for row in table:
        row.mul_(10.0)
    print("rows are views:", table.tolist())  # -> rows are views: [[10.0, 20.0], [30.0, 40.0]]
    y = x * 1.0
    y.unbind()[1].mul_(10.0)
    print("and known to the graph:", grad(y.sum(), x)[0].tolist())
    # -> and known to the graph: [1.0, 10.0]

    z = tensor(np.random.default_rng(0).standard_normal((3, 2)), dtype=float64, requires_grad=True)
    print("cat of the rows:", gradcheck(lambda z: cat(z.unbind()) * cat(z.unbind(1)), z))
    # -> cat of the rows: True
    print("to second order:", gradgradcheck(lambda z: stack(z.unbind(1)) * z.T, z))
    # -> to second order: True

    for wrong in (lambda: list(tensor(7.0)), lambda: tensor(7.0).unbind()):
        try:
            wrong()
        except (TypeError, IndexError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> TypeError: iteration over a 0-d tensor
    # -> IndexError: Dimension specified as 0 but tensor has no dimensions

    arrays = [picture.array for picture in pictures]
    stacked = min(timeit.repeat(lambda: np.stack(arrays), number=50))
    direct = min(timeit.repeat(lambda: np.array(arrays), number=50))
    print(f"array() takes {direct / stacked:.2f} of the time of stack()")  # -> ...
