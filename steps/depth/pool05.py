"""Step pool05: Padding and dilation of pooling windows

A window of 3 x 3 with stride 2 makes 27 pixels of 56: the last is lost. With a border of one pixel
around the image, padding 1, there are 28, and networks are easier to plan:

    out = (n + 2 p - reach) // s + 1        reach = d (k - 1) + 1, from its first to its last

d, the dilation, is the distance of the elements in a window: k = 3, d = 2 looks at every other one.

Which value does the border have? For a mean it is 0. For a maximum 0 would be wrong: the largest of
-3 and -6 is -3 and not 0. It has to be a value that never wins, minus infinity, and for integers
their smallest number.

The border never has to be made. In the view of place t some windows are missing, those that have
this place in the border. So a part is a pair of keys now, (outputs, inputs): which windows, and
what they see. Output o sees input o s + t d - p, which is at least 0 from o = (p - t d) / s on,
rounded up, and at most n - 1 up to o = (n - 1 - t d + p) / s, rounded down.

The trap is to round up with integers: -(a // s) is the quotient of -a, rounded up.

Changed: Windows, window_slices, join_dims, and the Functions, which use both keys.
Try: low = 0 in MaxPool.forward. Which line of the demo goes wrong?
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops import elementwise, matmul, minmax, reduction  # noqa: F401 (their methods)


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


def pooling_windows(plane: tuple, *options: tuple) -> Windows:
    """The windows in a plane. options: kernel, stride, padding and dilation."""
    dims = []
    for n, k, s, p, d in zip(plane, *options, strict=True):
        reach = d * (k - 1) + 1
        dims.append((n, (n + 2 * p - reach) // s + 1, k, s, p, d))
    parts = join_dims(window_slices(*each) for each in dims)
    overlap = any(d * (k - 1) >= s for _, _, k, s, _, d in dims)
    return Windows(tuple(each[1] for each in dims), parts, overlap)


def windows_of(ndim: int, input: Tensor, *options: int | None) -> Windows:
    """`pooling_windows` of a kernel, stride, padding and dilation; no stride means that of the
    kernel."""
    kernel, stride, *others = options
    stride = kernel if stride is None else stride
    values = [(value,) * ndim for value in (kernel, stride, *others)]
    return pooling_windows(input.array.shape[-ndim:], *values)


def avg_pool(ndim: int, input: Tensor, kernel_size: int, stride=None, padding: int = 0) -> Tensor:
    """The mean of each window; the zeros of the padding count."""
    windows = windows_of(ndim, input, kernel_size, stride, padding, 1)
    return SumWindows.apply(input, windows) / kernel_size**ndim


def max_pool(ndim: int, input: Tensor, kernel_size, stride=None, padding=0, dilation=1) -> Tensor:
    """The largest element of each window.

    Args:
        stride: the distance of the windows, by default `kernel_size`.
        padding: how many places around the input count as minus infinity.
        dilation: the distance of the elements in a window.
    """
    return MaxPool.apply(input, windows_of(ndim, input, kernel_size, stride, padding, dilation))


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    zeros = max_pool(1, tensor([0.0, -3.0, -6.0, -2.0, -7.0, 0.0]), 3, 2)
    print("with a border of zeros:", zeros.tolist())  # -> with a border of zeros: [0.0, -2.0]
    x = tensor([-3.0, -6.0, -2.0, -7.0], requires_grad=True)
    windows = windows_of(1, x, 3, 2, 1, 1)
    for t, (outputs, inputs) in enumerate(windows.parts):
        print(f"place {t}: outputs {outputs[-1]} see inputs {inputs[-1]}")
    # -> place 0: outputs slice(1, 2, None) see inputs slice(1, 2, 2)
    # -> place 1: outputs slice(0, 2, None) see inputs slice(0, 3, 2)
    # -> place 2: outputs slice(0, 2, None) see inputs slice(1, 4, 2)
    y = max_pool(1, x, 3, 2, 1)
    y.sum().backward()
    print("largest:", y.tolist(), "gradient:", x.grad.tolist())
    # -> largest: [-3.0, -2.0] gradient: [1.0, 0.0, 1.0, 0.0]
    print("means:", avg_pool(1, x, 3, 2, 1).tolist())  # -> means: [-3.0, -5.0]
    print("integers:", max_pool(1, tensor([-3, -6, -2, -7]), 3, 2, 1).tolist())
    # -> integers: [-3, -2]
    print("every other one:", max_pool(1, x, 2, 1, 0, 2).tolist())
    # -> every other one: [-2.0, -6.0]

    image = tensor(np.random.default_rng(1).normal(size=(5, 6)), requires_grad=True)
    print("56 become", max_pool(1, tensor(np.zeros(56)), 3, 2, 1).numel())  # -> 56 become 28
    for function, options in (
        (avg_pool, (3, 2, 1)),
        (max_pool, (3, 2, 1)),
        (max_pool, (2, 2)),
        (max_pool, (2, 1, 1, 3)),
    ):
        pool = lambda x: function(2, x, *options)  # noqa: B023, E731
        print(function.__name__, options, gradcheck(pool, image) and gradgradcheck(pool, image))
    # -> avg_pool (3, 2, 1) True
    # -> max_pool (3, 2, 1) True
    # -> max_pool (2, 2) True
    # -> max_pool (2, 1, 1, 3) True
