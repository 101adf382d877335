"""Step 64g: An element chosen twice

Words enter a network as rows of a table: word number 3 is row 3. So far a tensor of numbers cannot
choose the rows of another. The forward pass is one line of NumPy, x[rows], a gather. The backward
pass puts each gradient back in its row, a scatter, and looks like one line too:

    grad = zeros;   grad[rows] += g            (wrong)

In a sentence the word "the" occurs twice, and row 3 is chosen twice. It reaches the loss in two
ways, so both gradients count. But `grad[rows] += g` reads all rows first, adds, and then writes
them all: the second write replaces the first, and NumPy says nothing. It is the mistake of step 13
again, x.grad = gx for an x that is used twice, hidden inside one array operation.

What we need is a scatter-add: read, add and write for one index after the other. NumPy calls it
`add.at`. It is slow on rows and fast on single numbers, so `add_at` first turns the rows into the
places of single numbers. On a GPU thousands of threads would add at once, some of them to the same
place. So add_at is a `functools.singledispatch`: Python chooses its body by the type of the first
argument, the array, and for a GPU's arrays a kernel of our own can take its place.

Choosing rows is also a product with a matrix P that has a single 1 in each row, and zeros. It would
be a slow way to compute it, but it shows that each operation is the other's adjoint, and so its
backward:

    y = P x,      dL/dx = P^T g                Index and AddIndex

The same holds for numbers in several dimensions, x[rows, columns]. Whatever chooses by numbers in
the next steps (masks, gather, brackets) comes down to Index, and its gradient to AddIndex, which
brings every case to the form of rows.

Without a dimension, places are counted as if x were flat. That is the fastest case: x is a single
row of numbers.

Changed: a new module, indexing.py. New: Index, AddIndex, add_at.
Try: write `array[rows] += values` in add_at, and see which lines notice.
"""

import functools
import math
from typing import Any

import numpy as np

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
    if not dims:
        return indices
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

    from tinytorch.autograd.engine import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64

    # Six words of a language with four, each word a row of two numbers.
    table = tensor([[0.0, 1.0], [10.0, 11.0], [20.0, 21.0], [30.0, 31.0]], requires_grad=True)
    text = tensor([3, 0, 3, 1, 3, 0])
    words = Index.apply(table, (0,), text)
    print("first three:", words.tolist()[:3])
    # -> first three: [[30.0, 31.0], [0.0, 1.0], [30.0, 31.0]]

    # A gradient of 1 for each word: a row gets 1 each time it was chosen.
    g = np.ones((6, 2), np.float32)
    wrong = np.zeros((4, 2), np.float32)
    wrong[text.array] += g
    print("grad[rows] += g says", wrong[:, 0])  # -> grad[rows] += g says [1. 1. 0. 1.]
    print("the right gradient is", grad(words, table, tensor(g))[0].array[:, 0])
    # -> the right gradient is [2. 1. 0. 3.]

    # The same as products with a matrix that has a single 1 in each row.
    P = np.zeros((6, 4), np.float32)
    P[np.arange(6), text.array] = 1.0
    print("P x is Index:", np.array_equal(P @ table.array, words.array))  # -> P x is Index: True
    print("P^T g is AddIndex:", (P.T @ g)[:, 0])  # -> P^T g is AddIndex: [2. 1. 0. 3.]

    # Rows and columns together, with broadcasting: a column of rows against a row of columns.
    corners = Index.apply(table, (0, 1), tensor([[0], [3]]), tensor([0, -1]))
    print("corners:", corners.tolist())  # -> corners: [[0.0, 1.0], [30.0, 31.0]]
    print("flat:", Index.apply(table, (), tensor([7, 0])).tolist())  # -> flat: [31.0, 0.0]
    try:
        Index.apply(table, (), tensor([8]))
    except IndexError as error:
        print("IndexError:", error)
        # -> IndexError: index 8 is out of bounds for dimension 0 with size 8

    z = tensor(np.random.default_rng(0).standard_normal((3, 4)), dtype=float64, requires_grad=True)
    for dims, indices in [
        ((0,), [[2, 2, 0]]),
        ((1,), [[[3, 3], [0, -1]]]),
        ((0, 1), [[1, 1], [2, 2]]),
    ]:

        def choose(z, dims=dims, indices=indices):
            return Index.apply(z, dims, *(tensor(index) for index in indices))

        print("dimensions", dims, gradcheck(choose, z), gradgradcheck(choose, z))
    # -> dimensions (0,) True True
    # -> dimensions (1,) True True
    # -> dimensions (0, 1) True True

    # How fast: 2,000 words of 64 numbers, from a table of 1,000.
    rng = np.random.default_rng(0)
    rows, values = rng.integers(0, 1000, 2000), rng.random((2000, 64))
    sums = np.zeros((1000, 64))
    direct = min(timeit.repeat(lambda: np.add.at(sums, rows, values), number=3))
    ours = min(timeit.repeat(lambda: add_at(sums, rows, values), number=3))
    print(f"add.at on single places takes {ours / direct:.2f} of the time")  # -> ...
