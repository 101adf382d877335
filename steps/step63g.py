"""Step 63g: Sorting, and the gradient of an order

The five best guesses of a network, its worst errors: so far nothing puts numbers in order.
Sorting moves them around and changes none of them. So its derivative is simple, once you keep apart
the two things that it computes: an order, and the elements in this order.

    order = argsort(x)        integers: a small change of x leaves them as they are, no derivative
    y_i = x_order(i)          dL/dx_j = dL/dy_i where order(i) = j

The gradient of each sorted element goes home to the place that the element came from. TakeAlong
of step 59n, a gather, does this for any order. All that is new is finding the indices.

Where two elements are about to change places, the derivative jumps. The sorted values themselves
are continuous even there, as the maximum is at a tie, so training copes. But argsort alone teaches
a network nothing: a loss made of indices has no gradient.

Two things have to be agreed on:

- Equal elements keep their order. Such a sort is called stable. The descending order is where this
  goes wrong: the ascending order read backwards also reverses equal elements. So we sort the
  reversed row and read that order backwards: equal elements are reversed twice.
- nan compares with nothing. It is sorted as if it were the largest number, so that all nans are at
  one end and the rest is in order. PyTorch and NumPy agree on that.

topk finds a network's best guesses without sorting the rest: it first separates the k largest
elements from the others, which takes one pass or two, and then sorts only those k. unique lists the
different labels and counts them; bincount counts 0, 1, 2, ... Like argsort, both have no
derivative.

Changed: the module of extremes is imported. New: ArgSort, sort, topk, unique, bincount.
Try: let stable_order return xp.flip(xp.argsort(x, axis=dim, kind="stable"), dim) for descending.
"""

from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.extremes import TakeAlong, named_result, take_along
from tinytorch.ops.parts import key_along

SortResult = named_result("sort", "values", "indices")


TopKResult = named_result("topk", "values", "indices")


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
    """The first k indices of the order, if they are few after a partition, which separates them in
    a pass or two: then only they are sorted. Equal elements may come in any order."""
    n = x.shape[dim]
    kept = key_along(dim, slice(n - k, None) if descending else slice(k))
    if 0 < k < n // 16:
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
    return ArgSort.apply(input, normalize_dim(dim, input.array.ndim), descending)


@tensor_method("sort")
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False
) -> SortResult:
    """(values, indices): `input` sorted along `dim`, nan last, and where each element came from.

    Equal elements always keep their order. The gradient of an element goes to where it came from.
    """
    dim = normalize_dim(dim, input.array.ndim)
    indices = ArgSort.apply(input, dim, descending)
    return SortResult(TakeAlong.apply(input, indices, dim), indices)


@tensor_method("topk")
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> TopKResult:
    """(values, indices) of the k largest (or smallest) elements along `dim`, the first one first.

    They are always sorted.

    Raises:
        RuntimeError: there are fewer than k elements.
    """
    dim = normalize_dim(dim, input.array.ndim)
    n = input.array.shape[dim] if input.array.ndim else 1
    if not 0 <= k <= n or input.dtype is bool_:
        raise RuntimeError(f"selected index k out of range: k is {k}, and there are {n} elements")
    indices = ArgSort.apply(input, dim, largest, k)
    return TopKResult(TakeAlong.apply(input, indices, dim), indices)


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

    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.ops import shape  # noqa: F401  (reshape, as a method)

    x = tensor([3.0, 1.0, 2.0], requires_grad=True)
    values, indices = sort(x)
    print("sorted:", values.tolist(), "came from", indices.tolist())
    # -> sorted: [1.0, 2.0, 3.0] came from [1, 2, 0]
    values.backward(tensor([10.0, 20.0, 30.0]))
    print("each gradient goes home:", x.grad.tolist())
    # -> each gradient goes home: [30.0, 10.0, 20.0]
    print("the order has a gradient:", argsort(x).requires_grad)
    # -> the order has a gradient: False

    # Equal elements keep their order in both directions; nan counts as the largest.
    ties = tensor([1.0, 2.0, float("nan"), 1.0, 2.0])
    print("ascending:", argsort(ties).tolist())  # -> ascending: [0, 3, 1, 4, 2]
    print("descending:", argsort(ties, descending=True).tolist())  # -> descending: [2, 1, 4, 0, 3]
    print("ascending, read backwards:", argsort(ties).tolist()[::-1])
    # -> ascending, read backwards: [2, 4, 1, 3, 0]

    scores = tensor([[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]])
    best = topk(scores, 2)
    print("two best:", best.values.tolist(), "classes", best.indices.tolist())
    # -> two best: [[0.7, 0.2], [0.5, 0.4]] classes [[1, 2], [0, 2]]
    labels = tensor([2, 1])
    print("right class among the two:", (best.indices == labels.reshape(2, 1)).any(1).tolist())
    # -> right class among the two: [True, False]

    z = tensor(np.random.default_rng(0).random((2, 4)), requires_grad=True)
    FUNCTIONS = {
        "sort": lambda x: sort(x, 0, descending=True).values,
        "topk": lambda x: topk(x, 3, largest=False).values,
    }
    for name, function in FUNCTIONS.items():
        print(name, gradcheck(function, z), gradgradcheck(function, z))
        # -> sort True True
        # -> topk True True

    digits = tensor([3, 1, 3, 0, 3])
    found, counts = unique(digits, return_counts=True)
    print("labels", found.tolist(), "seen", counts.tolist(), "bins", bincount(digits).tolist())
    # -> labels [0, 1, 3] seen [1, 1, 3] bins [1, 1, 0, 3]
    try:
        topk(scores, 4)
    except RuntimeError as error:
        print(error)  # -> selected index k out of range: k is 4, and there are 3 elements

    logits = tensor(np.random.default_rng(1).random((16, 5000), dtype=np.float32))
    whole = timeit.timeit(lambda: argsort(logits, descending=True), number=3)
    part = timeit.timeit(lambda: topk(logits, 10), number=3)
    print(f"the best 10 of 5,000 take {part / whole:.2f} of the time to sort all")  # -> ...
