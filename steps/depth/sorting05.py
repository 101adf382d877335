"""Step sorting05: Sorting 0-d tensors, and what topk refuses

sort(tensor(7.0)) works, since NumPy makes an exception. In falling order it fails: a number has no
row that could be reversed. topk fails as well, asking for the length of the row. For PyTorch a
number is a row of one element (step reduce02): its order is the index 0, and its k best are itself,
for k = 1.

So ArgSort answers at once for a tensor of 0 dimensions: an index 0, of 0 dimensions as well.
TakeAlong knows how to take it. And topk counts one element where there is no dimension to ask.

True and false have an order, and sort takes them. PyTorch's topk does not, so a program that runs
here would fail there. So topk refuses them here too.

`sorted=False` allows PyTorch to give the k best in any order. Ours are sorted either way: to sort
ten numbers costs less than the test whether they have to be. Both options have to be flags, as in
sort: topk(x, 1, 0, 2) is refused.

The trap: a special case must keep the form of the result. sort(tensor(7.0)) still has values and
indices, so that no program needs an `if` for it.

Changed: ArgSort.forward, topk.
Try: sort(tensor(7.0), descending=True) and topk(tensor(7.0), 1) in step sorting04.
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


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad

    try:
        np.array(7.0)[::-1]
    except IndexError as error:
        print("NumPy:", str(error).partition(":")[0])  # -> NumPy: too many indices for array
    x = tensor(7.0, requires_grad=True)
    values, indices = sort(x, descending=True)
    print(values.item(), indices.item(), indices.shape, grad(values, x)[0].item())
    # -> 7.0 0 tinytorch.Size([]) 1.0
    print(
        "topk:", topk(x, 1).values.item(), topk(tensor([1, 3, 2]), 2, sorted=False).values.tolist()
    )
    # -> topk: 7.0 [3, 2]
    print("sort:", sort(tensor([True, False])).values.tolist())  # -> sort: [False, True]

    for wrong in (
        lambda: topk(x, 2),
        lambda: topk(tensor([True, False]), 1),
        lambda: topk(x, 1, 0, 2),
    ):
        try:
            wrong()
        except (RuntimeError, TypeError) as error:
            print(error)
    # -> selected index k out of range: k is 2, and there are 1 elements
    # -> selected index k out of range: k is 1, and there are 2 elements
    # -> topk(): argument 'largest' must be bool, not 2
