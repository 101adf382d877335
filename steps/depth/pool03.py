"""Step pool03: Max pooling as one node

Step 50d built max pooling: the largest of each window, and where several are equal the first gets
the gradient. There argmax found it in a copy of the windows. Here a window is a few views (step
pool02), so the largest of each window is a few calls of `maximum`, and no copy is made:

    y = max(max(max(x_0, x_1), x_2), x_3)          x_t: the view of place t

The place that was chosen is noted on the way: where x_t is larger than all before it, the choice is
t. As t grows, the choice is a running maximum too, of t times the comparison. Numbers below 256 fit
in a byte, and bytes are quick to read.

Backward hands the gradient to the view x_t where the choice is t, and 0 elsewhere. It is the
spreading of step pool02 with one more factor, so SumWindows and SpreadWindows get the choice.

The trap is equal numbers, which are common after a relu. (amax of step extremes01 divides the
gradient among them, so amax over the reshaped image is different.)

`saves` declares what is kept (step node02): argument 2 or 3 for a choice that was given; None, a
constant, for one that MaxPool has made.

Changed: SumWindows and SpreadWindows take a choice. New: MaxPool, max_pool.
Try: write `seen >= y`. Which of four equal pixels gets the gradient now?
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
            y[inputs] = x if choice is None else x * (choice == number)
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SumWindows, g, ctx.windows, ctx.saved[0])


def pooling_windows(plane: tuple, kernel: tuple) -> Windows:
    """The windows of the size `kernel` that fill a plane, one beside the other."""
    sizes = tuple(n // k for n, k in zip(plane, kernel, strict=True))
    return Windows(sizes, join_dims(map(window_slices, sizes, kernel)))


def avg_pool(ndim: int, input: Tensor, kernel_size: int) -> Tensor:
    """The mean of each window of `kernel_size` elements in each of the last `ndim` dimensions."""
    kernel = (kernel_size,) * ndim
    windows = pooling_windows(input.array.shape[-ndim:], kernel)
    return SumWindows.apply(input, windows) / math.prod(kernel)


def max_pool(ndim: int, input: Tensor, kernel_size: int) -> Tensor:
    """The largest element of each window of `kernel_size` elements in each dimension."""
    return MaxPool.apply(input, pooling_windows(input.array.shape[-ndim:], (kernel_size,) * ndim))


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    answers = tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 8.0, 0.0, 0.0]], requires_grad=True)
    print("means:", avg_pool(2, answers, 2).tolist())  # -> means: [[2.0, 0.0]]
    print("largest:", max_pool(2, answers, 2).tolist())  # -> largest: [[8.0, 0.0]]

    # In the second window all four are equal.
    max_pool(2, answers, 2).sum().backward()
    print("gradient:", answers.grad.tolist())
    # -> gradient: [[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    answers.grad = None
    answers.reshape(1, 2, 2, 2).amax((-3, -1)).sum().backward()
    print("of amax:", answers.grad.tolist())
    # -> of amax: [[0.0, 0.0, 0.25, 0.25], [0.0, 1.0, 0.25, 0.25]]

    print("nan:", max_pool(1, tensor([1.0, float("nan"), 2.0, 3.0]), 2).tolist())
    # -> nan: [nan, 3.0]
    x = tensor(np.random.default_rng(1).normal(size=(4, 6)), requires_grad=True)
    for function in (avg_pool, max_pool):
        pool = functools.partial(function, 2, kernel_size=2)
        print(function.__name__, gradcheck(pool, x) and gradgradcheck(pool, x))
    # -> avg_pool True
    # -> max_pool True
