"""Step conv12: Small pictures side by side

The last layers of a network have many channels and small pictures: 512 of 4 x 4. Each picture of
the batch is a product of its own, [512, 4608] @ [4608, 16]. A library for products is slow with 16
columns: it reads the 2.4 million weights for every picture. And the gradient of the weights is
worse: for each picture a matrix of 2.4 million numbers from 16 columns, which are then added up.

So put the pictures of a block side by side: one product [4608, 16 * images]. In the matrix the
images must come after the kernel and beside the positions, so the dimension of the images is moved
before the copy, and the outputs are a transposed view to write to.

In conv_input the images come last. An addition to a part of a picture then runs along all images of
a place, and has few starts. Filling up with zeros as in step conv11 would turn 4 x 4 into 6 x 6:
more than twice the work. Again nothing changes but the time.

The trap: this is worth it up to 8 x 8 or so. Larger pictures have enough columns of their own, and
the transposed copies would cost more than they save.

Changed: Geometry, columns, outputs; convolve, convolve_weight, convolve_input. Step winograd07
resumes them, after a form with fewer multiplications.
Try: x of [8, 64, 34, 34], and joined.joined = True with joined.split = False. Which form is faster?
"""

import functools
import importlib
import math
from collections.abc import Iterator
from operator import add, mul
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
    joined: images with few positions are put side by side in one matrix.
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
        self.joined = self.out[0] * self.row <= 64
        thick = w_shape[1] * math.prod(self.kernel[1:]) >= 32
        self.split = stride[0] == 1 and thick and not self.joined
        # Of each element of each kernel row: the turn and the step of p * stride + k * dilation.
        found = [
            [divmod(a * d, s) for a, d, s in zip(k, dilation, stride, strict=True)]
            for k in np.ndindex(*self.kernel)
        ]
        found = [(tuple(turn for _, turn in k), [step for step, _ in k]) for k in found]
        rows = len(found) // self.kernel[0]
        self.steps = [found[i : i + rows] for i in range(0, len(found), rows)]

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
        if self.joined:
            x = device_of(x).xp.moveaxis(x, 0, 1 + dims)
        thickness = self.w_shape[1] * math.prod(self.kernel[-dims:] if dims else ())
        n = 1 if self.joined else x.shape[0]
        matrices = x.reshape(n, self.groups, thickness, x.size // (n * self.groups * thickness))
        if not self.split:
            return [matrices]
        starts = [i * self.dilation[0] * self.row for i in range(self.kernel[0])]
        return [matrices[..., start : start + height * self.row] for start in starts]

    def outputs(self, y: Any, images: slice, rows: slice) -> Any:
        """A view of a block of y as [images, groups, O, positions]; [1, groups, O, images,
        positions] where images are joined."""
        n, o = self.y_shape[:2]
        y = y.reshape(n, self.groups, o // self.groups, self.out[0] * self.row)
        y = y[images, ..., rows.start * self.row : rows.stop * self.row]
        return y.transpose(1, 2, 0, 3)[None] if self.joined else y

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
        total = xp.matmul(w[0], parts[0], out=None if geo.joined else block)
        total += bias
        for matrix, part in zip(w[1:], parts[1:], strict=True):
            total += matrix @ part
        if geo.joined:
            block[...] = total.reshape(block.shape)
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
        block = geo.outputs(g, images, rows)
        block = block.reshape(*block.shape[:3], -1).swapaxes(2, 3)
        if geo.split:  # one copy for the products of all kernel rows
            block = xp.ascontiguousarray(block)
        for total, part in zip(gw, geo.columns(x, images, rows), strict=True):
            total += (part @ block).sum(0)
    gw = gw.reshape(parts, geo.groups, c, -1, o // geo.groups).transpose(1, 4, 2, 0, 3)
    return gw.reshape(geo.w_shape)


def convolve_input(g: Any, w: Any, bias: Any, geo: Geometry) -> Any:
    """gx[n, c, p * stride + k * dilation] = bias[c] + sum of w[o, c, k] g[n, o, p].

    A product gives what each p adds for each k. With stride 1, that is added at a distance of
    k * dilation. If the rows of g are filled up with zeros to the length of those of gx, this is
    one addition of flat arrays, many times as fast as one of parts of rows. It does not pay for
    small pictures. With stride s, gx consists of s pictures in each dimension that take turns: for
    s = 2 its even and its odd elements. Each k adds to one of them.
    """
    xp = device_of(g).xp
    o, c, *kernel = geo.w_shape
    inner, channels, n = math.prod(kernel[1:]), c * geo.groups, len(kernel)
    together = inner if geo.groups == 1 else 1  # elements of a kernel row in one product
    # For each kernel row its matrices [groups, together * C, O].
    w = w.reshape(geo.groups, o // geo.groups, c, -1).transpose(3, 0, 2, 1)
    w = w.reshape(kernel[0], -1, geo.groups, together * c, o // geo.groups)
    bias = (xp.zeros(channels, g.dtype) if bias is None else bias).reshape(-1, *[1] * n)
    gx = xp.empty(geo.padded, g.dtype)
    gx[...] = bias
    # The zeros behind g in each dimension: as far as a kernel moves it.
    extra = [reach // s for reach, s in zip(geo.reach, geo.stride, strict=True)]
    place = n + 1 if geo.joined else 1  # of the images among the dimensions
    for images, rows in geo.blocks(inner * channels + o):
        block = xp.moveaxis(g[images, :, rows], 0, place)
        # A block of whole images is written to gx, bias included; blocks of rows add up there.
        taken, whole = g[0, 0, rows].shape, rows.stop - rows.start == geo.out[0]
        size = [a + b for a, b in zip(taken, extra, strict=True)]
        if not geo.joined:
            wide = xp.zeros((*block.shape[:2], *size), g.dtype)
            wide[(..., *map(slice, taken))] = block
            block = wide
        matrix = block.reshape(geo.groups, o // geo.groups, -1)
        size.insert(place - 1, block.shape[place])
        pictures = xp.empty((*geo.stride, channels, *size), g.dtype)
        pictures[...] = bias[..., None] if whole else 0
        moves = pictures.strides[-n:]
        product, result = xp.matmul if o > geo.groups else xp.multiply, None
        for matrices, steps in zip(w, geo.steps, strict=True):
            result = product(matrices, matrix, out=result)  # the same memory for all kernel rows
            parts = result.reshape(inner, channels, *block.shape[1:])
            for part, (turn, step) in zip(parts, steps, strict=True):
                total = pictures[turn]
                if geo.joined:
                    total = total[(slice(None), *map(slice, step, map(add, step, taken)))]
                else:
                    shift = sum(map(mul, step, moves)) // g.itemsize
                    total = total.reshape(-1)[shift:]
                    part = part.reshape(-1)[: total.size]
                total += part
        # [*turns, channels, images, *size] -> [images, channels, size, turn, size, turn, ...]
        pictures = xp.moveaxis(pictures, n + place, n + 1)
        order = [n + 1, n, *(i for d in range(n) for i in (n + 2 + d, d))]
        ends = [a * s for a, s in zip(pictures.shape[n + 2 :], geo.stride, strict=True)]
        block = pictures.transpose(order).reshape(-1, channels, *ends)
        start = rows.start * geo.stride[0]
        into = gx[images, :, start : start + ends[0]][(..., *map(slice, ends))]
        block = block[(..., *map(slice, into.shape[2:]))]
        into[...] = block if whole else into + block
    return xp.ascontiguousarray(gx[geo.inside])


class Bilinear(Function):
    """A form of convolution. Its two derivatives are the other two forms."""

    saves = 0, 1
    whole = True

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
    x = rng.standard_normal((64, 256, 6, 6)).astype(np.float32)
    w = rng.standard_normal((256, 256, 3, 3)).astype(np.float32)
    plain = (1, 1), ((0, 0), (0, 0)), (1, 1), 1
    joined, single = Geometry(x.shape, w.shape, *plain), Geometry(x.shape, w.shape, *plain)
    single.joined = False
    g = rng.standard_normal(joined.y_shape).astype(np.float32)

    def milliseconds(function):
        times = []
        for _ in range(3):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times) * 1e3

    def ways(geo):
        return (
            lambda: convolve(x, w, None, geo),
            lambda: convolve_weight(x, g, geo),
            lambda: convolve_input(g, w, None, geo),
        )

    for name, one, many in zip(("y", "gw", "gx"), ways(single), ways(joined), strict=True):
        same = np.allclose(one(), many(), rtol=1e-3, atol=1e-2)
        print(
            f"{name}: each {milliseconds(one):.0f} ms, side by side {milliseconds(many):.0f} ms",
            same,
        )
    # -> ...True
    # -> ...True
    # -> ...True
    block = slice(0, 3), slice(0, 4)
    print(single.columns(x, *block)[0].shape, joined.columns(x, *block)[0].shape)
    # -> (3, 1, 2304, 16) (1, 1, 2304, 48)

    manual_seed(0)
    x = randn(3, 4, 4, 3, dtype=float64, requires_grad=True)
    w = randn(6, 2, 2, 2, dtype=float64, requires_grad=True)
    b = randn(6, dtype=float64, requires_grad=True)
    for size in (2, 20):
        geo = Geometry((3, 4, 4, 3 * size), (6, 2, 2, 2), (1, 2), ((1, 1), (0, 0)), (2, 1), 2)
        inputs = randn(3, 4, 4, 3 * size, dtype=float64, requires_grad=True), w, b
        print(
            geo.joined, gradcheck(lambda x, w, b, geo=geo: Convolution.apply(x, w, b, geo), inputs)
        )
    # -> True True
    # -> False True
