"""Step upsample02: Negative padding, checks, and the padding layers

A negative number takes elements away: (1, -1) moves a row by one place. With a constant border the
order does not matter. With the others it does, and PyTorch cuts at different times:

    reflect, replicate    first the border, then the cut: the mirror shows what is cut away
    circular              first the cut: the loop is closed over what stays

A mirrored border has at most n - 1 elements, a circular one at most n. PyTorch refuses more, and it
counts dimensions: padding two of them needs a picture with channels, [c, h, w] or [n, c, h, w], so
that the channels or the batch are not padded by mistake.

The layers are `pad` with its numbers kept. A number stands for all sides. ReflectionPad2d is a
class with a mode and a number of dimensions, so one line of a table makes three of them.

Changed: pad. New: PaddingLayer, pad_layers, and fifteen layers. The module padding.py is finished.
Try: ReflectionPad1d(4) on a row of four.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops import elementwise, matmul, minmax, reduction  # noqa: F401 (their methods)
from tinytorch.ops.arguments import as_shape
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
def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """`input` with more elements at its borders; a negative number takes elements away.

    Args:
        pad: (before, after) of the last dimension, then of the one before it, and so on.
        mode: "constant" (`value`, 0 by default), "reflect" (mirrored at the border element),
            "replicate" (the border element again) or "circular" (from the other end).

    Raises:
        RuntimeError: a padding does not fit the size, or the mode does not use `value`.
        NotImplementedError: the mode is unknown, or does not take this many dimensions.
    """
    pad, ndim = as_shape((pad,)), input.array.ndim
    if mode == "constant":
        return constant_pad(input, pad, value)
    if mode not in SOURCES or not 1 <= ndim - len(pad) / 2 <= 2:
        raise NotImplementedError(f"no padding {mode!r} with {len(pad)} numbers of {ndim} dims")
    if value:
        raise RuntimeError(f"the padding {mode!r} does not take a value")
    cut = tuple(min(n, 0) for n in pad)
    if mode == "circular":  # what is cut away is not repeated; in the other modes it is
        input, cut = constant_pad(input, cut), ()
    pads = [(0, 0)] * ndim
    for dim, before, after in zip(range(ndim - 1, -1, -1), pad[::2], pad[1::2], strict=False):
        n = input.array.shape[dim]
        most = {"reflect": n - 1, "circular": n}.get(mode, max(before, after))
        if max(before, after) > most or n == 0 or n + before + after < 0:
            raise RuntimeError(f"padding ({before}, {after}) does not fit the size {n}")
        pads[dim] = (max(before, 0), max(after, 0))
    output = PadBorder.apply(input, pads, mode)
    return constant_pad(output, cut) if any(cut) else output


class PaddingLayer(Module):
    """`pad` as a module. padding: a number for all borders, or as in `pad`."""

    def __init__(self, padding: Any, value: float | None = None):
        super().__init__()
        single = not isinstance(padding, (tuple, list))
        self.padding = as_shape((padding,)) * (2 * self._ndim if single else 1)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        if self._mode == "circular" and not 1 <= input.ndim - self._ndim <= 2:
            raise ValueError(f"expected {self._ndim + 1}D or {self._ndim + 2}D, got {input.ndim}D")
        return pad(input, self.padding, self._mode, self.value)

    def extra_repr(self) -> str:
        padding = f"{self.padding}"
        return padding if self.value is None else f"padding={padding}, value={self.value}"


def pad_layers(name: str, mode: str) -> list[type]:
    """The layers of a mode for one, two and three dimensions."""
    return [type(f"{name}{n}d", (PaddingLayer,), {"_mode": mode, "_ndim": n}) for n in (1, 2, 3)]


ZeroPad1d, ZeroPad2d, ZeroPad3d = pad_layers("ZeroPad", "constant")


ConstantPad1d, ConstantPad2d, ConstantPad3d = pad_layers("ConstantPad", "constant")


ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = pad_layers("ReflectionPad", "reflect")


ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = pad_layers("ReplicationPad", "replicate")


CircularPad1d, CircularPad2d, CircularPad3d = pad_layers("CircularPad", "circular")


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)

    row = tensor([[1, 2, 3, 4]])
    for mode in ("constant", *SOURCES):
        print(f"{mode:9}:", pad(row, (-2, 2), mode).tolist())
    # -> constant : [[3, 4, 0, 0]]
    # -> reflect  : [[3, 4, 3, 2]]
    # -> replicate: [[3, 4, 4, 4]]
    # -> circular : [[3, 4, 3, 4]]
    wrong = [(row, (4, 0), "reflect"), (row, (1, 1), "mirror"), (row, (1, 1), "circular", 7.0)]
    for arguments in wrong:
        try:
            pad(*arguments)
        except (RuntimeError, NotImplementedError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> RuntimeError: padding (4, 0) does not fit the size 4
    # -> NotImplementedError: no padding 'mirror' with 2 numbers of 2 dims
    # -> RuntimeError: the padding 'circular' does not take a value
    try:
        CircularPad2d(1)(row)
    except ValueError as error:
        print(f"ValueError: {error}")  # -> ValueError: expected 3D or 4D, got 2D

    image = tensor([[[1.0, 2.0], [3.0, 4.0]]])
    for layer in (ZeroPad2d((0, 1, 0, 0)), ConstantPad1d(1, 5.0), ReflectionPad2d((1, 0, 0, 1))):
        print(layer, layer(image).tolist())
    # -> ZeroPad2d((0, 1, 0, 0)) [[[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]]
    # -> ConstantPad1d(padding=(1, 1), value=5.0) [[[5.0, 1.0, 2.0, 5.0], [5.0, 3.0, 4.0, 5.0]]]
    # -> ReflectionPad2d((1, 0, 0, 1)) [[[2.0, 1.0, 2.0], [4.0, 3.0, 4.0], [2.0, 1.0, 2.0]]]
