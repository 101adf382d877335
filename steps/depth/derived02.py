"""Step derived02: Binary search, in all rows at once

A picture is made from rays: along each ray lie 64 points, and most of them are in empty space. So
the next points are drawn where there is something, from a distribution that is known as its
running sum, one for each ray. To draw from it, take a number u between 0 and 1, and find the place
of u in the running sum. A comparison of every u with every point,

    (sums[:, None, :] < u[:, :, None]).sum(-1)

makes an array of rays * samples * points booleans, and looks at all of them. The sums are sorted: a
binary search looks at log2(n) of n. Usually it is a loop over one row,

    middle = (low + high) // 2;    row[middle] < u:  low = middle + 1,   else high = middle

Here low and high are arrays, with an entry for each u of each row, and a round of the loop is a
take_along and a where. All searches end after the same number of rounds.

The trap is a search that has ended earlier: low is high, and may be n, where there is no element.
It reads the last one, and `low < high` keeps it where it is.

PyTorch's words: searchsorted, and bucketize where all of the input is looked up in one row: the age
of a person becomes a class.

New: SearchSorted, searchsorted, bucketize.
Try: leave `& (low < high)` out, and look at the place of 9.0.
"""

import importlib
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import bool_, int32, int64, result_type
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.extremes import take_along
from tinytorch.ops.gather import gather
from tinytorch.ops.shape import reshape

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing reduction".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class SearchSorted(Function):
    """How many elements of a sorted row [..., n] come before each x [..., m]; with `right`, those
    that are equal to x come before it. A nan comes after all."""

    differentiable = False

    def forward(ctx, rows: Any, x: Any, right: bool) -> Any:
        xp, n = ctx.xp, rows.shape[-1]
        low, high = xp.zeros(x.shape, np.int64), xp.full(x.shape, n, np.int64)
        for _ in range(n.bit_length()):
            middle = (low + high) // 2
            at = take_along(rows, xp.minimum(middle, n - 1), -1, xp)
            before = ~(at > x if right else at >= x) & (low < high)
            low, high = xp.where(before, middle + 1, low), xp.where(before, high, middle)
        return low


@checked
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where each element of `input` would be put in, so that the rows of `sorted_sequence` stay
    sorted: before its equals, or with right=True (side="right") after them.

    One row serves an input of any shape, a number too; of several, each has its row of the input.
    `sorter` has the indices that sort the rows, where they are not sorted yet.

    Raises:
        RuntimeError: for shapes that do not match, a `side` that contradicts `right`, and a
            sorter of another shape or not of int64.
        NotImplementedError: for booleans.
    """
    x = input if isinstance(input, Tensor) else tensor(input, device=sorted_sequence.device)
    rows, sizes = sorted_sequence, (list(sorted_sequence.array.shape), list(x.array.shape))
    if side not in (None, "left", "right") or (side == "left" and right):
        raise RuntimeError(f"searchsorted(): side is {side!r}, and right is {right}")
    if not sizes[0] or (len(sizes[0]) > 1 and sizes[0][:-1] != sizes[1][:-1]):
        raise RuntimeError(
            f"searchsorted(): one sorted row, or a row of input for each, expected, but got sorted "
            f"rows {sizes[0]} and input {sizes[1]}"
        )
    if bool_ in (rows.dtype, x.dtype):
        raise NotImplementedError("searchsorted() is not implemented for bool")
    if sorter is not None:
        if list(sorter.array.shape) != sizes[0] or sorter.dtype is not int64:
            raise RuntimeError(
                f"searchsorted(): the sorter must have the shape {sizes[0]} and int64, but has "
                f"{list(sorter.array.shape)} and {sorter.dtype!r}"
            )
        rows = gather(rows, -1, sorter)
    dtype = result_type(rows, x)
    flat = x.to(dtype) if len(sizes[0]) > 1 else reshape(x.to(dtype), (-1,))
    found = reshape(SearchSorted.apply(rows.to(dtype), flat, right or side == "right"), sizes[1])
    return found.to(int32) if out_int32 else found


@checked
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """Which interval between the sorted `boundaries` each element of `input` lies in, from 0 on.

    Raises:
        RuntimeError: `boundaries` is not a vector.
    """
    if boundaries.array.ndim != 1:
        raise RuntimeError(
            f"boundaries tensor must be 1 dimension, but got dim({boundaries.array.ndim})"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


if __name__ == "__main__":
    from tinytorch.ops.cumulative import cumsum

    importlib.import_module("tinytorch.core.printing")

    weights = tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    u = tensor([[0.05, 0.5, 0.95], [0.05, 0.5, 0.95]])
    sums = cumsum(weights, -1)
    print((sums[:, None, :] < u[:, :, None]).sum(-1).tolist())  # -> [[0, 2, 3], [0, 0, 3]]
    print(searchsorted(sums, u).tolist())  # -> [[0, 2, 3], [0, 0, 3]]

    row = tensor([1.0, 3.0, 3.0, 5.0])
    print(searchsorted(row, tensor([0.0, 3.0, 9.0])).tolist())  # -> [0, 1, 4]
    print(searchsorted(row, tensor([0.0, 3.0, 9.0]), right=True).tolist())  # -> [0, 3, 4]
    print(searchsorted(row, 3, side="right").item(), searchsorted(row, 4.0, out_int32=True))
    # -> 3 tensor(3, dtype=tinytorch.int32)
    print(searchsorted(tensor([5, 1, 3]), 2, sorter=tensor([1, 2, 0])).item())  # -> 1

    ages = tensor([[3, 17], [18, 70]])
    print("child, adult, old:", bucketize(ages, tensor([18, 65]), right=True).tolist())
    # -> child, adult, old: [[0, 0], [1, 2]]

    for wrong in (
        lambda: searchsorted(row, 3.0, side="left", right=True),
        lambda: searchsorted(sums, 0.5),
        lambda: searchsorted(row > 2, row),
        lambda: searchsorted(row, row, sorter=tensor([0])),
        lambda: bucketize(1.0, sums),
    ):
        try:
            wrong()
        except (RuntimeError, NotImplementedError) as error:
            print(str(error).partition(",")[0])
    # -> searchsorted(): side is 'left'
    # -> searchsorted(): one sorted row
    # -> searchsorted() is not implemented for bool
    # -> searchsorted(): the sorter must have the shape [4] and int64
    # -> boundaries tensor must be 1 dimension
