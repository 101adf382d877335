"""Step indexing05: Positions in the flattened tensor

Some choices follow no dimension: the elements where a mask is true, or one element of each row.
With an index for each dimension, each element of the result needs as many numbers as x has
dimensions. One number is enough, its position in the flattened x:

    x = 0 1 2         element (1, 2) is number 1 * 3 + 2 = 5
        3 4 5

NumPy reads such positions with `take`. AddIndex is fastest here: the gradient is a matrix with rows
of one number, for which add_at needs no arithmetic at all. The result has the shape of the index,
whatever the shape of x.

Index gets no dimension, `dims=()`, and one index. In AddIndex the shape becomes (size,), and the
index belongs to dimension 0 of it. Its last lines also spare the transpose for keys that index the
first dimensions: those are at the front already.

Steps gather01 and gather03 write gather and scatter with these numbers, in a line each.

PyTorch: torch.take(x, index).

Changed: Index, AddIndex.
Try: return out.reshape(shape) in place of out.reshape(whole). Which lines of the demo change?
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

    Without `dims` there is one array, of positions in the flattened x. An element that is chosen
    twice gets both gradients: they are added up.
    """

    def forward(ctx, x: Any, dims: tuple[int, ...], *indices: Any) -> Any:
        ctx.shape, ctx.dims = x.shape, dims
        ctx.save_for_backward(*indices)
        ctx.saves = range(2, 2 + len(indices))
        if not dims:
            return x.take(indices[0])
        return ctx.xp.asarray(x[key_at(dims, indices)], order="C")

    def backward(ctx, g: Any) -> Any:
        return ctx.call(AddIndex, g, ctx.shape, ctx.dims, *ctx.saved)


class AddIndex(Function):
    """y = zeros of a shape, with x added at y[key]: the adjoint of `Index`, a scatter-add."""

    def forward(ctx, x: Any, shape: tuple, dims: tuple[int, ...], *indices: Any) -> Any:
        xp, ctx.dims = ctx.xp, dims
        ctx.save_for_backward(*indices)
        ctx.saves = range(3, 3 + len(indices))
        whole = shape
        if not dims:
            shape, dims = (math.prod(shape),), (0,)
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
        if last < n:  # in front in y too
            return out.reshape(whole)
        return xp.transpose(out.reshape(sizes), [order.index(dim) for dim in range(len(shape))])

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Index, g, ctx.dims, *ctx.saved)


if __name__ == "__main__":
    import timeit

    import numpy as np

    from tinytorch.autograd.backward import grad

    x = tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
    chosen = Index.apply(x, (), tensor([[5, 0], [5, -2]]))
    print(chosen.tolist())  # -> [[5.0, 0.0], [5.0, 4.0]]
    ones = tensor(np.ones((2, 2), np.float32))
    print("gradient:", grad(chosen, x, ones)[0].tolist())
    # -> gradient: [[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]
    print("as before:", Index.apply(x, (1,), tensor([2, 2])).tolist())
    # -> as before: [[2.0, 2.0], [5.0, 5.0]]

    # 1,000 elements, one of each row, by two numbers for each and by one.
    rng = np.random.default_rng(0)
    table = tensor(rng.random((1000, 100)))
    rows, columns = tensor(np.arange(1000)), tensor(rng.integers(0, 100, 1000))
    flat = tensor(rows.array * 100 + columns.array)
    by_two, by_one = Index.apply(table, (0, 1), rows, columns), Index.apply(table, (), flat)
    print("the same:", np.array_equal(by_two.array, by_one.array))  # -> the same: True

    g = tensor(rng.random(1000))
    gradients = [
        AddIndex.apply(g, (1000, 100), (0, 1), rows, columns),
        AddIndex.apply(g, (1000, 100), (), flat),
    ]
    print("and the gradient:", np.array_equal(*(each.array for each in gradients)))
    # -> and the gradient: True
    two = min(timeit.repeat(lambda: Index.apply(table, (0, 1), rows, columns), number=100))
    one = min(timeit.repeat(lambda: Index.apply(table, (), flat), number=100))
    print(f"one number takes {one / two:.2f} of the time of two")  # -> ...
