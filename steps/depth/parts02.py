"""Step parts02: repeat

Two samples are to start from the same row, and one of them is then changed. `expand` (step 69e)
repeats a row without a copy, and a write into one of them changes all. Here copies are needed, and
`repeat` makes them.

Backward is known from broadcasting: x_j is in several places of y, each of which sends a gradient,
and they are added. Seen with two dimensions for each one, [times, n], that is a sum over `times`:

    y = x repeated 2 times:   1 2 3 | 1 2 3        dL/dx_j = g[0, j] + g[1, j]

The adjoint test of step 71 checks the pair without any derivative, and the demo uses it.

The trap: repeat costs memory. If the rows are only read, as in an addition, use expand.

New: Repeat, repeat.
Try: take the mean instead of the sum in Repeat.backward. What does the test say?
"""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their operators and methods)
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.dims import normalize_dim
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


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad
    from tinytorch.core.dtype import float64

    row = tensor([[1.0, 2.0, 3.0]])
    rows = row.expand(2, 3)
    rows.select(0, 0).mul_(10.0)
    print("expanded:", rows.tolist())  # -> expanded: [[10.0, 20.0, 30.0], [10.0, 20.0, 30.0]]
    rows = row.repeat(2, 1)
    rows.select(0, 0).mul_(10.0)
    print("repeated:", rows.tolist())  # -> repeated: [[100.0, 200.0, 300.0], [10.0, 20.0, 30.0]]
    print("strides:", row.repeat(500, 1).stride(), "expanded:", row.expand(500, 3).stride())
    # -> strides: (3, 1) expanded: (0, 1)

    x = tensor([1.0, 2.0, 3.0], requires_grad=True)
    g = tensor([1.0, 2.0, 3.0, 10.0, 20.0, 30.0])
    print("repeat:", x.repeat(2).tolist(), "gradient:", grad(x.repeat(2), x, g)[0].tolist())
    # -> repeat: [1.0, 2.0, 3.0, 1.0, 2.0, 3.0] gradient: [11.0, 22.0, 33.0]

    # The adjoint test, with random x and g: (A x) . g = x . (A^T g).
    rng = np.random.default_rng(0)
    OPERATIONS = {
        "select": lambda x: x.select(0, 2),
        "slice": lambda x: Slice.apply(x, key_along(1, slice(1, 3))),
        "repeat": lambda x: x.repeat(2, 1, 2),
        "square": lambda x: x * x,
    }
    for name, operation in OPERATIONS.items():
        x = tensor(rng.standard_normal((3, 4)), dtype=float64, requires_grad=True)
        y = operation(x)
        g = tensor(rng.standard_normal(y.shape), dtype=float64)
        left, right = (y * g).sum().item(), (x * grad(y, x, g)[0]).sum().item()
        print(f"{name:7} fits: {abs(left - right) < 1e-12}")
    # -> select  fits: True
    # -> slice   fits: True
    # -> repeat  fits: True
    # -> square  fits: False
