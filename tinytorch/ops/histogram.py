"""How many elements lie in each bin: histc and histogram."""

import math
import operator
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import float32, float64, promote_types
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.creation import linspace
from tinytorch.ops.minmax import named_result

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
