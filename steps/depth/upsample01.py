"""Step upsample01: Padding modes: reflect, replicate, circular

A border of zeros is an edge that is not in the image, and filters answer to it. Three other borders
repeat elements of the image. For the row a b c d and two elements on each side:

    reflect     c b [a b c d] c b      mirrored at the last element, which is not repeated
    replicate   a a [a b c d] d d      the last element again
    circular    c d [a b c d] a b      the other end: a picture on a torus, a sound in a loop

Each mode is one formula: which of n elements stands at place i, for an i below 0 or from n on? That
is the table SOURCES.

A picture of all places and one gather would do it (x[:, places]), and its gradient, a scatter-add,
takes ten times as long as the padding. But nearly all elements stay where they are. So copy the
picture into a larger one, and then each row of the border from its source, one slice at a time. The
second dimension copies rows that have their borders already: so the corners are filled too.

Backward runs through the same list: each border is added to its source, and what is inside after
that is the gradient. This is the adjoint; its own gradient is the padding.

New: a module, nn/modules/padding.py: SOURCES, border_copies, inner_key, PadBorder, FoldBorder, pad.
Try: a fourth mode, "symmetric": b a [a b c d] d c. It is one line in SOURCES.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops import elementwise, matmul, minmax, reduction  # noqa: F401 (their methods)
from tinytorch.ops.joining import constant_pad
from tinytorch.ops.slicing import key_along

# For each mode: which of n elements is repeated at place i, where i < 0 or i >= n.
SOURCES: dict[str, Callable[[int, int], int]] = {
    "reflect": lambda i, n: n - 1 - abs(n - 1 - abs(i)),
    "replicate": lambda i, n: 0 if i < 0 else n - 1,
    "circular": lambda i, n: i % n,
}


def border_copies(shape: tuple, pads: list, mode: str) -> Iterator[tuple[tuple, tuple]]:
    """For each place of a border of a padded array: its key, and the key of what it repeats.

    pads: (before, after) of each dimension. The last dimensions copy what the first have filled,
    corners included.
    """
    for dim, (before, after) in enumerate(pads):
        n = shape[dim] - before - after
        for i in (*range(-before, 0), *range(n, n + after)):
            source = SOURCES[mode](i, n)
            yield key_along(dim, before + i), key_along(dim, before + source)


def inner_key(shape: tuple, pads: list) -> tuple:
    """The key of the part of a padded array inside its borders."""
    pairs = zip(shape, pads, strict=True)
    return tuple(slice(before, size - after) for size, (before, after) in pairs)


class PadBorder(Function):
    """y = x with borders that repeat elements of x."""

    def forward(ctx, x: Any, pads: list, mode: str) -> Any:
        ctx.pads, ctx.mode = pads, mode
        shape = tuple(n + sum(pad) for n, pad in zip(x.shape, pads, strict=True))
        y = ctx.xp.empty(shape, x.dtype)
        y[inner_key(shape, pads)] = x
        for place, source in border_copies(shape, pads, mode):
            y[place] = y[source]
        return y

    def backward(ctx, g: Any) -> Any:
        return ctx.call(FoldBorder, g, ctx.pads, ctx.mode)


class FoldBorder(Function):
    """The adjoint of PadBorder: each border is added to the elements that it repeats."""

    def forward(ctx, x: Any, pads: list, mode: str) -> Any:
        ctx.pads, ctx.mode = pads, mode
        y = x.copy()
        for place, source in border_copies(x.shape, pads, mode):
            y[source] += y[place]
        return y[inner_key(x.shape, pads)]

    def backward(ctx, g: Any) -> Any:
        return ctx.call(PadBorder, g, ctx.pads, ctx.mode)


@checked
def pad(input: Tensor, pad: tuple, mode: str = "constant", value: float | None = None) -> Tensor:
    """`input` with more elements at its borders.

    Args:
        pad: (before, after) of the last dimension, then of the one before it, and so on.
        mode: "constant" (`value`, 0 by default), "reflect" (mirrored at the border element),
            "replicate" (the border element again) or "circular" (from the other end).
    """
    if mode == "constant":
        return constant_pad(input, pad, value)
    pads = [(0, 0)] * input.array.ndim
    for dim in range(len(pad) // 2):
        pads[-1 - dim] = pad[2 * dim : 2 * dim + 2]
    return PadBorder.apply(input, pads, mode)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    row = tensor([1, 2, 3, 4])
    print("constant: ", pad(row, (2, 2), value=9).tolist())
    # -> constant:  [9, 9, 1, 2, 3, 4, 9, 9]
    for mode in SOURCES:
        print(f"{mode:9}:", pad(row, (2, 2), mode).tolist())
    # -> reflect  : [3, 2, 1, 2, 3, 4, 3, 2]
    # -> replicate: [1, 1, 1, 2, 3, 4, 4, 4]
    # -> circular : [3, 4, 1, 2, 3, 4, 1, 2]
    image = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    framed = pad(image, (1, 1, 1, 1), "reflect")
    for line in framed.tolist():
        print(line)
    # -> [5.0, 4.0, 5.0, 6.0, 5.0]
    # -> [2.0, 1.0, 2.0, 3.0, 2.0]
    # -> [5.0, 4.0, 5.0, 6.0, 5.0]
    # -> [2.0, 1.0, 2.0, 3.0, 2.0]
    framed.sum().backward()
    print("how often each is seen:", image.grad.tolist())
    # -> how often each is seen: [[2.0, 6.0, 2.0], [2.0, 6.0, 2.0]]
    x = tensor(np.random.default_rng(0).normal(size=(2, 3, 4)), requires_grad=True)
    for mode in SOURCES:
        function = functools.partial(pad, pad=(3, 1, 0, 2), mode=mode)
        print(mode, gradcheck(function, x) and gradgradcheck(function, x))
    # -> reflect True
    # -> replicate True
    # -> circular True
