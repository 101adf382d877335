"""Step sorting06: unique: distinct elements, inverse and counts

Which labels occur in a data set, and how many samples has each? In a sorted row equal elements
stand side by side, so the distinct ones are those that differ from their neighbour:

    3 1 3 0 3   sorted   0 1 3 3 3   distinct   0 1 3     counts   1 1 3

NumPy's unique does this. What else it finds on the way is useful: for each element of x its place
among the distinct ones, the inverse. values[inverse] is x again, so user numbers or rare labels
become 0, 1, 2, ... with it.

    inverse     3 1 3 0 3  ->  2 1 2 0 2

None of this has a derivative; even the shape of the result depends on the elements. `unique`
returns what was asked for, one tensor or a tuple, as PyTorch does. What is asked for are flags:
return_inverse=2 would give the inverse twice, and is refused.

With `dim`, whole slices are compared, such as the rows of a table.

The trap: nan is not equal to nan. A row with three nans has three distinct ones, in PyTorch, and in
NumPy only with equal_nan=False.

New: Unique, unique.
Try: take equal_nan=False out.
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


if __name__ == "__main__":
    digits = tensor([3, 1, 3, 0, 3])
    print("distinct:", unique(digits).tolist())  # -> distinct: [0, 1, 3]
    values, inverse, counts = unique(digits, return_inverse=True, return_counts=True)
    print("inverse:", inverse.tolist(), "counts:", counts.tolist())
    # -> inverse: [2, 1, 2, 0, 2] counts: [1, 1, 3]
    print("x again:", values.array[inverse.array].tolist())  # -> x again: [3, 1, 3, 0, 3]

    table = tensor([[1, 2], [3, 4], [1, 2]])
    rows, counts = unique(table, dim=0, return_counts=True)
    print("rows:", rows.tolist(), "counts:", counts.tolist())
    # -> rows: [[1, 2], [3, 4]] counts: [2, 1]
    print("of a table:", unique(table, return_inverse=True)[1].tolist())
    # -> of a table: [[0, 1], [2, 3], [0, 1]]
    broken = tensor([float("nan"), 1.0, float("nan")])
    print("nan:", unique(broken).tolist(), "a number:", unique(tensor(7)).tolist())
    # -> nan: [1.0, nan, nan] a number: [7]
