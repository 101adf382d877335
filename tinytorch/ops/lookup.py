"""Places in sorted rows: searchsorted and bucketize."""

from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import bool_, int32, int64, result_type
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.extremes import take_along
from tinytorch.ops.gather import gather
from tinytorch.ops.shape import reshape


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
