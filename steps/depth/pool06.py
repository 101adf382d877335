"""Step pool06: Average pooling at the border: count_include_pad

Average an image of ones with padding 1: the corner becomes 0.44, and the border of every picture
dark. The window in the corner has four ones and five zeros of the padding, and step pool05 divides
by nine. Which number is right depends on what the padding means, so PyTorch lets you say it:

    count_include_pad=True     divide by 9: the zeros are pixels like others
    count_include_pad=False    divide by the number of pixels that are there: 4 in the corner
    divisor_override=1         divide by a number of your own: 1 gives sums

The number of pixels is a product, (rows that are there) x (columns that are there). So it is enough
to count along each dimension, and the table of all counts is an outer product. In the interior and
without padding all counts are equal, and the division stays one by a number.

The trap is float16: a sum of a large window is far above its mean. 64 x 64 ones add up to 4,096,
and float16 counts one by one only up to 2,048. As everywhere (step 61e), halves are added as
float32 and rounded once, at the end.

Changed: avg_pool; pooling_windows also returns the numbers of each dimension. New: window_counts.
Try: leave out the first cast. What is the mean of the 64 x 64 ones?
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops import elementwise, matmul, minmax, reduction  # noqa: F401 (their methods)
from tinytorch.ops.conversion import cast
from tinytorch.ops.elementwise import opmath_type


class Windows(NamedTuple):
    """The windows of an array, as pairs of keys (outputs, inputs), one for each place in a window.

    x[inputs] is a strided view that holds the element at this place of every window, except of
    those that have it in the padding: they are not among the `outputs`.
    """

    sizes: tuple[int, ...]  # of the output
    parts: list[tuple[tuple, tuple]]
    overlap: bool


def window_slices(n: int, out: int, k: int, stride: int, pad: int, dilation: int) -> Iterator:
    """For each place t in a window of k, in one dimension: (outputs, inputs) as two slices.

    Output o sees input o * stride + t * dilation - pad, if that is in 0..n-1.
    """
    for t in range(k):
        start = t * dilation - pad
        first = max(0, -(start // stride))
        last = max(first, min(out, (n - 1 - start) // stride + 1))
        stop = max(0, start + (last - 1) * stride + 1)  # below 0 it would count from the end
        yield slice(first, last), slice(start + first * stride, stop, stride)


def join_dims(dims: Iterable[Iterable]) -> list[tuple[tuple, tuple]]:
    """The pairs of keys in several dimensions: one for each combination of places, in the order in
    which the elements of a window are read."""
    places = itertools.product(*dims)
    return [tuple((..., *keys) for keys in zip(*place, strict=True)) for place in places]


class MaxPool(Function):
    """y = the largest x of each window.

    The first of equal ones gets the gradient. A window that holds a nan gives nan.
    """

    saves = (None,)

    def forward(ctx, x: Any, windows: Windows) -> Any:
        xp, ctx.shape, ctx.windows = ctx.xp, x.shape, windows
        low = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -math.inf
        y = xp.full_like(x, low, shape=x.shape[: -len(windows.sizes)] + windows.sizes)
        (outputs, inputs), *others = windows.parts
        y[outputs] = x[inputs]
        # The number of the part that each maximum comes from: a byte, where PyTorch keeps eight.
        choice = xp.zeros_like(y, dtype=np.uint8 if len(others) < 256 else np.int32)
        for number, (outputs, inputs) in enumerate(others, 1):
            best, seen, chosen = y[outputs], x[inputs], choice[outputs]
            xp.maximum(chosen, (seen > best).astype(choice.dtype) * number, out=chosen)
            xp.maximum(best, seen, out=best)
        ctx.save_for_backward(choice)
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SpreadWindows, g, ctx.shape, ctx.windows, ctx.saved[0])


class SumWindows(Function):
    """y = the sum of each window of x; with `choice`, of each window the element of that number."""

    saves = (2,)

    def forward(ctx, x: Any, windows: Windows, choice: Any = None) -> Any:
        ctx.shape, ctx.windows = x.shape, windows
        ctx.save_for_backward(choice)
        y = ctx.xp.zeros_like(x, shape=x.shape[: -len(windows.sizes)] + windows.sizes)
        for number, (outputs, inputs) in enumerate(windows.parts):
            seen = x[inputs]
            y[outputs] += seen if choice is None else seen * (choice[outputs] == number)
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SpreadWindows, g, ctx.shape, ctx.windows, ctx.saved[0])


class SpreadWindows(Function):
    """The adjoint of SumWindows: each element of x is added to all elements of its window, or to
    the one of the number `choice`."""

    saves = (3,)

    def forward(ctx, x: Any, shape: tuple, windows: Windows, choice: Any = None) -> Any:
        ctx.windows = windows
        ctx.save_for_backward(choice)
        y = ctx.xp.zeros_like(x, shape=shape)
        for number, (outputs, inputs) in enumerate(windows.parts):
            factor = 1 if choice is None else choice[outputs] == number
            if windows.overlap:
                y[inputs] += x[outputs] * factor
            else:
                ctx.xp.multiply(x[outputs], factor, out=y[inputs])
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SumWindows, g, ctx.windows, ctx.saved[0])


def pooling_windows(plane: tuple, *options: tuple) -> tuple[Windows, list]:
    """The windows in a plane, and the arguments of `window_slices` for each dimension.

    options: kernel, stride, padding and dilation.
    """
    dims = []
    for n, k, s, p, d in zip(plane, *options, strict=True):
        reach = d * (k - 1) + 1
        dims.append((n, (n + 2 * p - reach) // s + 1, k, s, p, d))
    parts = join_dims(window_slices(*each) for each in dims)
    overlap = any(d * (k - 1) >= s for _, _, k, s, _, d in dims)
    return Windows(tuple(each[1] for each in dims), parts, overlap), dims


def windows_of(ndim: int, input: Tensor, *options: int | None) -> tuple[Windows, list]:
    """`pooling_windows` of a kernel, stride, padding and dilation; no stride means that of the
    kernel."""
    kernel, stride, *others = options
    stride = kernel if stride is None else stride
    values = [(value,) * ndim for value in (kernel, stride, *others)]
    return pooling_windows(input.array.shape[-ndim:], *values)


def window_counts(n: int, out: int, k: int, stride: int, pad: int, include_pad: bool) -> list[int]:
    """How many elements each window has in one dimension, with or without those of the padding."""
    low, high = (-pad, n + pad) if include_pad else (0, n)
    starts = [o * stride - pad for o in range(out)]
    return [min(start + k, high) - max(start, low) for start in starts]


def avg_pool(
    ndim: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window; `stride` and `padding` as in max pooling.

    Args:
        count_include_pad: whether the zeros of the padding count in the mean.
        divisor_override: divide the sums by this number instead.
    """
    windows, dims = windows_of(ndim, input, kernel_size, stride, padding, 1)
    x = cast(input, opmath_type(input.dtype))
    counts = [window_counts(*each[:5], count_include_pad) for each in dims]
    divisor = divisor_override or math.prod(each[0] for each in counts)
    if divisor_override is None and any(len(set(each)) > 1 for each in counts):
        sizes = functools.reduce(np.multiply.outer, counts)
        divisor = tensor(sizes, dtype=x.dtype, device=x.device)
    return cast(SumWindows.apply(x, windows) / divisor, input.dtype)


def max_pool(ndim: int, input: Tensor, kernel_size, stride=None, padding=0, dilation=1) -> Tensor:
    """The largest element of each window.

    Args:
        stride: the distance of the windows, by default `kernel_size`.
        padding: how many places around the input count as minus infinity.
        dilation: the distance of the elements in a window.
    """
    windows, _ = windows_of(ndim, input, kernel_size, stride, padding, dilation)
    return MaxPool.apply(input, windows)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    ones = tensor(np.ones((3, 4)))
    for include in (True, False):
        means = avg_pool(2, ones, 3, 1, 1, include)
        print(f"count_include_pad={include}:", np.round(means.array, 2).tolist()[0])
    # -> count_include_pad=True: [0.44, 0.67, 0.67, 0.44]
    # -> count_include_pad=False: [1.0, 1.0, 1.0, 1.0]
    print("counts of rows:", window_counts(3, 3, 3, 1, 1, False))  # -> counts of rows: [2, 3, 2]
    print("of columns:", window_counts(4, 4, 3, 1, 1, False))  # -> of columns: [2, 3, 3, 2]
    print("sums:", avg_pool(2, ones, 2, divisor_override=1).tolist())  # -> sums: [[4.0, 4.0]]
    print("a maximum has no such choice:", max_pool(2, ones, 3, 2, 1).tolist())
    # -> a maximum has no such choice: [[1.0, 1.0], [1.0, 1.0]]

    halves = tensor(np.ones((64, 64), np.float16))
    print("mean of halves:", avg_pool(2, halves, 64).item(), avg_pool(2, halves, 64).dtype)
    # -> mean of halves: 1.0 tinytorch.float16
    print("added one by one:", np.add.accumulate(np.ones(4096, np.float16))[-1])
    # -> added one by one: 2.048e+03

    image = tensor(np.random.default_rng(1).normal(size=(5, 6)), requires_grad=True)
    means = functools.partial(avg_pool, 2, kernel_size=3, padding=1, count_include_pad=False)
    print("derivatives:", gradcheck(means, image) and gradgradcheck(means, image))
    # -> derivatives: True
