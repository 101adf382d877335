"""Step derived07: Histograms: edges, weights and density

The counts of step derived06 do not say where the bins are, but a program that draws them needs the
edges too. Three more things are asked of a histogram:

    edges of one's own      incomes in bins of 0, 1, 10, 100, 1000
    weights                 not how many parcels of each size, but what they weigh together
    density                 bars that can be laid over the formula of a distribution

With edges of one's own, the bin of an element is its place among them, which a binary search finds
(step derived02). It looks among the inner edges alone, so that the last bin includes both of its
edges. For weights, bincount adds them up in place of ones. For the density, each bar is divided by
its width and by the sum of all bars, so that their areas add up to 1. The trap is to divide by the
sum alone: with 10 bins instead of 5 the bars would be half as high, and a density does not depend
on the bins.

New: CountInBins, HistogramResult, histogram.
Try: the density with 50 bins; which of them is farthest from the formula?
"""

import importlib
import math
import operator
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import float32, float64, promote_types
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.creation import linspace
from tinytorch.ops.minmax import named_result

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison minmax indexing reduction".split():
    importlib.import_module(f"tinytorch.ops.{name}")
importlib.import_module("tinytorch.core.printing")

HistogramResult = named_result("histogram", "hist", "bin_edges")


class CountInEqualBins(Function):
    """How many of the x lie in each of `bins` equal bins from `low` to `high`. The last bin
    includes its upper edge. What lies in no bin is not counted, and nan is not."""

    differentiable = False

    def forward(ctx, x: Any, bins: int, low: float, high: float) -> Any:
        x, xp = x.reshape(-1), ctx.xp
        ends = xp.asarray([low, high], dtype=x.dtype)
        x = x[(x >= ends[0]) & (x <= ends[1])]
        places = ((x - ends[0]) * bins / (ends[1] - ends[0])).astype("int64")
        return xp.bincount(xp.minimum(places, bins - 1), minlength=bins).astype(x.dtype)


class CountInBins(Function):
    """How many of the x lie in each bin between two edges, or the sum of their weights. The last
    bin includes its upper edge. What lies in no bin is not counted, and nan is not."""

    differentiable = False

    def forward(ctx, x: Any, edges: Any, weight: Any) -> Any:
        x, xp = x.reshape(-1), ctx.xp
        inside = (x >= edges[0]) & (x <= edges[-1])
        places = xp.searchsorted(edges[1:-1], x[inside], side="right")
        weights = None if weight is None else weight.reshape(-1)[inside]
        return xp.bincount(places, weights, len(edges) - 1).astype(x.dtype)


def checked_range(input: Tensor, bins: int, low: float | None, high: float | None) -> tuple:
    """Where `bins` equal bins begin and end: at `low` and `high`; else all of `input` is in them.

    Raises:
        RuntimeError: there is no bin, or the range is not finite, or its end comes first.
    """
    if bins <= 0:
        raise RuntimeError(f"bins must be > 0, but got {bins}")
    if low is None:
        low, high = (input.min().item(), input.max().item()) if input.array.size else (0.0, 1.0)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"the range of the bins is not finite: [{low}, {high}]")
    if low > high:
        raise RuntimeError(f"the range of the bins ends before it begins: [{low}, {high}]")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return low, high


@checked
@tensor_method("histc")
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of `bins` equal bins from `min` to `max`; where these are
    equal, from the smallest element to the largest. The counts have the type of `input`.

    Raises:
        RuntimeError: see `checked_range`.
        NotImplementedError: `input` is not of a floating point type.
    """
    if not input.is_floating_point():
        raise NotImplementedError(f"histc() is not implemented for {input.dtype!r}")
    wide = input.detach().to(promote_types(input.dtype, float32))  # places need more than 11 bits
    ends = checked_range(wide, bins, *((None, None) if min == max else (min, max)))
    return CountInEqualBins.apply(wide, bins, *ends).to(input.dtype)


@checked
@tensor_method("histogram")
def histogram(
    input: Tensor,
    bins: Any = 100,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """(hist, bin_edges): how many elements lie in each bin, or the sum of their weights.

    `bins` is a number of equal bins, over all elements or over `range`; or it is a tensor of the
    n + 1 edges of n bins. With density=True the area of all bars is 1.

    Raises:
        RuntimeError: see `checked_range`; for edges that are no vector, a weight of another shape
            than `input`, and where the types differ.
        NotImplementedError: `input` is not float32 or float64.
    """
    if input.dtype not in (float32, float64):
        raise NotImplementedError(f"histogram() is not implemented for {input.dtype!r}")
    if isinstance(bins, Tensor) and range is not None:
        raise TypeError("histogram(): a range goes with a number of bins, not with their edges")
    edges = bins
    if not isinstance(bins, Tensor):
        ends = checked_range(input.detach(), operator.index(bins), *(range or (None, None)))
        edges = linspace(*ends, bins + 1, dtype=input.dtype, device=input.device)
    if edges.array.ndim != 1 or edges.array.size < 2 or edges.dtype is not input.dtype:
        raise RuntimeError(
            f"histogram(): the edges must be a vector of at least 2 {input.dtype!r}, but are "
            f"{edges.dtype!r} of the shape {list(edges.array.shape)}"
        )
    if weight is not None and (weight.array.shape, weight.dtype) != (
        input.array.shape,
        input.dtype,
    ):
        raise RuntimeError(
            f"histogram(): weights {list(weight.array.shape)} of {weight.dtype!r}, but an input "
            f"{list(input.array.shape)} of {input.dtype!r}"
        )
    hist = CountInBins.apply(input, edges, weight)
    if density:
        hist = hist / (hist.sum() * (edges[1:] - edges[:-1]))
    return HistogramResult(hist, edges)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn

    x = tensor([0.2, 1.0, 1.5, 3.0, 4.0, float("nan")])
    print(histc(x, 3, 0, 3).tolist())  # -> [1.0, 2.0, 1.0]
    hist, edges = histogram(x, 3, range=(0.0, 3.0))
    print(hist.tolist(), edges.tolist())  # -> [1.0, 2.0, 1.0] [0.0, 1.0, 2.0, 3.0]
    uneven = tensor([0.0, 1.0, 4.0])
    print(histogram(x, uneven, weight=x * 10))
    # -> tinytorch.return_types.histogram(
    # -> hist=tensor([ 2., 95.]),
    # -> bin_edges=tensor([0., 1., 4.]))

    # The bars of normal numbers, beside the density exp(-x^2 / 2) / sqrt(2 pi) at their middles.
    manual_seed(0)
    hist, edges = histogram(randn(20000), 5, range=(-2.5, 2.5), density=True)
    middles = (edges[1:] + edges[:-1]) / 2
    density = (-(middles**2) / 2).exp() / math.sqrt(2 * math.pi)
    print(bool(((hist - density).abs() < 0.02).all()), round(hist.sum().item(), 4))  # -> True 1.0

    for wrong in (
        lambda: histogram(x.half()),
        lambda: histogram(x, uneven, range=(0.0, 1.0)),
        lambda: histogram(x, uneven.double()),
        lambda: histogram(x, 2, range=(0.0, 1.0), weight=uneven),
    ):
        try:
            wrong()
        except (RuntimeError, NotImplementedError, TypeError) as error:
            print(type(error).__name__, str(error).partition(",")[0])
    # -> NotImplementedError histogram() is not implemented for tinytorch.float16
    # -> TypeError histogram(): a range goes with a number of bins
    # -> RuntimeError histogram(): the edges must be a vector of at least 2 tinytorch.float32
    # -> RuntimeError histogram(): weights [3] of tinytorch.float32
