"""Step pool08: Pooling in one, two and three dimensions

max_pool(2, x, ...) works for any number of dimensions, but programs call max_pool2d(x, ...), and
max_pool2d(x, (2, 3)) for windows of 2 x 3. Three small things lead from one to the other.

A number stands for all dimensions: `for_each_dim` makes (2, 2) of it.

An input is one picture for each channel, [channels, h, w], or a batch of them. So max_pool2d takes
3 or 4 dimensions, and `plane_of` refuses others: without that check, max_pool3d of an image with
three channels would pool over the colors, and NumPy would find nothing wrong.

functools.partial(function, 2) is `function` with its first argument filled in. `for_dims` makes the
three functions of each family from one, and gives them their names.

The arguments have to be turned into windows at each call, in Python, which takes longer than the
pooling of a small picture does. A network calls its layers with the same shapes all the time. So
pooling_windows remembers its results: `lru_cache` looks its arguments up in a dict. They have to be
hashable, so they are tuples and not lists.

Changed: pooling_windows and windows_of. New: for_each_dim, plane_of, for_dims; max_pool1d to 3d and
avg_pool1d to 3d.
Try: max_pool2d(image, [2, 3]), and leave out `tuple(...)` in for_each_dim. What does the cache say?
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import check_flag
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops import elementwise, matmul, minmax, reduction  # noqa: F401 (their methods)
from tinytorch.ops.arguments import as_integer
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


def for_each_dim(value: Any, ndim: int) -> tuple[Any, ...]:
    """`value` as a tuple with an entry for each dimension: 2 and (2,) stand for (2, 2).

    Raises:
        RuntimeError: there is another number of entries.
        TypeError: an entry is neither an integer nor None.
    """
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    values = tuple([n if n is None or type(n) is int else as_integer(n) for n in values])
    if len(values) not in (1, ndim):
        raise RuntimeError(f"expected one number or {ndim}, got {len(values)}")
    return values * ndim if len(values) == 1 else values


def plane_of(ndim: int, input: Tensor) -> tuple[int, ...]:
    """The last `ndim` sizes of an input [channels, ...] or [batch, channels, ...].

    Raises:
        RuntimeError: it has another number of dimensions, or a size other than the batch is 0.
    """
    shape = input.array.shape
    if not 1 <= len(shape) - ndim <= 2 or 0 in shape[-ndim - 1 :]:
        raise RuntimeError(
            f"expected a {ndim + 1}D or {ndim + 2}D input with elements, got {shape}"
        )
    return shape[-ndim:]


@functools.lru_cache
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


def windows_of(ndim: int, input: Tensor, ceil_mode: bool, *options: Any) -> tuple[Windows, list]:
    """`pooling_windows` from arguments as people write them: no stride means that of the kernel."""
    check_flag("ceil_mode", ceil_mode)
    kernel, stride, *others = options
    if stride is None or (isinstance(stride, (tuple, list)) and not stride):
        stride = kernel
    values = [for_each_dim(value, ndim) for value in (kernel, stride, *others)]
    return pooling_windows(plane_of(ndim, input), ceil_mode, *values)


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


def for_dims(function: Callable) -> list[Callable]:
    """`function` for one, two and three dimensions: max_pool1d, max_pool2d and max_pool3d."""
    functions = [functools.partial(function, ndim) for ndim in (1, 2, 3)]
    for ndim, each in enumerate(functions, 1):
        each.__name__, each.__doc__ = f"{function.__name__}{ndim}d", function.__doc__
    return functions


max_pool1d, max_pool2d, max_pool3d = for_dims(max_pool)


avg_pool1d, avg_pool2d, avg_pool3d = for_dims(avg_pool)


if __name__ == "__main__":
    import time

    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)

    image = tensor(np.arange(24.0).reshape(1, 4, 6))
    print(max_pool2d.__name__, max_pool2d(image, (2, 3)).tolist())
    # -> max_pool2d [[[8.0, 11.0], [20.0, 23.0]]]
    print(avg_pool1d.__name__, avg_pool1d(tensor([[1.0, 2.0, 6.0]]), 3).tolist())
    # -> avg_pool1d [[3.0]]
    print(avg_pool3d.__name__, avg_pool3d(tensor(np.ones((2, 5, 4, 4, 4))), 2).shape)
    # -> avg_pool3d tinytorch.Size([2, 5, 2, 2, 2])
    for wrong in (lambda: max_pool3d(image, 2), lambda: max_pool2d(image, (2, 2, 2))):
        try:
            wrong()
        except RuntimeError as error:
            print(error)
    # -> expected a 4D or 5D input with elements, got (1, 4, 6)
    # -> expected one number or 2, got 3

    numbers = ((28, 28), False, (3, 3), (2, 2), (1, 1), (1, 1))

    def seconds(function) -> float:
        start = time.perf_counter()
        for _ in range(200):
            function(*numbers)
        return time.perf_counter() - start

    ratio = seconds(pooling_windows.__wrapped__) / seconds(pooling_windows)
    print(f"remembered: {ratio:.0f} times as fast")  # -> ...
    print("more than 5 times:", ratio > 5)  # -> more than 5 times: True
