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
from tinytorch.core.arguments import check_flag, checked
from tinytorch.core.dtype import bool_, int32, int64, result_type
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators)
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.gather import gather
from tinytorch.ops.minmax import TakeAlong, named, named_result, take_along
from tinytorch.ops.shape import reshape
from tinytorch.ops.slicing import key_along

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing reduction".split():
    importlib.import_module(f"tinytorch.ops.{name}")


SortResult = named_result("sort", "values", "indices")


Sort = named(TakeAlong, "SortBackward0")  # the name that the graph shows


TopKResult = named_result("topk", "values", "indices")


TopK = named(TakeAlong, "TopkBackward0")


def stable_order(x: Any, dim: int, descending: bool, xp: Any) -> Any:
    """The indices that sort x along `dim`; equal elements keep their order, nan is the largest.

    The ascending order read backwards would reverse equal elements. So the descending order is the
    order of the reversed row, read backwards: equal elements are reversed twice.
    """
    if not descending:
        return xp.argsort(x, axis=dim, kind="stable")
    backwards = key_along(dim, slice(None, None, -1))
    order = xp.argsort(x[backwards], axis=dim, kind="stable")[backwards]
    return x.shape[dim] - 1 - order


def order_of_first(x: Any, dim: int, descending: bool, k: int, xp: Any) -> Any:
    """The first k indices of the order. A partition separates them in a pass or two, and then only
    they are sorted; in small arrays, or for most of a row, one sort of all is faster. Equal
    elements may come in any order."""
    n = x.shape[dim]
    kept = key_along(dim, slice(n - k, None) if descending else slice(k))
    if 0 < k <= n // 2 and n >= 32 and x.size >= 1000:
        part = xp.argpartition(x, n - k if descending else k - 1, axis=dim)[kept]
        order = xp.argsort(take_along(x, part, dim, xp), axis=dim)
        order = take_along(part, order, dim, xp)
    else:
        order = xp.argsort(x, axis=dim, kind="stable")[kept]
    return order[key_along(dim, slice(None, None, -1))] if descending else order


class ArgSort(Function):
    """The indices of the first `k` elements in the order along `dim`, of all for None."""

    differentiable = False

    def forward(ctx, x: Any, dim: int, descending: bool, k: int | None = None) -> Any:
        if x.ndim == 0:
            return ctx.xp.zeros((), np.int64)
        if k is not None:
            return order_of_first(x, dim, descending, k, ctx.xp)
        return stable_order(x, dim, descending, ctx.xp)


@tensor_method("argsort")
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The int64 indices that sort `input` along `dim`. The order is always stable."""
    check_flag("descending", descending)
    check_flag("stable", stable)
    return ArgSort.apply(input, normalize_dim(dim, input.array.ndim), descending)


@tensor_method("sort")
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False
) -> SortResult:
    """(values, indices): `input` sorted along `dim`, nan last, and where each element came from.

    Equal elements always keep their order. The gradient of an element goes to where it came from.
    """
    check_flag("descending", descending)
    if stable is not None:  # which PyTorch takes here, and not in argsort
        check_flag("stable", stable)
    dim = normalize_dim(dim, input.array.ndim)
    indices = ArgSort.apply(input, dim, descending)
    return SortResult(Sort.apply(input, indices, dim), indices)


@tensor_method("topk")
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> TopKResult:
    """(values, indices) of the k largest (or smallest) elements along `dim`, the first one first.

    They are always sorted.

    Raises:
        RuntimeError: there are fewer than k elements.
    """
    check_flag("largest", largest)
    check_flag("sorted", sorted)
    dim, k = normalize_dim(dim, input.array.ndim), as_integer(k)
    n = input.array.shape[dim] if input.array.ndim else 1
    if not 0 <= k <= n or input.dtype is bool_:
        raise RuntimeError(f"selected index k out of range: k is {k}, and there are {n} elements")
    indices = ArgSort.apply(input, dim, largest, k)
    return TopKResult(TopK.apply(input, indices, dim), indices)


class Unique(Function):
    """The distinct elements in rising order, the index of each element among them, the counts."""

    differentiable = False

    def forward(ctx, x: Any, dim: int | None) -> tuple:
        values, inverse, counts = ctx.xp.unique(
            x, return_inverse=True, return_counts=True, axis=dim, equal_nan=False
        )
        return values, inverse.reshape(x.shape if dim is None else -1), counts


@tensor_method("unique")
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements of `input`, or its distinct slices along `dim`, always sorted.

    With return_inverse also the index of each element among them, with return_counts the number
    of times each occurs: then a tuple. Each nan is distinct from all others.
    """
    check_flag("sorted", sorted)
    check_flag("return_inverse", return_inverse)
    check_flag("return_counts", return_counts)
    if dim is not None:
        dim = normalize_dim(dim, input.array.ndim)
    values, inverse, counts = Unique.apply(input, dim if input.array.ndim else None)
    results = (values, *(inverse,) * return_inverse, *(counts,) * return_counts)
    return results if len(results) > 1 else values


class BinCount(Function):
    """How often each of 0, 1, 2, ... occurs, or the sums of their weights."""

    differentiable = False

    def forward(ctx, x: Any, weights: Any, minlength: int) -> Any:
        counts = ctx.xp.bincount(x, weights, minlength)
        return counts if weights is None or weights.dtype != "f" else counts.astype("f")


@tensor_method("bincount")
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2, ... occurs in a 1-d tensor: int64, at least `minlength` counts.

    weights: a number for each element, of which the sums are returned: float32 for float32, and
    float64 for other types.

    Raises:
        RuntimeError: `input` is not 1-d, a number is negative, or `weights` has another shape.
        NotImplementedError: `input` is not of an integer type.
    """
    if input.is_floating_point() or input.dtype is bool_:
        raise NotImplementedError(f"bincount() is not implemented for {input.dtype!r}")
    if input.array.ndim != 1 or (input.array.size and input.array.min() < 0) or minlength < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.array.shape != input.array.shape:
        raise RuntimeError(
            f"bincount: weights should have the shape {list(input.array.shape)} of input, but have "
            f"{list(weights.array.shape)}"
        )
    return BinCount.apply(input, weights, minlength)


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
