"""Step pool04: Pooling windows that overlap

AlexNet pools windows of 3 x 3 pixels that are 2 apart. Output o of such a window begins at input
2 o, and the pixel in its corner belongs to four windows. In general, with a stride s:

    output o sees inputs  o s,  o s + 1,  ...,  o s + k - 1         out = (n - k) // s + 1

Forward hardly changes: the view of place t begins at t and has the stride s. The views share pixels
now, which does not matter when they are only read.

It matters in backward. A pixel in several windows reaches the loss in several ways, and all its
gradients count. `y[inputs] = ...` keeps the last one: the mistake of step 13 again. So the parts
are added, `y[inputs] += ...`.

Within a part no pixel occurs twice, because the windows have different places, so += on a view is
right here. (With indices it would not be: step indexing01.)

Where windows do not overlap, nothing has to be added, and the product is written where it belongs:
one pass over the memory, not three. `overlap` chooses between the two.

PyTorch: the stride is by default the size of the kernel, windows side by side.
Changed: window_slices, pooling_windows and SpreadWindows. New: windows_of.
Try: write `ctx.xp.multiply` for both cases, and look at the gradient where 5 wins twice.
"""

import functools
import itertools
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
    overlap: bool


def window_slices(out: int, k: int, stride: int) -> Iterator[slice]:
    """For each place t in a window of k, in one dimension: the elements that windows have there.
    Output o sees input o * stride + t."""
    for t in range(k):
        yield slice(t, t + (out - 1) * stride + 1, stride)


def join_dims(dims: Iterable[Iterable]) -> list[tuple]:
    """The keys in several dimensions: one for each combination of places, in the order in which the
    elements of a window are read."""
    return [(..., *place) for place in itertools.product(*dims)]


class MaxPool(Function):
    """y = the largest x of each window.

    The first of equal ones gets the gradient. A window that holds a nan gives nan.
    """

    saves = (None,)

    def forward(ctx, x: Any, windows: Windows) -> Any:
        xp, ctx.shape, ctx.windows = ctx.xp, x.shape, windows
        first, *others = windows.parts
        y = xp.copy(x[first])
        # The number of the part that each maximum comes from: a byte, where PyTorch keeps eight.
        choice = xp.zeros_like(y, dtype=np.uint8 if len(others) < 256 else np.int32)
        for number, inputs in enumerate(others, 1):
            seen = x[inputs]
            xp.maximum(choice, (seen > y).astype(choice.dtype) * number, out=choice)
            xp.maximum(y, seen, out=y)
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
        for number, inputs in enumerate(windows.parts):
            seen = x[inputs]
            y += seen if choice is None else seen * (choice == number)
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
        for number, inputs in enumerate(windows.parts):
            factor = 1 if choice is None else choice == number
            if windows.overlap:
                y[inputs] += x * factor
            else:
                ctx.xp.multiply(x, factor, out=y[inputs])
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SumWindows, g, ctx.windows, ctx.saved[0])


def pooling_windows(plane: tuple, kernel: tuple, stride: tuple) -> Windows:
    """The windows of the size `kernel` in a plane, `stride` apart, as many as there are."""
    triples = list(zip(plane, kernel, stride, strict=True))
    sizes = tuple((n - k) // s + 1 for n, k, s in triples)
    overlap = any(k > s for _, k, s in triples)
    return Windows(sizes, join_dims(map(window_slices, sizes, kernel, stride)), overlap)


def windows_of(ndim: int, input: Tensor, *options: int | None) -> Windows:
    """`pooling_windows` of a kernel and a stride; no stride means that of the kernel."""
    kernel, stride = options
    stride = kernel if stride is None else stride
    values = [(value,) * ndim for value in (kernel, stride)]
    return pooling_windows(input.array.shape[-ndim:], *values)


def avg_pool(ndim: int, input: Tensor, kernel_size: int, stride: int | None = None) -> Tensor:
    """The mean of each window of `kernel_size` elements in each of the last `ndim` dimensions."""
    return SumWindows.apply(input, windows_of(ndim, input, kernel_size, stride)) / kernel_size**ndim


def max_pool(ndim: int, input: Tensor, kernel_size: int, stride: int | None = None) -> Tensor:
    """The largest element of each window of `kernel_size` elements in each dimension."""
    return MaxPool.apply(input, windows_of(ndim, input, kernel_size, stride))


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    x = tensor([0.0, 1.0, 5.0, 2.0, 3.0, 4.0, 1.0], requires_grad=True)
    y = max_pool(1, x, 3, 2)
    print("three windows of", x.numel(), "numbers:", y.tolist())
    # -> three windows of 7 numbers: [5.0, 5.0, 4.0]
    y.sum().backward()
    print("5 wins twice:", x.grad.tolist())  # -> 5 wins twice: [0.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0]

    windows = windows_of(1, x, 3, 2)
    print("parts:", [part[-1] for part in windows.parts])
    # -> parts: [slice(0, 5, 2), slice(1, 6, 2), slice(2, 7, 2)]
    spread = SpreadWindows.apply(tensor([1.0, 1.0, 1.0]), (7,), windows)
    print("windows that see each number:", spread.tolist())
    # -> windows that see each number: [1.0, 1.0, 2.0, 1.0, 2.0, 1.0, 1.0]
    wrong = SpreadWindows.apply(tensor([1.0, 1.0, 1.0]), (7,), windows._replace(overlap=False))
    print("not added:", wrong.tolist())  # -> not added: [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]

    gaps = avg_pool(1, x, 2, 3)
    print("windows with gaps:", gaps.tolist())  # -> windows with gaps: [0.5, 2.5]
    image = tensor(np.random.default_rng(1).normal(size=(5, 6)), requires_grad=True)
    for function in (avg_pool, max_pool):
        pool = functools.partial(function, 2, kernel_size=3, stride=2)
        print(function.__name__, gradcheck(pool, image) and gradgradcheck(pool, image))
    # -> avg_pool True
    # -> max_pool True
