"""Order: sorting, the k largest, the median, and what sorting makes quick to find."""

from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_, float32
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.extremes import Amax, TakeAlong, check_not_empty, named_result

SortResult, TopKResult, KthValueResult, MedianResult = (
    named_result(name, "values", "indices") for name in ("sort", "topk", "kthvalue", "median")
)


def order_of(x: Any, dim: int, descending: bool, xp: Any) -> Any:
    """The indices that sort x along `dim`; equal elements keep their order, nan is the largest.

    Descending is not ascending read backwards, which would reverse equal elements: it is the order
    of the reversed row, read backwards, so that they are reversed twice.
    """
    if not descending:
        return xp.argsort(x, axis=dim, kind="stable")
    order = xp.argsort(xp.flip(x, dim), axis=dim, kind="stable")
    return x.shape[dim] - 1 - xp.flip(order, dim)


def first_of_order(x: Any, dim: int, descending: bool, k: int, xp: Any) -> Any:
    """The first k indices of the order. Only they are sorted, once they are parted from the rest,
    which takes one pass or two. Of equal elements at the border any may be among them."""
    rows, n = (slice(None),) * dim, x.shape[dim]
    parted = xp.argpartition(x, n - k if descending else k - 1, axis=dim)
    part = xp.sort(parted[(*rows, slice(n - k, None) if descending else slice(k))], axis=dim)
    order = order_of(xp.take_along_axis(x, part, axis=dim), dim, descending, xp)
    return xp.take_along_axis(part, order, axis=dim)


class ArgSort(Function):
    """The indices of the first `k` elements in the order along `dim`, of all for None."""

    differentiable = False

    def forward(ctx, x: Any, dim: int, descending: bool, k: int | None = None) -> Any:
        if x.ndim == 0:
            return ctx.xp.zeros((), np.int64)
        if k is not None and 0 < k < x.shape[dim] // 16:
            return first_of_order(x, dim, descending, k, ctx.xp)
        return order_of(x, dim, descending, ctx.xp)[(*(slice(None),) * dim, slice(k))]


@tensor_method("argsort")
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The int64 indices that sort `input` along `dim`. The order is stable in any case."""
    return ArgSort.apply(input, normalize_dim(dim, input.array.ndim), descending)


@tensor_method("sort")
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False
) -> SortResult:
    """(values, indices): `input` sorted along `dim`, nan last, and where each element came from.

    Equal elements keep their order in any case. The gradient of an element goes where it came from.
    """
    dim = normalize_dim(dim, input.array.ndim)
    indices = ArgSort.apply(input, dim, descending)
    return SortResult(TakeAlong.apply(input, indices, dim), indices)


@tensor_method("topk")
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> TopKResult:
    """(values, indices) of the k largest (or smallest) elements along `dim`, the first one first.

    They are sorted in any case. RuntimeError where there are fewer than k.
    """
    dim = normalize_dim(dim, input.array.ndim)
    n = input.array.shape[dim] if input.array.ndim else 1
    if not 0 <= k <= n or input.dtype is bool_:
        raise RuntimeError(f"selected index k out of range: k is {k}, and there are {n} elements")
    indices = ArgSort.apply(input, dim, largest, k)
    return TopKResult(TakeAlong.apply(input, indices, dim), indices)


class KthPlace(Function):
    """The index of the k-th smallest x_i along `dim`; for None of the median.

    The median is the lower one of two in the middle, and the first nan where there is one.
    """

    differentiable = False

    def forward(ctx, x: Any, dim: int, keepdims: bool, k: int | None) -> Any:
        if x.dtype == bool:
            raise NotImplementedError("median() and kthvalue() are not implemented for booleans")
        if x.ndim == 0:
            return ctx.xp.zeros((), np.int64)
        xp, n = ctx.xp, x.shape[dim]
        place = (n - 1) // 2 if k is None else k - 1
        # In a long row it is enough to part what is smaller from what is larger.
        order = xp.argpartition(x, place, dim) if n > 63 else order_of(x, dim, False, xp)
        index = order[(*(slice(None),) * dim, place)]
        if k is None:
            nans = x != x
            index = xp.where(nans.any(axis=dim), nans.argmax(axis=dim), index)
        return xp.expand_dims(index, dim) if keepdims else index


@tensor_method("kthvalue")
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> KthValueResult:
    """(values, indices) of the k-th smallest element along `dim`; k = 1 is the smallest.

    RuntimeError where there is no such element.
    """
    dim = normalize_dim(dim, input.array.ndim)
    if not 1 <= k <= (input.array.shape[dim] if input.array.ndim else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}")
    indices = KthPlace.apply(input, dim, keepdim, k)
    return KthValueResult(TakeAlong.apply(input, indices, dim), indices)


class Median(Amax):
    """y = the median of all x_i; as for Amax, those that equal it share the gradient."""

    method = "median"

    def find(ctx, x: Any, dims: None, keepdims: bool) -> Any:
        row = x.reshape((x.size,))
        return row[ctx.call(KthPlace, row, 0, False, None)]


@tensor_method("median")
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """median(input): the median of all elements, the lower of two; nan if there is one.
    median(input, dim): (values, indices) along one dimension.
    """
    if dim is None:
        return Median.apply(input)
    dim = normalize_dim(dim, input.array.ndim)
    check_not_empty("median", input.array, (dim,))
    indices = KthPlace.apply(input, dim, keepdim, None)
    return MedianResult(TakeAlong.apply(input, indices, dim), indices)


class Unique(Function):
    """The different elements in rising order, where each element is among them, how many it has."""

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
    """The different elements of `input`, or its different slices along `dim`, sorted in any case.

    With return_inverse also the index of each element among them, with return_counts how often
    each occurs: then a tuple. Each nan is different from all others.
    """
    if dim is not None:
        dim = normalize_dim(dim, input.array.ndim)
    values, inverse, counts = Unique.apply(input, dim if input.array.ndim else None)
    results = (values, *(inverse,) * return_inverse, *(counts,) * return_counts)
    return results if len(results) > 1 else values


class BinCount(Function):
    """How often each of 0, 1, 2, ... occurs, or the sum of the weights where it does."""

    differentiable = False

    def forward(ctx, x: Any, weights: Any, minlength: int) -> Any:
        counts = ctx.xp.bincount(x, weights, minlength)
        return counts if weights is None else counts.astype(weights.dtype)


@tensor_method("bincount")
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each integer from 0 on occurs in a 1-d tensor, or the sum of its `weights`.

    RuntimeError for negative numbers, or where the weights are of another length.
    """
    if input.is_floating_point() or input.dtype is bool_:
        raise NotImplementedError(f"bincount() is not implemented for {input.dtype!r}")
    if input.array.ndim != 1 or (input.array.size and input.array.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is not None and weights.array.shape != input.array.shape:
        shapes = f"{list(weights.shape)} and {list(input.shape)}"
        raise RuntimeError(f"weights should be 1-d and have the same length as input: {shapes}")
    if weights is not None and weights.dtype is not float32:
        weights = weights.double()
    return BinCount.apply(input, weights, minlength)


class SearchSorted(Function):
    """The places where values go into a sorted row, or each row of values into a row of its own."""

    differentiable = False

    def forward(ctx, rows: Any, values: Any, side: str) -> Any:
        if rows.ndim == 1:
            return ctx.xp.searchsorted(rows, values, side)
        found = ctx.xp.empty(values.shape, np.int64)
        for i in np.ndindex(values.shape[:-1]):
            found[i] = ctx.xp.searchsorted(rows[i], values[i], side)
        return found


def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32=False, right=False, side=None, sorter=None
) -> Tensor:
    """Where the elements of `input` go into a sorted row so that it stays sorted: int64 places.

    Before equal elements, or behind them with right=True or side="right". Several rows take as many
    rows of input; `sorter` is the argsort of rows that are not sorted. RuntimeError for shapes or
    options that do not fit.
    """
    input = input if isinstance(input, Tensor) else tensor(input, device=sorted_sequence.device)
    rows, shape = sorted_sequence.array.shape, input.array.shape
    if len(rows) != 1 and (not rows or len(rows) != len(shape) or rows[:-1] != shape[:-1]):
        raise RuntimeError(f"searchsorted(): rows of {list(rows)} and of {list(shape)} do not fit")
    if side not in (None, "left", "right") or (side == "left" and right):
        raise RuntimeError(f"searchsorted(): side={side!r} does not go with right={right}")
    if sorter is not None:
        sorted_sequence = TakeAlong.apply(sorted_sequence, sorter, -1)
    places = SearchSorted.apply(sorted_sequence, input, "right" if right else side or "left")
    return places.int() if out_int32 else places


def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The number of the interval between sorted `boundaries` in which each element lies."""
    if boundaries.array.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)
