"""Step sorting03: topk along a dimension

Step 59b built topk for one row. Here it takes a dimension, smallest elements too, and keeps one
node: it takes the first k indices of the order and gathers these alone.

ArgSort gets one more argument, k. What is not gathered gets the gradient zero: it was left out, as
in a slice (step parts01).

The rising order of NumPy has the largest at the end. So for `largest` the last k are taken and read
backwards. Equal elements may come out in any order here: PyTorch promises nothing for topk, which
will make it faster in step sorting04.

The trap: k is chosen by the size of the dimension that you think of. topk(scores, 5) of scores
[5 samples, 3 classes] is refused, and of [3, 5] it is a sort.

Changed: ArgSort.forward. New: order_of_first, TopKResult, TopK, topk.
Try: the largest three of ten with sort, slices and TakeAlong, and count the nodes of the graph.
"""

from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import check_flag
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.minmax import TakeAlong, named, named_result
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
    """The first k indices of the order. Equal elements may come in any order."""
    n = x.shape[dim]
    kept = key_along(dim, slice(n - k, None) if descending else slice(k))
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
    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    scores = tensor([[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]], requires_grad=True)
    best = topk(scores, 2)
    print("two best:", best.values.tolist(), "classes", best.indices.tolist())
    # -> two best: [[0.7, 0.2], [0.5, 0.4]] classes [[1, 2], [0, 2]]
    labels = tensor([[2], [1]])
    print("right class among the two:", (best.indices == labels).sum(1).tolist())
    # -> right class among the two: [1, 0]
    print("gradient:", grad(best.values.sum(), scores)[0].tolist())
    # -> gradient: [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]
    print("smallest:", topk(scores, 1, 0, largest=False).values.tolist())
    # -> smallest: [[0.1, 0.1, 0.2]]

    z = tensor(np.random.default_rng(0).random((2, 4)), requires_grad=True)
    print(gradcheck(lambda z: topk(z, 3).values, z), gradgradcheck(lambda z: topk(z, 3).values, z))
    # -> True True
    try:
        topk(scores, 4)
    except RuntimeError as error:
        print(error)  # -> selected index k out of range: k is 4, and there are 3 elements
