"""Step conv09: Blocks that fit the cache

For 64 pictures of 32 x 26 x 26, the matrix of all windows holds 10.6 million numbers, nine times
the pictures: 42 MB. They are written to memory and read back once, and memory is slow: each
processor core has a cache of about one megabyte, which is ten times as fast. So convolve a few
images at a time. Their windows are still in the cache when the product reads them, and the 42 MB
are never stored.

    block = some images, all rows of their output        small pictures
    block = one image, some rows of its output           large ones: 2 x 64 x 224 x 224

A row r of the output sees the rows r * stride ... r * stride + reach of the padded input, so a
block of rows is a slice of the input. The gradient of w is the sum over the blocks. For the
gradient of x each block adds its part to a slice; neighbouring blocks overlap there.

Steps conv09 to conv12 compute what step conv08 computes, only faster. To understand a convolution
the forms of steps conv01 to conv08 are enough, and you may go on with step convlayers01.

The trap: blocks that are too small. A product with few columns is slow in itself, and each block
costs some microseconds of Python. Hence COLUMNS.

Changed: Geometry.windows, columns, outputs; convolve, convolve_weight, convolve_input.
New: Geometry.blocks, BLOCK, COLUMNS.
Try: BLOCK = 2**12 and COLUMNS = 1 instead of 2**40. How much slower are small blocks?
"""

import functools
import importlib
import math
from collections.abc import Iterator
from operator import mul
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.device import device_of
from tinytorch.ops.reduction import wide
from tinytorch.ops.storage import strided

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


BLOCK = 2**18  # elements of a block's matrices: 1 MiB of float32, about a core's cache
COLUMNS = 512  # a matrix product with fewer columns is slow


class Geometry:
    """The sizes of a convolution, and how its arrays are cut into blocks and matrices.

    A block is some images, or some rows of the output of one image. Its windows are the columns of
    a matrix [C * kernel, positions], which is multiplied by the weights [O, C * kernel].
    """

    def __init__(
        self,
        x_shape: tuple,
        w_shape: tuple,
        stride: tuple,
        pads: tuple,
        dilation: tuple,
        groups: int,
        out: tuple | None = None,
    ):
        self.x_shape, self.w_shape, self.stride, self.dilation = x_shape, w_shape, stride, dilation
        self.groups, self.kernel = groups, w_shape[2:]
        sizes = zip(x_shape[2:], pads, strict=True)
        self.padded = (*x_shape[:2], *(before + n + after for n, (before, after) in sizes))
        sizes = zip(x_shape[2:], pads, strict=True)
        self.inside = (..., *(slice(before, before + n) for n, (before, _) in sizes))
        self.reach = tuple((k - 1) * d for k, d in zip(self.kernel, dilation, strict=True))
        sizes = zip(self.padded[2:], self.reach, stride, strict=True)
        self.out = out or tuple((n - reach - 1) // s + 1 for n, reach, s in sizes)
        self.y_shape = (x_shape[0], w_shape[0], *self.out)
        self.row = math.prod(self.out[1:])  # positions in a row of the output

    def blocks(self, height: int) -> Iterator[tuple[slice, slice]]:
        """(images, output rows) of each block, for matrices with so many elements a position."""
        (images, _, rows), each = self.y_shape[:3], max(height * self.row, 1)
        # An image that fills a block alone is cut into rows; its blocks may be four times as large.
        count = max(BLOCK // (each * rows), COLUMNS // (rows * self.row)) or 1
        step = rows if count > 1 else max(4 * BLOCK // each, 1)
        for first in range(0, images, count):
            for row in range(0, rows, step):
                yield slice(first, first + count), slice(row, min(row + step, rows))

    def pad(self, x: Any) -> Any:
        """x with zeros around it."""
        if x.shape == self.padded:
            return x
        out = device_of(x).xp.zeros(self.padded, x.dtype)
        out[self.inside] = x
        return out

    def windows(self, x: Any, out: tuple) -> Any:
        """A view of the padded x: [N, C, *kernel, *out]. Windows share elements: do not write into
        it."""
        within = zip(x.strides[2:], self.dilation, strict=True)
        moves = zip(x.strides[2:], self.stride, strict=True)
        strides = (*x.strides[:2], *(a * d for a, d in within), *(a * s for a, s in moves))
        return strided(x, (*x.shape[:2], *self.kernel, *out), strides)

    def columns(self, x: Any, images: slice, rows: slice) -> Any:
        """The windows of a block of the padded x, as matrices [images, groups, C * kernel,
        positions]."""
        height, first = rows.stop - rows.start, rows.start * self.stride[0]
        x = x[images, :, first : first + (height - 1) * self.stride[0] + self.reach[0] + 1]
        windows = self.windows(x, (height, *self.out[1:]))
        return windows.reshape(len(x), self.groups, math.prod(self.w_shape[1:]), -1)

    def outputs(self, y: Any, images: slice, rows: slice) -> Any:
        """A view of a block of y as [images, groups, O, positions]."""
        n, o = self.y_shape[:2]
        y = y.reshape(n, self.groups, o // self.groups, self.out[0] * self.row)
        return y[images, ..., rows.start * self.row : rows.stop * self.row]

    def weights(self, w: Any) -> Any:
        """w as matrices [groups, O, C * kernel]."""
        return w.reshape(self.groups, len(w) // self.groups, -1)


def sum_channels(g: Any) -> Any:
    """The sum of all elements of each channel: the gradient of a bias."""
    return g.reshape(*g.shape[:2], math.prod(g.shape[2:])).sum(2).sum(0)


geometry = functools.lru_cache(maxsize=1024)(Geometry)


def convolve(x: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """y[n, o, p] = bias[o] + sum of w[o, c, k] x[n, c, p * stride + k * dilation]."""
    xp = device_of(x).xp
    x, w, y = geo.pad(x), geo.weights(w), xp.empty(geo.y_shape, x.dtype)
    bias = 0 if bias is None else bias.reshape(geo.groups, -1, 1)
    for images, rows in geo.blocks(sum(w.shape[1:])):
        geo.outputs(y, images, rows)[...] = w @ geo.columns(x, images, rows) + bias
    return y


def convolve_weight(x: Any, g: Any, geo: Geometry) -> Any:
    """gw[o, c, k] = sum of g[n, o, p] x[n, c, p * stride + k * dilation]."""
    xp = device_of(x).xp
    o, c, *kernel = geo.w_shape
    gw = xp.zeros((geo.groups, c * math.prod(kernel), o // geo.groups), x.dtype)
    x = geo.pad(x)
    for images, rows in geo.blocks(sum(gw.shape[1:])):
        block = geo.outputs(g, images, rows).swapaxes(2, 3)
        gw += (geo.columns(x, images, rows) @ block).sum(0)
    return gw.swapaxes(1, 2).reshape(geo.w_shape)


def convolve_input(g: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """gx[n, c, p * stride + k * dilation] = bias[c] + sum of w[o, c, k] g[n, o, p]."""
    xp = device_of(g).xp
    channels, n = geo.x_shape[1], len(geo.kernel)
    w = geo.weights(w).swapaxes(1, 2)
    bias = (xp.zeros(channels, g.dtype) if bias is None else bias).reshape(-1, *[1] * n)
    gx = xp.empty(geo.padded, g.dtype)
    gx[...] = bias
    for images, rows in geo.blocks(channels * math.prod(geo.kernel)):
        block = gx[images, :, rows.start * geo.stride[0] :]
        parts = w @ geo.outputs(g, images, rows)
        taken = (rows.stop - rows.start, *geo.out[1:])
        parts = parts.reshape(*block.shape[:2], *geo.kernel, *taken)
        for k in np.ndindex(*geo.kernel):
            sizes = zip(map(mul, k, geo.dilation), geo.stride, taken, strict=True)
            total = block[(..., *(slice(a, a + (n - 1) * s + 1, s) for a, s, n in sizes))]
            total += parts[(slice(None), slice(None), *k)]
    return xp.ascontiguousarray(gx[geo.inside])


class Bilinear(Function):
    """A form of convolution. Its two derivatives are the other two forms."""

    saves = 0, 1

    def name(ctx) -> str:
        return "ConvolutionBackward0"

    def save(ctx, a: Any, b: Any, geo: Geometry) -> None:
        """Keeps each argument that the derivative by the other one needs."""
        need_a, need_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if need_b else None, b if need_a else None)
        ctx.geo = geo


def in_float32(function: Any, *arrays: Any, geo: Geometry) -> Any:
    """function(*arrays, geo); halves are added up as float32, and rounded once."""
    result = function(*(x if x is None else wide(x) for x in arrays), geo)
    return result.astype(arrays[0].dtype, copy=False)


class Convolution(Bilinear):
    """y = conv(x, w) + bias;   dL/dx = conv_input(g, w),   dL/dw = conv_weight(x, g)."""

    def forward(ctx, x: Any, w: Any, bias: Any, geo: Geometry) -> Any:
        ctx.save(x, w, geo)
        return in_float32(convolve, x, w, bias, geo=geo)

    def backward(ctx, g: Any) -> Any:
        (x, w), (need_x, need_w, need_bias, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(ConvolutionInput, g, w, None, ctx.geo) if need_x else None,
            ctx.call(ConvolutionWeight, x, g, ctx.geo) if need_w else None,
            sum_channels(g) if need_bias else None,
        )


class ConvolutionInput(Bilinear):
    """x = conv_input(g, w) + bias;   dL/dg = conv(u, w),   dL/dw = conv_weight(u, g)."""

    def forward(ctx, g: Any, w: Any, bias: Any, geo: Geometry) -> Any:
        ctx.save(g, w, geo)
        return in_float32(convolve_input, g, w, bias, geo=geo)

    def backward(ctx, u: Any) -> Any:
        (g, w), (need_g, need_w, need_bias, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(Convolution, u, w, None, ctx.geo) if need_g else None,
            ctx.call(ConvolutionWeight, u, g, ctx.geo) if need_w else None,
            sum_channels(u) if need_bias else None,
        )


class ConvolutionWeight(Bilinear):
    """w = conv_weight(x, g);   dL/dx = conv_input(g, v),   dL/dg = conv(x, v)."""

    def forward(ctx, x: Any, g: Any, geo: Geometry) -> Any:
        ctx.save(x, g, geo)
        return in_float32(convolve_weight, x, g, geo=geo)

    def backward(ctx, v: Any) -> Any:
        (x, g), (need_x, need_g, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(ConvolutionInput, g, v, None, ctx.geo) if need_x else None,
            ctx.call(Convolution, x, v, None, ctx.geo) if need_g else None,
        )


if __name__ == "__main__":
    import time

    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    rng = np.random.default_rng(0)

    def make(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    x, w = make(64, 32, 26, 26), make(64, 32, 3, 3)
    geo = Geometry(x.shape, w.shape, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)

    def milliseconds(function):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times) * 1e3

    blocks = list(geo.blocks(64 + 288))
    print(len(blocks), "blocks, the first:", blocks[0])
    # -> 64 blocks, the first: (slice(0, 1, None), slice(0, 24, None))
    print("windows of all images:", 64 * 288 * 24 * 24 * 4 // 10**6, "MB")
    # -> windows of all images: 42 MB
    print("windows of a block:", geo.columns(x, *blocks[0]).nbytes // 1000, "kB")
    # -> windows of a block: 663 kB

    whole = convolve(x, w, None, geo)
    print(f"in blocks: {milliseconds(lambda: convolve(x, w, None, geo)):.0f} ms")  # -> ...
    usual, BLOCK = BLOCK, 2**40
    print(f"all at once: {milliseconds(lambda: convolve(x, w, None, geo)):.0f} ms")  # -> ...
    print("the same:", np.allclose(whole, convolve(x, w, None, geo), atol=1e-3))
    # -> the same: True

    # With small limits, a small convolution is cut into rows. All three forms agree with the whole.
    manual_seed(0)
    x = randn(3, 4, 7, 6, dtype=float64, requires_grad=True)
    w = randn(6, 2, 2, 2, dtype=float64, requires_grad=True)
    b = randn(6, dtype=float64, requires_grad=True)
    geo = Geometry((3, 4, 7, 6), (6, 2, 2, 2), (1, 2), ((1, 1), (0, 0)), (2, 1), 2)
    for limit, columns in ((usual, 512), (20, 1)):
        BLOCK, COLUMNS = limit, columns
        y = Convolution.apply(x, w, b, geo)
        y.backward(y.detach())
        sums = [round(a.sum().item(), 4) for a in (y, x.grad, w.grad)]
        x.grad = w.grad = None
        print(len(list(geo.blocks(14))), "blocks:", sums)
    # -> 1 blocks: [194.3341, -335.4257, -305.8541]
    # -> 21 blocks: [194.3341, -335.4257, -305.8541]
