"""Step indexing03: Rows and columns chosen together

A loss takes one number of each row: row 0, column 7; row 1, column 3; and so on. Index of step
indexing02 takes only whole rows. NumPy writes the choice with an array for each dimension, and
broadcasts them against each other:

    x[[0, 1], [7, 3]]         two numbers
    x[[[0], [1]], [7, 3]]     a table: a column of rows against a row of columns

The gradient needs nothing new. Two dimensions of sizes n and m can be counted as one of size n * m:
the pair i, j is number i * m + j. That is what ravel_multi_index computes, for any number of
dimensions. Then AddIndex adds rows of a matrix as before; the dimensions that are not indexed form
the width of a row.

The trap: with a negative index this formula gives the number of another place: for three columns,
(1, -1) is number 1 * 3 - 1 = 2, which is (0, 2). ravel_multi_index refuses negative numbers, unless
mode="wrap" counts each of them from the end of its own dimension first.

PyTorch: x[rows, columns], and in C++ at::index with a list of tensors.

How many indices there are is known in a call only, so forward itself sets ctx.saves: the numbers of
the arguments that it keeps.

Changed: Index and AddIndex take one index for each of the first dimensions.
Try: compute `rows` as indices[0] * shape[1] + indices[1], and read the last two lines of the demo.
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


class Index(Function):
    """y = x[indices]: one array of integers for each of the first dimensions.

    An element that is chosen twice gets both gradients: they are added up.
    """

    def forward(ctx, x: Any, *indices: Any) -> Any:
        ctx.shape = x.shape
        ctx.save_for_backward(*indices)
        ctx.saves = range(1, 1 + len(indices))
        return x[indices]

    def backward(ctx, g: Any) -> Any:
        return ctx.call(AddIndex, g, ctx.shape, *ctx.saved)


class AddIndex(Function):
    """y = zeros of a shape, with x added at y[indices]: the adjoint of `Index`, a scatter-add."""

    def forward(ctx, x: Any, shape: tuple, *indices: Any) -> Any:
        xp = ctx.xp
        ctx.save_for_backward(*indices)
        ctx.saves = range(2, 2 + len(indices))
        # To the form out[rows] += x: the indexed dimensions become one.
        n = len(indices)
        rows = xp.ravel_multi_index(indices, shape[:n], mode="wrap")
        out = xp.zeros((math.prod(shape[:n]), math.prod(shape[n:])), x.dtype)
        add_at(out, rows.reshape(-1), x.reshape(rows.size, out.shape[1]))
        return out.reshape(shape)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Index, g, *ctx.saved)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad

    x = tensor([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0], [20.0, 21.0, 22.0]], requires_grad=True)
    print("one of each row:", Index.apply(x, tensor([0, 1, 2]), tensor([2, 0, 1])).tolist())
    # -> one of each row: [2.0, 10.0, 21.0]
    corners = Index.apply(x, tensor([[0], [2]]), tensor([0, 2]))
    print("corners:", corners.tolist())  # -> corners: [[0.0, 2.0], [20.0, 22.0]]
    print("rows as before:", Index.apply(x, tensor([2, 2])).tolist())
    # -> rows as before: [[20.0, 21.0, 22.0], [20.0, 21.0, 22.0]]

    # The places of a 3 x 3 table, counted as one dimension.
    rows, columns = np.array([[0], [2]]), np.array([0, 2])
    print(np.ravel_multi_index((rows, columns), (3, 3)).tolist())  # -> [[0, 2], [6, 8]]

    # An index at the end of its row. As one number, (1, -1) would be the place of (0, 2).
    place = 1 * 3 + -1
    print("counted from the front:", divmod(place, 3))  # -> counted from the front: (0, 2)
    try:
        np.ravel_multi_index((np.array([1]), np.array([-1])), (3, 3))
    except ValueError as error:
        print("ValueError:", error)  # -> ValueError: invalid entry in coordinates array
    last = Index.apply(x, tensor([1, 1]), tensor([-1, 2]))
    print("chosen:", last.tolist())  # -> chosen: [12.0, 12.0]
    print("gradient:", grad(last, x, tensor([1.0, 1.0]))[0].tolist())
    # -> gradient: [[0.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
