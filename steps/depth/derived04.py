"""Step derived04: The median, and elements by their rank

One row of a table holds a typing error, 4000 in the place of 40. The mean moves by hundreds, and a
loss that is divided by it learns nothing. The median does not move: it is the middle one of the
sorted elements.

    kthvalue    the k-th smallest element: position k - 1 of the sorted row
    median      the one with as many before it as after it

Both are a position in what `sort` returns, and `sort` already says where each element came from.
So the gradient goes to one element, the chosen one.

The traps: of an even number, PyTorch's median is the lower one of the two in the middle, and not
their mean (as NumPy's is): it is always an element. And a nan, which cannot be ordered, is sorted
last, where the median would not notice it: so the last element is asked for it.

New: KthResult, MedianResult, element_at, kthvalue, median.
Try: return `parts` at the middle without the question for nan.
"""

import importlib
import math
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.ops.broadcast import as_integer
from tinytorch.ops.comparison import isnan, where
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.extremes import named_result
from tinytorch.ops.parts import key_along
from tinytorch.ops.reduction import reduction
from tinytorch.ops.shape import reshape
from tinytorch.ops.sorting import sort

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison creation indexing joining sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")

KthResult = named_result("kthvalue", "values", "indices")
MedianResult = named_result("median", "values", "indices")


def element_at(rank: int, parts: tuple, dim: int, keepdim: bool) -> list:
    """The elements of this rank, counted from 0, of values and indices sorted along `dim`."""
    return [part[key_along(dim, slice(rank, rank + 1) if keepdim else rank)] for part in parts]


@reduction
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> KthResult:
    """(values, indices) of the k-th smallest element along `dim`; the smallest one has k = 1.

    Raises:
        RuntimeError: there are fewer than k elements.
    """
    dim, k = normalize_dim(dim, input.array.ndim), as_integer(k)
    x = input if input.array.ndim else reshape(input, (1,))
    if not 1 <= k <= x.array.shape[dim]:
        raise RuntimeError(f"kthvalue(): k = {k} is out of range for {x.array.shape[dim]} elements")
    return KthResult(*element_at(k - 1, sort(x, dim), dim, keepdim and input.array.ndim > 0))


@reduction
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle one of the sorted elements, and of an even number the lower one of the two in the
    middle: always an element, to which the gradient goes. With `dim`, (values, indices).

    A nan is the median of its row. That of no elements is nan.

    Raises:
        IndexError: the dimension has no elements.
    """
    if dim is None and input.array.size == 0:
        return input.new_full((), float("nan"))
    if dim is None:
        return median(reshape(input, (-1,)), 0).values
    dim = normalize_dim(dim, input.array.ndim)
    keepdim, x = keepdim and input.array.ndim > 0, input if input.array.ndim else input[None]
    n = x.array.shape[dim]
    if n == 0:
        raise IndexError(f"median(): Expected reduction dim {dim} to have non-zero size.")
    parts = sort(x, dim)
    values, indices = element_at((n - 1) // 2, parts, dim, keepdim)
    last, place = element_at(n - 1, parts, dim, keepdim)  # a nan is sorted last
    unknown = isnan(last)
    return MedianResult(where(unknown, last, values), where(unknown, place, indices))


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")
    importlib.import_module("tinytorch.autograd.backward")

    ages = tensor([38.0, 41.0, 4000.0, 40.0, 39.0], requires_grad=True)
    print("mean:", ages.mean().item(), " median:", median(ages).item())
    # -> mean: 831.6  median: 40.0
    median(ages).backward()
    print(ages.grad.tolist())  # -> [0.0, 0.0, 0.0, 1.0, 0.0]
    print(median(tensor([4, 1, 3, 2])).item(), np.median([4, 1, 3, 2]))  # -> 2 2.5

    rows = tensor([[3.0, 1.0, 2.0], [5.0, math.nan, 4.0]])
    print(rows.median(1).values.tolist(), rows.median(1).indices.tolist())  # -> [2.0, nan] [2, 1]
    print(median(rows, 0, keepdim=True).values.shape)  # -> tinytorch.Size([1, 3])
    print(median(tensor(7.0), 0).values.item(), median(tensor([])).item())  # -> 7.0 nan
    print(kthvalue(rows[0], 1))
    # -> tinytorch.return_types.kthvalue(
    # -> values=tensor(1.),
    # -> indices=tensor(1))

    for wrong in (lambda: rows[0].kthvalue(4), lambda: median(rows[:, :0], 1)):
        try:
            wrong()
        except (RuntimeError, IndexError) as error:
            print(error)
    # -> kthvalue(): k = 4 is out of range for 3 elements
    # -> median(): Expected reduction dim 1 to have non-zero size.
