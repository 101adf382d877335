"""Step parts01: Slice and PutSlice: a part, and zeros around it

Step 50a has shown that the gradient of a slice is zeros with the slice in its place, and that a
slice needs no np.add.at. As two Functions each is the other's backward, so both can be
differentiated as often as you like:

    y = x[1:3]           dL/dx = zeros, but [1:3] gets dL/dy           Slice, and PutSlice
    y = zeros, with      dL/dx = dL/dy[1:3]                            PutSlice, and Slice
        y[1:3] = x

The trap is in NumPy: x[1] of a row is a number, a copy, and not a view. With `...` behind it the
key means "and all other dimensions, if there are any", and x[1, ...] is an array of 0 dimensions
that shows x's memory. key_along always writes the `...`.

`select` takes one index of one dimension, as in PyTorch. x[...] itself returns in steps indexing01
to indexing15 and gather01 to gather06.

Changed: a new module, parts.py, begins. New: key_along, Slice, PutSlice, select.
Try: return (slice(None),) * dim + (part,) from key_along. Which line of the demo notices?
"""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their operators and methods)
from tinytorch.ops.dims import normalize_dim


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


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.core.tensor import from_numpy

    x = tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    part = from_numpy(x.array[1:3])
    print("NumPy's part:", part.tolist(), "has a gradient:", part.requires_grad)
    # -> NumPy's part: [2.0, 3.0] has a gradient: False

    part = Slice.apply(x, (slice(1, 3),))
    g = tensor([10.0, 20.0])
    print("ours:", part.tolist(), "gradient:", grad(part, x, g)[0].tolist())
    # -> ours: [2.0, 3.0] gradient: [0.0, 10.0, 20.0, 0.0]

    # A second derivative: the gradient of y = part ** 3 is 3 part^2, and its own is 6 part.
    (first,) = grad((part * part * part).sum(), x, create_graph=True)
    print("first:", first.tolist())  # -> first: [0.0, 12.0, 27.0, 0.0]
    print("second:", grad(first.sum(), x)[0].tolist())  # -> second: [0.0, 12.0, 18.0, 0.0]

    table = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    print("row:", table.select(0, 1).tolist(), "column:", table.select(1, -1).tolist())
    # -> row: [4.0, 5.0, 6.0] column: [3.0, 6.0]

    # A write into a part is a write into the whole, also if the part is a single element.
    row = table.select(0, 1)
    row.select(0, 0).mul_(100.0)
    print("table:", table.tolist())  # -> table: [[1.0, 2.0, 3.0], [400.0, 5.0, 6.0]]
