"""Step pool09: Max pooling with the indices of the maxima

Some networks go back from the small picture to a large one, and each maximum is to return to its
place: SegNet does so, and PyTorch's max_unpool. They need the place as a number: the index in the
plane of the input, counted row by row.

We have it in another form, as the number of the part (step pool03). To translate it, take a picture
of the places, 0, 1, 2, ..., and pool it with the same choice: SumWindows with `choice` takes of
each window the element that was chosen. No new code is needed, and padding, stride and dilation are
right already.

The picture of places is broadcast to all pictures of the batch, which takes no memory (step 36b).

The second result holds integers, so it has no gradient. MaxPool.backward gets one for each result
and ignores the second.

The choice costs as much time as the maximum. When a trained network is used, neither a gradient nor
an index is asked for, and MaxPool leaves the choice out. Where it is made, each view is read twice.
A view with a stride is slow to read, so it is copied once.

Changed: MaxPool and max_pool. Each of the three functions takes return_indices.
Try: pool a picture with windows of 3 and padding 1. Is any index outside of the picture?
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
    """y = the largest x of each window, and, with `indices`, its place in x.

    The first of equal ones gets the gradient. A window that holds a nan gives nan.
    """

    saves = (None,)

    def forward(ctx, x: Any, windows: Windows, indices: bool) -> Any:
        xp, ctx.shape, ctx.windows = ctx.xp, x.shape, windows
        low = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -math.inf
        y = xp.full_like(x, low, shape=x.shape[: -len(windows.sizes)] + windows.sizes)
        (outputs, inputs), *others = windows.parts
        y[outputs] = x[inputs]
        if not indices and not any(ctx.needs_input_grad):
            for outputs, inputs in others:
                xp.maximum(y[outputs], x[inputs], out=y[outputs])
            return y
        # The number of the part that each maximum comes from: a byte, where PyTorch keeps eight.
        choice = xp.zeros_like(y, dtype=np.uint8 if len(others) < 256 else np.int32)
        scratch = xp.empty_like(y)
        for number, (outputs, inputs) in enumerate(others, 1):
            best, seen, chosen = y[outputs], scratch[outputs], choice[outputs]
            seen[...] = x[inputs]  # it is read twice, which takes longer with a stride
            xp.maximum(chosen, (seen > best).astype(choice.dtype) * number, out=chosen)
            xp.maximum(best, seen, out=best)
        ctx.save_for_backward(choice)
        if not indices:
            return y
        plane = x.shape[-len(windows.sizes) :]
        places = xp.broadcast_to(xp.arange(math.prod(plane)).reshape(plane), x.shape)
        return y, ctx.call(SumWindows, places, windows, choice)

    def backward(ctx, g: Any, _: Any = None) -> Any:
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
    nd,
    input,
    kernel_size,
    stride=None,
    padding=0,
    dilation=1,
    ceil_mode=False,
    return_indices=False,
) -> Any:
    """The largest element of each window.

    Args:
        stride: the distance of the windows, by default `kernel_size`.
        padding: how many places around the input count as minus infinity.
        dilation: the distance of the elements in a window.
        ceil_mode: a last window may reach beyond the end.
        return_indices: also return where in its plane, counted row by row, each maximum was.

    Raises:
        RuntimeError: the numbers do not fit.
    """
    windows, _ = windows_of(nd, input, ceil_mode, kernel_size, stride, padding, dilation)
    return MaxPool.apply(input, windows, return_indices)


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
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.gather import scatter

    image = tensor([[[1.0, 3.0, 0.0, 2.0], [5.0, 4.0, 9.0, 6.0]]], requires_grad=True)
    values, places = max_pool2d(image, 2, return_indices=True)
    print("largest:", values.tolist(), "at", places.tolist())
    # -> largest: [[[5.0, 9.0]]] at [[[4, 6]]]
    back = scatter(zeros(1, 8), 1, places.flatten(1), values.flatten(1))
    print("back in place:", back.reshape(1, 2, 4).tolist())
    # -> back in place: [[[0.0, 0.0, 0.0, 0.0], [5.0, 0.0, 9.0, 0.0]]]
    values.sum().backward()
    print("gradient:", image.grad.tolist(), places.requires_grad)
    # -> gradient: [[[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]]] False

    x = tensor(np.random.default_rng(0).normal(size=(64, 32, 28, 28)).astype(np.float32))

    def seconds(x: Tensor) -> float:
        start = time.perf_counter()
        max_pool2d(x, 2)
        return time.perf_counter() - start

    used = min(seconds(x) for _ in range(5))
    trained = min(seconds(x.detach().requires_grad_()) for _ in range(5))
    print(f"with the choice: {trained / used:.1f} times as long")  # -> ...
    print("longer:", trained > used)  # -> longer: True
