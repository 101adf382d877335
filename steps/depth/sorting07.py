"""Step sorting07: Counting without sorting: bincount

How many samples has each class? unique answers with the classes that occur, after sorting all of
them. If the classes are the numbers 0 to n - 1, nothing has to be sorted: each number is the place
of a counter.

    3 1 3 0 3     counters 0 1 2 3:     1 1 0 3

One pass over the elements is enough, and class 2, which never occurs, has its 0. That matters if
the counts of two data sets are compared, place by place: `minlength` makes sure that the last
classes have theirs too.

The price: the number of counters is the largest number plus one, whatever the number of elements.
The elements [7, 10**9] need a billion counters, and unique is the better choice.

A negative number has no counter, a matrix is not a row, and a float is not a place. They are
refused, the first two in one sentence, the last one as not implemented, as in PyTorch.

The trap: true and false are integers for NumPy. PyTorch refuses them here; counting them is sum().

New: BinCount, bincount.
Try: the counts of a batch of labels, divided by their number: how often each class is expected.
"""

from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import check_flag
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators)
from tinytorch.ops.arguments import as_integer
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
    """How often each of 0, 1, 2, ... occurs."""

    differentiable = False

    def forward(ctx, x: Any, minlength: int) -> Any:
        return ctx.xp.bincount(x, minlength=minlength)


@tensor_method("bincount")
def bincount(input: Tensor, *, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2, ... occurs in a 1-d tensor: int64, at least `minlength` counts.

    Raises:
        RuntimeError: `input` is not 1-d, or a number is negative.
        NotImplementedError: `input` is not of an integer type.
    """
    if input.is_floating_point() or input.dtype is bool_:
        raise NotImplementedError(f"bincount() is not implemented for {input.dtype!r}")
    if input.array.ndim != 1 or (input.array.size and input.array.min() < 0) or minlength < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    return BinCount.apply(input, minlength)


if __name__ == "__main__":
    import timeit

    digits = tensor([3, 1, 3, 0, 3])
    found, counts = unique(digits, return_counts=True)
    print("labels", found.tolist(), "seen", counts.tolist(), "bins", bincount(digits).tolist())
    # -> labels [0, 1, 3] seen [1, 1, 3] bins [1, 1, 0, 3]
    print("ten classes:", bincount(digits, minlength=10).tolist())
    # -> ten classes: [1, 1, 0, 3, 0, 0, 0, 0, 0, 0]

    many = tensor(np.random.default_rng(0).integers(0, 10, 100_000))
    counted = min(timeit.repeat(lambda: bincount(many), number=1))
    as_sorted = min(timeit.repeat(lambda: unique(many), number=1))
    print(f"100,000 labels: counted in {counted / as_sorted:.2f} of the time of unique")  # -> ...

    for wrong in (tensor([1, -1]), tensor([[1, 2]]), tensor([0.5]), tensor([True])):
        try:
            bincount(wrong)
        except (RuntimeError, NotImplementedError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> RuntimeError: bincount only supports 1-d non-negative integral inputs.
    # -> RuntimeError: bincount only supports 1-d non-negative integral inputs.
    # -> NotImplementedError: bincount() is not implemented for tinytorch.float32
    # -> NotImplementedError: bincount() is not implemented for tinytorch.bool
