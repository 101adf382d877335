"""Step joining02: split returns views

Cut y in two, multiply the second part by 10 in place, and ask for the gradient of the sum of y. The
elements of y have changed: the parts show its memory. But step joining01 finds a gradient of 1 for
all of them, where 10 is right for two. The graph does not know that a part is a view.

`view = True` alone is not enough. A view has to name the call that makes it from its base
(step 67a), and that call is made again after a write. For a Reshape it is the Reshape. A Split
makes all parts, and to follow, a part needs a call that makes it alone:

    y.split([3, 2])  ->  part 0: Slice([0:3])      part 1: Slice([3:5])

So `view_call` answers for part number i with a Slice and its key, and Split keeps its keys.

PyTorch's split is a view too, but it forbids a write to the parts of one call. Here it gives the
right gradient.

The trap: a part keeps the whole alive. Of a large tensor, a single row that is kept in a list keeps
all of its memory. `clone()` lets go of it.

`chunk` cuts into n equal parts, the last may be smaller: n is known and not the size.

Changed: Split. New: Split.view_call, chunk.
Try: let view_call name key number 0 for every part. Which shapes do not fit?
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction  # noqa: F401  (sum, as a method)
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.slicing import Slice, key_along


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


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along `dim`; their other sizes are equal."""
    return Cat.apply(*tensors, normalize_dim(dim, tensors[0].array.ndim))


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


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad

    # y = (x_1, x_2, x_3, 10 x_4, 10 x_5)
    x = tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    y = x * 1.0
    first, second = y.split([3, 2])
    second.mul_(10.0)
    print("written:", y.tolist())  # -> written: [1.0, 2.0, 3.0, 40.0, 50.0]
    print("gradient:", grad(y.sum(), x, retain_graph=True)[0].tolist())
    # -> gradient: [1.0, 1.0, 1.0, 10.0, 10.0]

    # The first part follows too: its gradient goes through the write, and meets no factor there.
    print("of the first part:", grad(first.sum(), x)[0].tolist())
    # -> of the first part: [1.0, 1.0, 1.0, 0.0, 0.0]
    print("their base:", first._base is y, second._base is y)  # -> their base: True True

    # Before a write, the parts of one call have one node.
    first, second = y.chunk(2)
    print("one node:", first.grad_fn is second.grad_fn, first.grad_fn.name())
    # -> one node: True SplitBackward0
    print("chunks:", first.tolist(), second.tolist())  # -> chunks: [1.0, 2.0, 3.0] [40.0, 50.0]
    print("three of five:", [part.tolist() for part in x.chunk(3)])
    # -> three of five: [[1.0, 2.0], [3.0, 4.0], [5.0]]
