"""Step indexing04: Indices at any dimension

x[:, [2, 0]] takes columns. Index of step indexing03 only indexes the first dimensions, so x would
have to be transposed before and after. Now `dims` says which dimensions the indices belong to, and
key_at writes the key with `:` at the others.

AddIndex still adds rows of a matrix. The indexed dimensions come to the front, n of them, and
become one (ravel_multi_index); the others follow and become the width. At the end the dimensions go
back to their places. Where is the new dimension in the gradient that arrives? NumPy has two rules:

    x[:, [2, 0]]         the indexed dimensions are side by side: it takes their place
    x[[1, 0], :, [2, 2]] a `:` stands between them: it comes first

In the first case AddIndex moves it to the front, in the second it is there already.

The trap is the layout in memory. NumPy computes x[:, [2, 0]] with the chosen dimension outermost,
and returns a transposed view of that. Later operations, reshape for example, would be slower.
order="C" asks for a result whose rows lie one after the other.

PyTorch has the same two rules, and index_select(dim) for a single one.

Changed: Index and AddIndex take `dims`. New: key_at.
Try: leave out the `if` with moveaxis. The check fails for dimensions (1,): why not for (0,)?
"""

import functools
import math
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.device import device_of
from tinytorch.core.tensor import tensor


@functools.singledispatch
def add_at(array: Any, rows: Any, values: Any) -> None:
    """array[rows[i]] += values[i] for every i, in place; a row that occurs twice gets both.

    array is contiguous, (n, width); rows are integers, (m,), in 0..n-1; values are (m, width).
    `array[rows] += values` would keep only the last of several values for one row.
    """
    xp, width = device_of(array).xp, array.shape[1]
    if width != 1:  # in one dimension ufunc.at is fastest
        rows = (rows[:, None] * width + xp.arange(width)).reshape(-1)
    xp.add.at(array.reshape(-1), rows, values.reshape(-1))


def key_at(dims: tuple[int, ...], indices: tuple) -> tuple:
    """The key with indices[i] at dimension dims[i], and `:` at the others."""
    key = [slice(None)] * (dims[-1] + 1)
    for dim, index in zip(dims, indices, strict=True):
        key[dim] = index
    return tuple(key)


class Index(Function):
    """y = x[key] with arrays of integers in the key, at the dimensions `dims` (in rising order).

    An element that is chosen twice gets both gradients: they are added up.
    """

    def forward(ctx, x: Any, dims: tuple[int, ...], *indices: Any) -> Any:
        ctx.shape, ctx.dims = x.shape, dims
        ctx.save_for_backward(*indices)
        ctx.saves = range(2, 2 + len(indices))
        return ctx.xp.asarray(x[key_at(dims, indices)], order="C")

    def backward(ctx, g: Any) -> Any:
        return ctx.call(AddIndex, g, ctx.shape, ctx.dims, *ctx.saved)


class AddIndex(Function):
    """y = zeros of a shape, with x added at y[key]: the adjoint of `Index`, a scatter-add."""

    def forward(ctx, x: Any, shape: tuple, dims: tuple[int, ...], *indices: Any) -> Any:
        xp, ctx.dims = ctx.xp, dims
        ctx.save_for_backward(*indices)
        ctx.saves = range(3, 3 + len(indices))
        # To the form out[rows] += x: the indexed dimensions come to the front and become one.
        n, last = len(dims), dims[-1]
        rows = xp.ravel_multi_index(indices, tuple(shape[dim] for dim in dims), mode="wrap")
        if last >= n > last - dims[0]:  # side by side; else NumPy has put them in front already
            places = range(rows.ndim)
            x = xp.moveaxis(x, [dims[0] + place for place in places], list(places))
        order = (*dims, *(dim for dim in range(len(shape)) if dim not in dims))
        sizes = [shape[dim] for dim in order]
        out = xp.zeros((math.prod(sizes[:n]), math.prod(sizes[n:])), x.dtype)
        add_at(out, rows.reshape(-1), x.reshape(rows.size, out.shape[1]))
        return xp.transpose(out.reshape(sizes), [order.index(dim) for dim in range(len(shape))])

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Index, g, ctx.dims, *ctx.saved)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64

    x = tensor([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]], requires_grad=True)
    columns = Index.apply(x, (1,), tensor([2, 0, 2]))
    print("columns:", columns.tolist())  # -> columns: [[2.0, 0.0, 2.0], [12.0, 10.0, 12.0]]
    ones = tensor(np.ones((2, 3), np.float32))
    print("gradient:", grad(columns, x, ones)[0].tolist())
    # -> gradient: [[1.0, 0.0, 2.0], [1.0, 0.0, 2.0]]

    # Where the new dimension of 5 stands: side by side, and with a dimension between them.
    cube, five = np.zeros((2, 3, 4)), [0, 1, 1, 0, 1]
    print(cube[:, five, five].shape, cube[five, :, five].shape)  # -> (2, 5) (5, 3)
    print("a key:", key_at((1,), (five,)))
    # -> a key: (slice(None, None, None), [0, 1, 1, 0, 1])

    # In rows that lie one after the other?
    print(x.array[:, [2, 0]].flags.c_contiguous, columns.array.flags.c_contiguous)  # -> False True

    z = tensor(np.arange(18.0).reshape(2, 3, 3), dtype=float64, requires_grad=True)
    for dims, indices in [
        ((0,), [[1, 1, 0]]),
        ((1,), [[[2, 2], [0, -1]]]),
        ((1, 2), [[1, 1], [2, 2]]),
        ((0, 2), [[1, 0, 1], [2, 2, 2]]),
    ]:

        def choose(z, dims=dims, indices=indices):
            return Index.apply(z, dims, *(tensor(index) for index in indices))

        print("dimensions", dims, gradcheck(choose, z), gradgradcheck(choose, z))
    # -> dimensions (0,) True True
    # -> dimensions (1,) True True
    # -> dimensions (1, 2) True True
    # -> dimensions (0, 2) True True
