"""Step indexing06: take instead of x[key]

Words as rows of a table are the most frequent choice of all: a language model makes it in every
step. The demo measures what x[rows] costs: NumPy's brackets prepare for any mixture of keys, then
copy one number after the other. `take` knows that there is one index along one dimension, and
copies whole rows, in less than half of the time.

So Index calls take wherever there is a single index. The condition has a second half: x must lie in
memory row by row. take makes a copy of anything else first, of the whole x: for a transposed table
of 1,000 words, a thousand rows are copied to read ten.

From here on, measurements alternate: the two ways run in turns, several times each, and the
shortest time of each counts, because other programs can only make a run slower.

Changed: Index.
Try: leave out `x.flags.c_contiguous`, and compare the last line of the demo.
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
        if not dims or (len(dims) == 1 and x.flags.c_contiguous):
            axis = dims[0] if dims else None
            return x.take(indices[0], axis=axis)  # three times as fast as x[key]
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

    rng = np.random.default_rng(0)
    table = tensor(rng.random((1000, 64), np.float32))
    words = tensor(rng.integers(0, 1000, 2000))
    sideways = tensor(np.asfortranarray(table.array))  # the same elements, column after column
    few = tensor([5, 3, 5, 0])

    chosen = Index.apply(table, (0,), words)
    print("the same:", np.array_equal(chosen.array, table.array[words.array]))  # -> the same: True
    rows = Index.apply(sideways, (0,), few)
    print("sideways:", np.array_equal(rows.array, table.array[few.array]))  # -> sideways: True

    def seconds(*calls):
        """The shortest of ten times of each, taken in turns."""
        rounds = [[timeit.timeit(call, number=20) for call in calls] for _ in range(10)]
        return map(min, zip(*rounds, strict=True))

    brackets, take = seconds(
        lambda: table.array[words.array], lambda: table.array.take(words.array, axis=0)
    )
    print(f"2,000 of 1,000 rows: take needs {take / brackets:.2f} of the time")  # -> ...
    brackets, take, ours = seconds(
        lambda: sideways.array[few.array],
        lambda: sideways.array.take(few.array, axis=0),
        lambda: Index.apply(sideways, (0,), few),
    )
    print(f"4 rows, sideways: take {take / brackets:.1f} times, Index {ours / brackets:.1f} times")
    # -> ...
