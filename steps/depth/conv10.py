"""Step conv10: One product for each kernel row

A 3 x 3 convolution can be computed in three ways. The form of step conv01 copies whole windows,
nine times the picture, and needs one product. Another copies nothing and adds up one product for
each of the nine elements of the kernel; but products with C columns are thin, and there are nine
additions. The third is between them, and the demo measures all three:

    cut out the windows of each row alone: [C * 3, H, W']     three times the picture
    rows i ... i + H' of it are what kernel row i sees        a slice, no copy
    y = w[0] @ slice 0 + w[1] @ slice 1 + w[2] @ slice 2      three products, large enough

In a matrix [C * 3, H * W'] the rows i to i + H' of all channels are the columns from i * W' on. So
one copy serves all rows of the kernel. With dilation d, kernel row i begins at row i * d. With a
stride of 2 the rows that are needed are no longer neighbours, and the windows are copied whole.

The first kernel dimension is left out in any number of dimensions: a signal is not copied at all,
and a volume is copied k * k times instead of k * k * k times.

The first product is written into y, and the others are added to it. In the gradient of the weights
the three products share one transposed copy of g, which NumPy would otherwise make for each.

The trap: with three channels of colour each product has only nine columns, too few to be fast, and
the copy that it saves is small. Hence `thick`: at least 32 columns.

Changed: Geometry.windows, columns, weights; convolve, convolve_weight, convolve_input.
New: Geometry.split.
Try: 3 channels instead of 64 in x, w and nine(), and rows.split = True. How far apart are the three
ways now?
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

    split: with stride 1 the windows have no first kernel dimension. Kernel row i needs the columns
        from input row i * dilation on, so that one copy serves all kernel rows, each with a product
        of its own. With few channels these would be too thin.
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
        thick = w_shape[1] * math.prod(self.kernel[1:]) >= 32
        self.split = stride[0] == 1 and thick

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

    def windows(self, x: Any, dims: int, out: tuple) -> Any:
        """A view of the padded x: [N, C, *kernel, *out], with the last `dims` dimensions of the
        kernel. Windows share elements: do not write into it."""
        within = zip(x.strides[-dims:], self.dilation[-dims:], strict=True)
        moves = zip(x.strides[2:], self.stride, strict=True)
        strides = (*x.strides[:2], *(a * d for a, d in within), *(a * s for a, s in moves))
        return strided(x, (*x.shape[:2], *self.kernel[-dims:], *out), strides)

    def columns(self, x: Any, images: slice, rows: slice) -> list:
        """The windows of a block of the padded x, as matrices [images, groups, C * kernel,
        positions]: one for the whole kernel, or one for each of its rows."""
        height, first = rows.stop - rows.start, rows.start * self.stride[0]
        x = x[images, :, first : first + (height - 1) * self.stride[0] + self.reach[0] + 1]
        dims = len(self.kernel) - self.split
        if dims:
            height_in = x.shape[2] if self.split else height
            x = self.windows(x, dims, (height_in, *self.out[1:]))
        thickness = self.w_shape[1] * math.prod(self.kernel[-dims:] if dims else ())
        matrices = x.reshape(x.shape[0], self.groups, thickness, -1)
        if not self.split:
            return [matrices]
        starts = [i * self.dilation[0] * self.row for i in range(self.kernel[0])]
        return [matrices[..., start : start + height * self.row] for start in starts]

    def outputs(self, y: Any, images: slice, rows: slice) -> Any:
        """A view of a block of y as [images, groups, O, positions]."""
        n, o = self.y_shape[:2]
        y = y.reshape(n, self.groups, o // self.groups, self.out[0] * self.row)
        return y[images, ..., rows.start * self.row : rows.stop * self.row]

    def weights(self, w: Any) -> Any:
        """w as matrices [kernel rows or 1, groups, O, C * kernel], for the matrices of columns."""
        o, c = w.shape[:2]
        parts = self.kernel[0] if self.split else 1
        w = w.reshape(self.groups, o // self.groups, c, parts, -1)
        return w.transpose(3, 0, 1, 2, 4).reshape(parts, *w.shape[:2], -1)


def sum_channels(g: Any) -> Any:
    """The sum of all elements of each channel: the gradient of a bias."""
    return g.reshape(*g.shape[:2], math.prod(g.shape[2:])).sum(2).sum(0)


geometry = functools.lru_cache(maxsize=1024)(Geometry)


def convolve(x: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """y[n, o, p] = bias[o] + sum of w[o, c, k] x[n, c, p * stride + k * dilation]."""
    xp = device_of(x).xp
    x, w, y = geo.pad(x), geo.weights(w), xp.empty(geo.y_shape, x.dtype)
    bias = 0 if bias is None else bias.reshape(geo.groups, -1, 1)
    for images, rows in geo.blocks(sum(w.shape[2:])):
        block = geo.outputs(y, images, rows)
        parts = geo.columns(x, images, rows)
        total = xp.matmul(w[0], parts[0], out=block)
        total += bias
        for matrix, part in zip(w[1:], parts[1:], strict=True):
            total += matrix @ part
    return y


def convolve_weight(x: Any, g: Any, geo: Geometry) -> Any:
    """gw[o, c, k] = sum of g[n, o, p] x[n, c, p * stride + k * dilation]."""
    xp = device_of(x).xp
    o, c, *kernel = geo.w_shape
    parts = kernel[0] if geo.split else 1
    thickness = c * math.prod(kernel) // parts
    gw = xp.zeros((parts, geo.groups, thickness, o // geo.groups), x.dtype)
    x = geo.pad(x)
    for images, rows in geo.blocks(sum(gw.shape[2:])):
        block = geo.outputs(g, images, rows).swapaxes(2, 3)
        if geo.split:  # one copy for the products of all kernel rows
            block = xp.ascontiguousarray(block)
        for total, part in zip(gw, geo.columns(x, images, rows), strict=True):
            total += (part @ block).sum(0)
    gw = gw.reshape(parts, geo.groups, c, -1, o // geo.groups).transpose(1, 4, 2, 0, 3)
    return gw.reshape(geo.w_shape)


def convolve_input(g: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """gx[n, c, p * stride + k * dilation] = bias[c] + sum of w[o, c, k] g[n, o, p]."""
    xp = device_of(g).xp
    o, channels, n = geo.w_shape[0], geo.x_shape[1], len(geo.kernel)
    w = w.reshape(geo.groups, o // geo.groups, -1).swapaxes(1, 2)
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

    from tinytorch.autograd.gradcheck import gradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.ops.random import manual_seed, randn

    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, 64, 34, 34)).astype(np.float32)
    w = rng.standard_normal((64, 64, 3, 3)).astype(np.float32)
    plain = (1, 1), ((0, 0), (0, 0)), (1, 1), 1
    rows, whole = Geometry(x.shape, w.shape, *plain), Geometry(x.shape, w.shape, *plain)
    whole.split = False

    def nine(x, w):
        y = np.zeros((len(x), 64, 32 * 32), np.float32)
        for a, b in np.ndindex(3, 3):
            y += w[:, :, a, b].copy() @ x[:, :, a : a + 32, b : b + 32].reshape(len(x), 64, -1)
        return y.reshape(rows.y_shape)

    def milliseconds(function):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times) * 1e3

    y = convolve(x, w, None, rows)
    print(
        np.allclose(y, convolve(x, w, None, whole), atol=1e-3),
        np.allclose(y, nine(x, w), atol=1e-3),
    )
    # -> True True
    print(f"nine products:  {milliseconds(lambda: nine(x, w)):.0f} ms")  # -> ...
    print(f"one product:    {milliseconds(lambda: convolve(x, w, None, whole)):.0f} ms")  # -> ...
    print(f"three products: {milliseconds(lambda: convolve(x, w, None, rows)):.0f} ms")  # -> ...
    for geo in (whole, rows):
        parts = geo.columns(x, slice(0, 1), slice(0, 32))
        print(len(parts), parts[0].shape, geo.weights(w).shape)
    # -> 1 (1, 1, 576, 1024) (1, 1, 64, 576)
    # -> 3 (1, 1, 192, 1024) (3, 1, 64, 192)

    # A signal: its windows are slices of it, one for each element of the kernel.
    line = Geometry((1, 32, 10), (5, 32, 3), (1,), ((0, 0),), (1,), 1)
    signal = rng.standard_normal((1, 32, 10))
    parts = line.columns(signal, slice(0, 1), slice(0, 8))
    print(len(parts), "parts, no copy:", all(np.shares_memory(part, signal) for part in parts))
    # -> 3 parts, no copy: True

    manual_seed(0)
    x = randn(2, 64, 4, 3, dtype=float64, requires_grad=True)
    w = (randn(2, 32, 2, 2, dtype=float64) / 8).requires_grad_()
    b = randn(2, dtype=float64, requires_grad=True)
    geo = Geometry((2, 64, 4, 3), (2, 32, 2, 2), (1, 2), ((1, 1), (0, 0)), (2, 1), 2)

    def conv(x, w, b):
        return Convolution.apply(x, w, b, geo)

    print(geo.split, gradcheck(conv, (x, w, b)))  # -> True True
