"""Step pool02: Pooling windows as strided views

The mean of step pool01 is slow, as the demo measures for 64 x 32 pictures of 28 x 28. NumPy adds
fast along a dimension that is long. Here it starts and ends 400,000 sums of four numbers each.

So exchange the loops. All upper left pixels of the squares form a picture of their own, a view with
stride 2, and so do the three others:

    x[0::2, 0::2]   x[0::2, 1::2]        four views, each as large as the result:
    x[1::2, 0::2]   x[1::2, 1::2]        their sum is four long additions

So a window is described by keys, one for each place in it. Along one dimension they are slices. In
several dimensions they are all combinations of slices (itertools.product), so that one function
serves rows, images and volumes.

Backward writes the gradient into the same views. Summing each window and spreading a number over
each window are adjoint: each is the derivative of the other. So the second derivative is there too.

zeros_like(x, shape=...) keeps the order in memory that x has. (A picture that lies in memory with
the channels last stays like that, and all additions run along the memory.)

Changed: avg_pool2d is avg_pool(2, ...). New: Windows, SumWindows, SpreadWindows, pooling_windows.
Try: a volume, avg_pool(3, x, 2), and count the parts of its windows.
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


class Windows(NamedTuple):
    """The windows of an array, as keys, one for each place in a window: x[key] is a strided view
    that holds the element at this place of every window."""

    sizes: tuple[int, ...]  # of the output
    parts: list[tuple]


def window_slices(out: int, k: int) -> Iterator[slice]:
    """For each place t in a window of k, in one dimension: the elements that windows have there."""
    for t in range(k):
        yield slice(t, out * k, k)


def join_dims(dims: Iterable[Iterable]) -> list[tuple]:
    """The keys in several dimensions: one for each combination of places, in the order in which the
    elements of a window are read."""
    return [(..., *place) for place in itertools.product(*dims)]


class SumWindows(Function):
    """y = the sum of each window of x."""

    def forward(ctx, x: Any, windows: Windows) -> Any:
        ctx.shape, ctx.windows = x.shape, windows
        y = ctx.xp.zeros_like(x, shape=x.shape[: -len(windows.sizes)] + windows.sizes)
        for inputs in windows.parts:
            y += x[inputs]
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SpreadWindows, g, ctx.shape, ctx.windows)


class SpreadWindows(Function):
    """The adjoint of SumWindows: each element of x is added to all elements of its window."""

    def forward(ctx, x: Any, shape: tuple, windows: Windows) -> Any:
        ctx.windows = windows
        y = ctx.xp.zeros_like(x, shape=shape)
        for inputs in windows.parts:
            y[inputs] = x
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SumWindows, g, ctx.windows)


def pooling_windows(plane: tuple, kernel: tuple) -> Windows:
    """The windows of the size `kernel` that fill a plane, one beside the other."""
    sizes = tuple(n // k for n, k in zip(plane, kernel, strict=True))
    return Windows(sizes, join_dims(map(window_slices, sizes, kernel)))


def avg_pool(ndim: int, input: Tensor, kernel_size: int) -> Tensor:
    """The mean of each window of `kernel_size` elements in each of the last `ndim` dimensions."""
    kernel = (kernel_size,) * ndim
    windows = pooling_windows(input.array.shape[-ndim:], kernel)
    return SumWindows.apply(input, windows) / math.prod(kernel)


if __name__ == "__main__":
    import time

    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    def reshaped(x: Tensor, k: int) -> Tensor:  # step pool01
        *batch, height, width = x.shape
        return x.reshape(*batch, height // k, k, width // k, k).mean((-3, -1))

    x = tensor(np.random.default_rng(0).normal(size=(64, 32, 28, 28)).astype(np.float32))
    print("the same:", np.allclose(reshaped(x, 2).array, avg_pool(2, x, 2).array, atol=1e-6))
    # -> the same: True

    def seconds(function) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times)

    ratio = seconds(lambda: reshaped(x, 2)) / seconds(lambda: avg_pool(2, x, 2))
    print(f"strided views are {ratio:.1f} times as fast")  # -> ...
    print("faster:", ratio > 1)  # -> faster: True

    image = tensor([[1.0, 3.0, 0.0, 0.0], [5.0, 7.0, 0.0, 4.0]], requires_grad=True)
    windows = pooling_windows((2, 4), (2, 2))
    for part in windows.parts:
        print(image.array[part].tolist())
    # -> [[1.0, 0.0]]
    # -> [[3.0, 0.0]]
    # -> [[5.0, 0.0]]
    # -> [[7.0, 4.0]]
    small = avg_pool(2, image, 2)
    (small * tensor([[1.0, 10.0]])).sum().backward()
    print("means:", small.tolist(), "gradient:", image.grad.tolist())
    # -> means: [[4.0, 1.0]] gradient: [[0.25, 0.25, 2.5, 2.5], [0.25, 0.25, 2.5, 2.5]]
    cube = tensor(np.random.default_rng(1).normal(size=(4, 3, 5)), requires_grad=True)
    print("first and second derivatives in one, two and three dimensions:")
    # -> first and second derivatives in one, two and three dimensions:
    for ndim in (1, 2, 3):
        means = functools.partial(avg_pool, ndim, kernel_size=2)
        print(means(cube).shape, gradcheck(means, cube) and gradgradcheck(means, cube))
    # -> tinytorch.Size([4, 3, 2]) True
    # -> tinytorch.Size([4, 1, 2]) True
    # -> tinytorch.Size([2, 1, 2]) True
