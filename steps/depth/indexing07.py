"""Step indexing07: An index that is out of bounds

A word that is not in the table has a number that is too large. Index of step indexing06 says so in
NumPy's words: "index 4 is out of bounds for axis 0 with size 4". What NumPy calls an axis is a
dimension in PyTorch and in this package, so the message should say dimension.

So Index catches the error and raises another with the word replaced. `from None` hides the first
one: without it, the report shows both, joined by "During handling of the above exception, another
exception occurred".

The `try` costs nothing while there is no error: since Python 3.11 it takes no time until something
is raised. Checking the indices beforehand would read all of them once more.

The trap on a GPU: Python does not wait for a kernel to end, so the kernel cannot raise an error.
PyTorch reports "device-side assert triggered" some calls later, and the process can no longer use
the GPU.

Changed: Index. It is finished.
Try: leave out `from None`, and raise the error without catching it in the demo.
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
        try:
            if not dims or (len(dims) == 1 and x.flags.c_contiguous):
                axis = dims[0] if dims else None
                return x.take(indices[0], axis=axis)  # three times as fast as x[key]
            return ctx.xp.asarray(x[key_at(dims, indices)], order="C")
        except IndexError as error:
            raise IndexError(str(error).replace("axis", "dimension")) from None

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
    import traceback

    table = tensor([[0.0, 1.0], [10.0, 11.0], [20.0, 21.0], [30.0, 31.0]])
    for dims, indices in [((0,), [[0, 4]]), ((), [[8]]), ((0, 1), [[0], [-3]])]:
        try:
            Index.apply(table, dims, *(tensor(index) for index in indices))
        except IndexError as error:
            print("IndexError:", error)
            # -> IndexError: index 4 is out of bounds for dimension 0 with size 4
            # -> IndexError: index 8 is out of bounds for dimension 0 with size 8
            # -> IndexError: index -3 is out of bounds for dimension 1 with size 2
            report = "".join(traceback.format_exception(error))
    print("errors in the report:", report.count("Traceback"))  # -> errors in the report: 1
    try:
        table.array[[4]]
    except IndexError as error:
        print("NumPy:", error)  # -> NumPy: index 4 is out of bounds for axis 0 with size 4

    def plain():
        pass

    def guarded():
        try:
            pass
        except IndexError:
            raise

    times = [min(timeit.repeat(call, number=100_000)) * 1e4 for call in (plain, guarded)]
    print("nanoseconds: without {:.0f}, with try {:.0f}".format(*times))  # -> ...
    print(Index.apply(table, (0, 1), tensor([3]), tensor([-1])).tolist())  # -> [31.0]
