"""Step sorting02: Falling order, ties and nan

The best comes first: for scores, the order falls. Reading the rising order backwards seems to do
it. But look at equal elements:

    x             1 2 1 2          elements 0 and 2 are equal, and so are 1 and 3
    rising        0 2 1 3          equal elements keep their order: such a sort is called stable
    backwards     3 1 2 0          equal elements are turned around

A table sorted by name, and then by score, should list equal scores by name. So a falling order has
to be stable too. The trick is to turn equal elements around twice: sort the reversed row, and read
that order backwards.

    reversed      2 1 2 1   ->   its rising order 1 3 0 2   ->   backwards 2 0 3 1
    element i of the reversed row is element n - 1 - i of x:     1 3 0 2

nan compares with nothing. NumPy and PyTorch agree to sort it as if it were the largest number: it
is last, and first in a falling order.

The trap: sorting -x gives no falling order. nan stays last, and the smallest integer has no
negative.

Every order is stable here, also without `stable=True`. Both options have to be flags (step
tensor09): in sort(x, 0, 1), a second dimension may have been meant.

Changed: ArgSort.forward, argsort, sort. New: stable_order.
Try: return xp.flip(xp.argsort(x, axis=dim, kind="stable"), dim) for the falling order.
"""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import check_flag
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison  # noqa: F401  (its operators)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.minmax import TakeAlong, named, named_result
from tinytorch.ops.slicing import key_along

SortResult = named_result("sort", "values", "indices")
Sort = named(TakeAlong, "SortBackward0")  # the name that the graph shows


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


class ArgSort(Function):
    """The indices of the elements in the order along `dim`."""

    differentiable = False

    def forward(ctx, x: Any, dim: int, descending: bool) -> Any:
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


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.core.dtype import int8

    ties = tensor([1.0, 2.0, 1.0, 2.0], requires_grad=True)
    print("rising:", argsort(ties).tolist(), "backwards:", argsort(ties).tolist()[::-1])
    # -> rising: [0, 2, 1, 3] backwards: [3, 1, 2, 0]
    print("falling:", argsort(ties, descending=True).tolist())  # -> falling: [1, 3, 0, 2]
    values, indices = sort(ties, descending=True)
    g = tensor([1.0, 2.0, 3.0, 4.0])
    print("gradient:", grad(values, ties, g)[0].tolist())  # -> gradient: [3.0, 1.0, 4.0, 2.0]

    broken = tensor([2.0, float("nan"), 1.0])
    print("nan:", argsort(broken).tolist(), argsort(broken, descending=True).tolist())
    # -> nan: [2, 0, 1] [1, 0, 2]
    smallest = tensor([-128, 5], dtype=int8)
    print("-x:", (-smallest).tolist(), "falling:", sort(smallest, descending=True).values.tolist())
    # -> -x: [-128, -5] falling: [5, -128]

    try:
        sort(ties, 0, 1)
    except TypeError as error:
        print(error)  # -> sort(): argument 'descending' must be bool, not 1

    # Sorted by name, then by score: "ann" stays before "bob".
    names, scores = ["ann", "bob", "cid"], tensor([7, 7, 9])
    print([names[i] for i in argsort(scores, descending=True, stable=True).tolist()])
    # -> ['cid', 'ann', 'bob']
