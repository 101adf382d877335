"""Step derived06: How many lie in each bin

The activations of a layer, the gradients of a parameter, the sizes of the updates: a mean does not
tell whether a tanh is saturated. A picture of the distribution does. Its bars count how many
elements lie in each of n bins between two edges:

    edges    0      1      2      3         0.2   1.0   1.5   3.0   4.0
    count      1      2      1              the bin of 1.0 begins with it; 4.0 is in no bin

The bins have equal widths here, so a division gives the bin of an element, and bincount counts how
often each bin occurs:

    place = (x - low) * n / (high - low), rounded down

The trap is the last edge. A bin includes its lower edge but not its upper one, so the largest
element, which is the last edge, would get the number n, one too many. `minimum` puts it into the
last bin, which includes both of its edges.

(PyTorch's word is histc, and its counts have the type of the input, as its kernels once had.)

New: CountInEqualBins, checked_range, histc.
Try: leave out `minimum`, and count [1.0, 2.0] in two bins.
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import float32, promote_types
from tinytorch.core.tensor import Tensor, tensor_method

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison minmax indexing reduction".split():
    importlib.import_module(f"tinytorch.ops.{name}")
importlib.import_module("tinytorch.core.printing")


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


if __name__ == "__main__":
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    x = tensor([0.2, 1.0, 1.5, 3.0, 4.0, float("nan")])
    print(histc(x, bins=3, min=0, max=3).tolist())  # -> [1.0, 2.0, 1.0]

    # The edges are not computed: the fourth of eleven from 0 to 1 would be 0.30000000000000004.
    tenths = tensor([i / 10 for i in range(10)], dtype=float64)
    print(histc(tenths, 10, 0, 1).tolist())
    # -> [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]

    # Without a range, from the smallest to the largest.
    print(histc(tensor([1.0, 2.0, 2.0, 7.0]).half(), 2))
    # -> tensor([3., 1.], dtype=tinytorch.float16)
    print(histc(tensor([5.0, 5.0]), 4).tolist(), histc(tensor([]), 2).tolist())
    # -> [0.0, 0.0, 2.0, 0.0] [0.0, 0.0]

    # A layer before its tanh, too large and as it should be.
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    for size in (5.0, 0.5):
        counts = histc((randn(10000) * size).tanh(), 5, -1.0, 1.0)
        print([round(count, 1) for count in (counts / 10000).tolist()])
    # -> [0.4, 0.0, 0.0, 0.0, 0.4]
    # -> [0.1, 0.3, 0.3, 0.3, 0.1]

    for wrong in (
        lambda: histc(x),
        lambda: histc(x, 0),
        lambda: histc(x, 3, 2, 1),
        lambda: histc(tensor([1, 2])),
    ):
        try:
            wrong()
        except (RuntimeError, NotImplementedError) as error:
            print(type(error).__name__, str(error).partition(",")[0])
    # -> RuntimeError the range of the bins is not finite: [nan
    # -> RuntimeError bins must be > 0
    # -> RuntimeError the range of the bins ends before it begins: [2
    # -> NotImplementedError histc() is not implemented for tinytorch.int64
