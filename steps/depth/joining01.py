"""Step joining01: cat and split in the package's dress

Step 56b built cat: each part gets its own piece of the gradient. Here the way back is an operation
too: Cat.backward is one call of Split, and Split.backward one call of Cat. So both can be
differentiated as often as you like.

    cat([a, b])  ->  a a b b b          gradient  g g g g g  ->  split in two where they meet

A part that is not used has no gradient: the engine passes zeros of its shape, so that all parts can
be joined.

The trap is a loop: `out = cat([out, new])` copies everything joined so far each time, about n^2 / 2
elements for n parts. Collect the parts in a list, and join them once.

Changed: Cat, cat. New: Split, split.
Try: give ctx.sizes[::-1] to the Split in Cat.backward, and see which line of the demo notices.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction  # noqa: F401  (sum, as a method)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.slicing import key_along


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

    def forward(ctx, x: Any, sizes: list[int], dim: int) -> Any:
        ctx.dim, ends = dim, accumulate(sizes)
        pairs = zip(sizes, ends, strict=True)
        return tuple(x[key_along(dim, slice(end - size, end))] for size, end in pairs)

    def backward(ctx, *grads: Any) -> Any:
        return ctx.call(Cat, *grads, ctx.dim)


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


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad

    a = tensor([[1.0, 2.0]], requires_grad=True)
    b = tensor([[3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    joined = cat([a, b])
    print("cat:", joined.tolist())  # -> cat: [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    g = tensor([[1.0, 1.0], [10.0, 10.0], [100.0, 100.0]])
    print("gradients:", *(part.tolist() for part in grad(joined, (a, b), g)))
    # -> gradients: [[1.0, 1.0]] [[10.0, 10.0], [100.0, 100.0]]
    print("a twice:", grad(cat([a, a], 1).sum(), a)[0].tolist())  # -> a twice: [[2.0, 2.0]]

    # Split in three, use the middle: the others get zeros.
    x = tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    first, middle, last = x.split(2)
    print("split:", first.tolist(), middle.tolist(), last.tolist())
    # -> split: [1.0, 2.0] [3.0, 4.0] [5.0]
    print("gradient:", grad((middle * middle).sum(), x)[0].tolist())
    # -> gradient: [0.0, 0.0, 6.0, 8.0, 0.0]
    print("by sizes:", [part.tolist() for part in split(x, [1, 4])])
    # -> by sizes: [[1.0], [2.0, 3.0, 4.0, 5.0]]

    # The loop: how many elements are copied to join 1,000 parts of one element?
    parts = list(tensor(np.zeros(1000)).split(1))
    out, copied = parts[0], 0
    for part in parts[1:]:
        out = cat([out, part])
        copied += len(out)
    print("in a loop:", copied, "at once:", len(cat(parts)))
    # -> in a loop: 500499 at once: 1000
