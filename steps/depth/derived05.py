"""Step derived05: Quantiles

How slow is a program for one user in a hundred? The median answers for one in two, `kthvalue` for
the k-th of n. A quantile is asked for by a part q of the elements, and q (n - 1) need not be whole:

    rank      0      1      2      3
    value    10     20     40     80          q = 0.5:  rank 1.5, between 20 and 40:  30

The value is interpolated between its two neighbours, with `lerp`, so that both get a part of the
gradient. `interpolation` takes the lower, the higher, or the nearest neighbour instead, or the
point in the middle of both.

Several q are answered from one sorting, and their dimension comes first. The trap is nan again: one
of them makes the answer nan, as no rank is known.

New: QUANTILES, quantile.
Try: ask for q = 0.5 of four elements, and compare with their median.
"""

import importlib
import math
from typing import Any

from tinytorch.core.dtype import int64
from tinytorch.core.tensor import Tensor, as_tensor
from tinytorch.ops.broadcast import as_integer
from tinytorch.ops.comparison import isnan, lerp, where
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.elementwise import ceil, floor, round
from tinytorch.ops.extremes import named_result
from tinytorch.ops.gather import index_select, masked_fill
from tinytorch.ops.parts import key_along
from tinytorch.ops.reduction import any as any_of
from tinytorch.ops.reduction import reduction
from tinytorch.ops.shape import movedim, reshape
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


QUANTILES = {"lower": floor, "higher": ceil, "nearest": round}


@reduction
def quantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The value below which the part q of the elements along `dim` lies, q in 0..1; of several q,
    in front of the other dimensions. Between two elements it is interpolated. One nan makes nan.

    Raises:
        RuntimeError: for integers, q outside of 0..1, no elements, an unknown `interpolation`.
    """
    q = as_tensor(q, dtype=input.dtype, device=input.device)
    x = input if dim is not None and input.array.ndim else reshape(input, (-1,))
    at = normalize_dim(0 if dim is None else dim, x.array.ndim)
    outside = q.array.size and not bool((q.array >= 0).all() and (q.array <= 1).all())
    if not input.is_floating_point() or q.array.ndim > 1 or outside or x.array.shape[at] == 0:
        raise RuntimeError(f"quantile() of {input.dtype!r} {list(input.shape)} at q = {q.tolist()}")
    if interpolation not in ("linear", "midpoint", *QUANTILES):
        raise RuntimeError(f"quantile(): unknown interpolation {interpolation!r}")
    rows = movedim(sort(x, at).values, at, -1)
    place = reshape(q, (-1,)) * (rows.array.shape[-1] - 1)
    place = QUANTILES.get(interpolation, lambda place: place)(place)
    below, above = (index_select(rows, -1, f(place).to(int64)) for f in (floor, ceil))
    weight = place - floor(place) if interpolation != "midpoint" else place * 0 + 0.5
    values = movedim(lerp(below, above, weight.expand(below.shape)), -1, 0)
    values = masked_fill(values, any_of(isnan(rows), -1), float("nan"))
    if keepdim:
        kept = [1 if i == at or dim is None else n for i, n in enumerate(input.array.shape)]
        values = reshape(values, (values.array.shape[0], *kept))
    return values if q.array.ndim else values[0]


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")
    importlib.import_module("tinytorch.autograd.backward")

    x = tensor([40.0, 10.0, 80.0, 20.0], requires_grad=True)
    print(quantile(x, 0.5).item(), median(x).item(), quantile(x, 0.99).item())  # -> 30.0 20.0 78.8
    quantile(x, 0.25).backward()
    print(x.grad.tolist())  # -> [0.0, 0.25, 0.0, 0.75]

    x = x.detach()
    print([quantile(x, 0.4, interpolation=way).item() for way in ("lower", "higher", "nearest")])
    # -> [20.0, 40.0, 20.0]
    print(quantile(x, 0.4, interpolation="midpoint").item())  # -> 30.0
    table = tensor([[1.0, 2.0, 3.0], [5.0, math.nan, 4.0]])
    print(quantile(table, tensor([0.0, 0.5, 1.0]), 1).tolist())
    # -> [[1.0, nan], [2.0, nan], [3.0, nan]]
    print(quantile(table[:1], 0.5, 1, keepdim=True).tolist())  # -> [[2.0]]

    for wrong in (lambda: quantile(x, 1.5), lambda: quantile(x, 0.5, interpolation="none")):
        try:
            wrong()
        except RuntimeError as error:
            print(error)
    # -> quantile() of tinytorch.float32 [4] at q = 1.5
    # -> quantile(): unknown interpolation 'none'
