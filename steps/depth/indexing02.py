"""Step indexing02: A scatter-add of single numbers

The add.at of step indexing01 is slow; the demo measures it for 2,000 words of 64 numbers. NumPy has
a fast loop for one case only: an array of one dimension with a list of single places. So `add_at`
turns each row into the places of its numbers:

    rows 3, 0 of width 2      ->      places 6, 7, 0, 1

and adds to the flat array. AddIndex brings its arguments to this form, a matrix and a list of rows.

On a GPU thousands of threads would add at once, some of them to the same place. That needs code of
its own. So add_at is a `functools.singledispatch`: Python chooses its body by the type of the first
argument, the array. The body here serves any type; `add_at.register(type)` adds one for a
particular type, and this module stays as it is. (Step products06 writes the kernel for a GPU's
arrays.)

The trap: add_at writes through `array.reshape(-1)`. For a transposed array that is a copy, and the
sums are lost without an error. So its docstring says that the array must be contiguous.

(PyTorch chooses by device in the same way; its table of functions is called the dispatcher.)

Changed: AddIndex. New: add_at.
Try: leave out the `if` and its line. For which widths does NumPy raise an error?
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
    """y = x[index]: rows of x, in any order.

    A row that is chosen twice gets both gradients: they are added up.
    """

    saves = (1,)

    def forward(ctx, x: Any, index: Any) -> Any:
        ctx.shape = x.shape
        ctx.save_for_backward(index)
        return x[index]

    def backward(ctx, g: Any) -> Any:
        return ctx.call(AddIndex, g, ctx.shape, *ctx.saved)


class AddIndex(Function):
    """y = zeros of a shape, with x added at y[index]: the adjoint of `Index`, a scatter-add."""

    saves = (2,)

    def forward(ctx, x: Any, shape: tuple, index: Any) -> Any:
        ctx.save_for_backward(index)
        out = ctx.xp.zeros((shape[0], math.prod(shape[1:])), x.dtype)
        add_at(out, index.reshape(-1), x.reshape(index.size, out.shape[1]))
        return out.reshape(shape)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Index, g, *ctx.saved)


if __name__ == "__main__":
    import timeit

    import numpy as np

    from tinytorch.autograd.backward import grad

    # How fast: 2,000 words of 64 numbers, from a table of 1,000.
    rng = np.random.default_rng(0)
    rows, values = rng.integers(0, 1000, 2000), rng.random((2000, 64))
    ours, direct = np.zeros((1000, 64)), np.zeros((1000, 64))
    np.add.at(direct, rows, values)
    add_at(ours, rows, values)
    print("the same sums:", np.allclose(ours, direct))  # -> the same sums: True
    by_rows = min(timeit.repeat(lambda: np.add.at(direct, rows, values), number=3))
    by_places = min(timeit.repeat(lambda: add_at(ours, rows, values), number=3))
    print(f"add_at takes {by_places / by_rows:.2f} of the time of add.at on rows")  # -> ...

    # The gradient is what it was; a negative row counts from the end.
    table = tensor([[0.0, 1.0], [10.0, 11.0], [20.0, 21.0], [30.0, 31.0]], requires_grad=True)
    words = Index.apply(table, tensor([3, 0, -1, 1, 3, 0]))
    print(grad(words, table, tensor(np.ones((6, 2), np.float32)))[0].array[:, 0])
    # -> [2. 1. 0. 3.]

    # The sums of a transposed array get lost: reshape has made a copy.
    sums = np.zeros((2, 3)).T
    add_at(sums, np.array([0, 0]), np.ones((2, 2)))
    print("lost:", sums.tolist())  # -> lost: [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]

    # A type of arrays with a scatter-add of its own.
    class Noted(np.ndarray):
        pass

    @add_at.register(Noted)
    def add_at_of_noted(array, rows, values):
        print("the type has its own:", rows)

    add_at(np.zeros((2, 1)).view(Noted), np.array([1, 1]), np.ones((2, 1)))
    # -> the type has its own: [1 1]
    add_at(sums := np.zeros((2, 1)), np.array([1, 1]), np.ones((2, 1)))
    print("any other:", sums[:, 0])  # -> any other: [0. 2.]
