"""Step sorting08: Sums by class: bincount with weights

A shop has a list of sales: the number of a product, and a price. What did each product bring in?
Counting adds 1 to a product's counter for each sale. With weights it adds the price:

    product  3    1    3    0        sums   0    1    2    3
    price    5.0  2.0  1.5  4.0             4.0  2.0  0    6.5

The sums divided by the counts are the means. Accuracy for each class is computed in the same way:
the weights are 1 where the prediction was right.

NumPy adds in float64, whatever the type of the weights, and so does PyTorch's: only float32
weights have float32 sums.

The trap: the sums are new tensors without a gradient. A program that needs the gradient writes
zeros(n).index_add(0, product, price), which adds the same numbers (index_add is in step gather04).

Changed: BinCount, bincount. Finished: sorting.py.
Try: the mean price of each product. Which product has no mean?
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


if __name__ == "__main__":
    product, price = tensor([3, 1, 3, 0]), tensor([5.0, 2.0, 1.5, 4.0])
    print("sales:", bincount(product).tolist(), "brought in:", bincount(product, price).tolist())
    # -> sales: [1, 1, 0, 2] brought in: [4.0, 2.0, 0.0, 6.5]

    answers, digits = tensor([0, 1, 2, 2, 1, 0]), tensor([0, 1, 2, 1, 1, 1])
    right = bincount(digits, answers == digits, minlength=3)
    print("right:", right.tolist(), "of", bincount(digits, minlength=3).tolist())
    # -> right: [1.0, 2.0, 1.0] of [1, 4, 1]
    print(bincount(product, price).dtype, right.dtype)  # -> tinytorch.float32 tinytorch.float64

    try:
        bincount(product, tensor([5.0, 2.0]))
    except RuntimeError as error:
        print(error)
    # -> bincount: weights should have the shape [4] of input, but have [2]
