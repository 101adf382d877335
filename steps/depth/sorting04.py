"""Step sorting04: topk by a partition, without sorting the rest

A language model chooses among 50,000 words, and of these the ten best are wanted. Step sorting03
sorts all of them: n log n comparisons, for an order of which 49,990 places are never used.

A partition does less. It moves the k largest to one end, in any order, and says nothing about the
rest. That takes a pass or two over the row (quicksort, of which only the part with the boundary is
continued). Then only the k are sorted:

    5 1 4 9 2 8     partition, k = 2:   5 1 4 2 | 9 8     sort the right part:  8 9

`part` has the places in x of the k. Their order is an order within `part`, so one gather gives the
places in x again:  order = part[argsort(x[part])].

When is it worth it? Partition, gather, sort, gather are four calls, so for fewer than about 1,000
elements they take longer than one sort. In rows of fewer than 32 elements, and for a k above n / 2,
there is little left to save. Beyond these limits the demo measures the gain.

The trap: equal elements at the boundary. Of three equal scores and two places, a partition takes
any two. PyTorch's topk does that too; if you need the first ones, use sort.

Changed: order_of_first.
Try: take all limits away but 0 < k, and measure rows of 10 elements, and k = 4,900 of 5,000.
"""

from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import check_flag
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.minmax import TakeAlong, named, named_result, take_along
from tinytorch.ops.slicing import key_along

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
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True) -> TopKResult:
    """(values, indices) of the k largest (or smallest) elements along `dim`, the first one first.

    Raises:
        RuntimeError: there are fewer than k elements.
    """
    dim = normalize_dim(dim, input.array.ndim)
    n = input.array.shape[dim]
    if not 0 <= k <= n:
        raise RuntimeError(f"selected index k out of range: k is {k}, and there are {n} elements")
    indices = ArgSort.apply(input, dim, largest, k)
    return TopKResult(TopK.apply(input, indices, dim), indices)


if __name__ == "__main__":
    import timeit

    logits = tensor(np.random.default_rng(1).random((16, 5000), dtype=np.float32))
    order = argsort(logits, descending=True).array
    print("the same ten:", (topk(logits, 10).indices.array == order[:, :10]).all())
    # -> the same ten: True
    lowest = topk(logits, 10, 1, largest=False).values.array
    print("the ten smallest:", (lowest == np.sort(logits.array)[:, :10]).all())
    # -> the ten smallest: True
    for k in (10, 1000, 2500, 2501):
        whole = min(timeit.repeat(lambda: argsort(logits), number=1))
        part = min(timeit.repeat(lambda k=k: topk(logits, k), number=1))
        print(f"the best {k} of 5,000 take {part / whole:.2f} of the time to sort all")
    # -> ...
