"""Step pool07: ceil_mode, and sizes that do not fit

Seven pixels with windows of 2 make three means, and the seventh is left out. ceil_mode=True adds
the window that begins there and reaches beyond the end: the number of outputs is rounded up.

    out = ceil((n + 2 p - reach) / s) + 1  =  (n + 2 p - reach + s - 1) // s + 1

One window is too many if it begins in the padding behind the image, where it would see nothing. So
PyTorch takes it away: a window begins in the image or before it.

Nothing else changes: window_slices leaves out what is not there, on both sides. For the mean, the
zeros of the padding count if they are asked for, but what lies behind the padding never does.

Some arguments make no sense: a stride of 0, or a kernel larger than the image. NumPy would not
complain. A negative number of outputs makes an empty slice, and an empty picture goes on through
the network. PyTorch also refuses a padding of more than half a kernel: such windows would see only
the border. All is checked in one place, where the sizes are known. And the two flags have to be
flags (step tensor09): ceil_mode=3 would add a window or two.

Changed: pooling_windows, windows_of, avg_pool, max_pool.
Try: leave out the line `out -= ...`, and see what the window that sees nothing gives.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import check_flag
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


def pooling_windows(plane: tuple, ceil_mode: bool, *options: tuple) -> tuple[Windows, list]:
    """The windows, and the arguments of `window_slices` for each dimension.

    options: kernel, stride, padding and dilation, each with an entry for each dimension.

    Raises:
        RuntimeError: the numbers do not fit each other.
    """
    dims = []
    for n, k, s, p, d in zip(plane, *options, strict=True):
        reach = d * (k - 1) + 1
        out = (n + 2 * p - reach + (s - 1) * ceil_mode) // max(s, 1) + 1
        out -= ceil_mode and (out - 1) * s >= n + p  # a window never begins behind the input
        if min(k, s, d, out) <= 0 or not 0 <= p <= reach // 2:
            raise RuntimeError(
                f"no windows in size {n} with kernel {k}, stride {s}, padding {p} (at most half a "
                f"kernel), dilation {d}"
            )
        dims.append((n, out, k, s, p, d))
    parts = join_dims(window_slices(*each) for each in dims)
    overlap = any(d * (k - 1) >= s for _, _, k, s, _, d in dims)
    return Windows(tuple(each[1] for each in dims), parts, overlap), dims


def windows_of(
    ndim: int, input: Tensor, ceil_mode: bool, *options: int | None
) -> tuple[Windows, list]:
    """`pooling_windows` of a kernel, stride, padding and dilation; no stride means that of the
    kernel."""
    check_flag("ceil_mode", ceil_mode)
    kernel, stride, *others = options
    stride = kernel if stride is None else stride
    values = [(value,) * ndim for value in (kernel, stride, *others)]
    return pooling_windows(input.array.shape[-ndim:], ceil_mode, *values)


def window_counts(n: int, out: int, k: int, stride: int, pad: int, include_pad: bool) -> list[int]:
    """How many elements each window has in one dimension, with or without those of the padding.
    What lies behind the padding, in ceil_mode, never counts."""
    low, high = (-pad, n + pad) if include_pad else (0, n)
    starts = [o * stride - pad for o in range(out)]
    return [min(start + k, high) - max(start, low) for start in starts]


def avg_pool(
    ndim: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window; `stride`, `padding` and `ceil_mode` as in max pooling.

    Args:
        count_include_pad: whether the zeros of the padding count in the mean.
        divisor_override: divide the sums by this number instead.

    Raises:
        RuntimeError: the numbers do not fit.
    """
    check_flag("count_include_pad", count_include_pad)
    windows, dims = windows_of(ndim, input, ceil_mode, kernel_size, stride, padding, 1)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    x = cast(input, opmath_type(input.dtype))
    counts = [window_counts(*each[:5], count_include_pad) for each in dims]
    divisor = divisor_override or math.prod(each[0] for each in counts)
    if divisor_override is None and any(len(set(each)) > 1 for each in counts):
        sizes = functools.reduce(np.multiply.outer, counts)
        divisor = tensor(sizes, dtype=x.dtype, device=x.device)
    return cast(SumWindows.apply(x, windows) / divisor, input.dtype)


def max_pool(
    nd: int, input: Tensor, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False
) -> Tensor:
    """The largest element of each window.

    Args:
        stride: the distance of the windows, by default `kernel_size`.
        padding: how many places around the input count as minus infinity.
        dilation: the distance of the elements in a window.
        ceil_mode: a last window may reach beyond the end.

    Raises:
        RuntimeError: the numbers do not fit.
    """
    windows, _ = windows_of(nd, input, ceil_mode, kernel_size, stride, padding, dilation)
    return MaxPool.apply(input, windows)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    x = tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0])
    for ceil_mode in (False, True):
        pools = [pool(1, x, 2, ceil_mode=ceil_mode).tolist() for pool in (max_pool, avg_pool)]
        print(f"ceil_mode={ceil_mode}:", *pools)
    # -> ceil_mode=False: [2.0, 4.0, 6.0] [1.5, 3.5, 5.5]
    # -> ceil_mode=True: [2.0, 4.0, 6.0, 9.0] [1.5, 3.5, 5.5, 9.0]
    # With padding 1 two windows of 2 see (pad, 1) and (2, 3). A third would begin behind the image.
    two = max_pool(1, tensor([1.0, 2.0, 3.0]), 2, 2, 1, ceil_mode=True)
    print("not three:", two.tolist())  # -> not three: [1.0, 3.0]
    # The last window of 4 has 6, 9, a zero of the padding, and a place behind it.
    print("last mean:", avg_pool(1, x, 4, 3, 1, ceil_mode=True).tolist()[-1])  # -> last mean: 5.0

    for options in ((2, 0), (8,), (2, 2, 2)):
        try:
            max_pool(1, x, *options)
        except RuntimeError as error:
            print(error)
    # -> no windows in size 7 with kernel 2, stride 0, padding 0 (at most half a kernel), dilation 1
    # -> no windows in size 7 with kernel 8, stride 8, padding 0 (at most half a kernel), dilation 1
    # -> no windows in size 7 with kernel 2, stride 2, padding 2 (at most half a kernel), dilation 1
    try:
        avg_pool(1, x, 2, divisor_override=0)
    except RuntimeError as error:
        print(error)  # -> divisor must be not zero
    try:
        max_pool(1, x, 2, ceil_mode=3)
    except TypeError as error:
        print(error)  # -> max_pool(): argument 'ceil_mode' must be bool, not 3
    x.requires_grad_()
    pool = functools.partial(max_pool, 1, kernel_size=3, stride=2, padding=1, ceil_mode=True)
    print("derivatives:", gradcheck(pool, x.double()) and gradgradcheck(pool, x.double()))
    # -> derivatives: True
