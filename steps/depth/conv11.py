"""Step conv11: The gradient of the input by flat additions

The gradient of the input takes twice as long as the convolution, though its products are the same
size. The additions are slow: nine times, a part of 30 x 30 is added to a picture of 32 x 32. Its
rows are not neighbours in memory, so NumPy starts anew for each row of 30 numbers, and spends more
time on starting than on adding. An addition of two flat arrays has one start. The simple form is
the loop that this step removes; the new one gives the same numbers, only faster.

Fill each row of g up with zeros to the length of a row of x, and g with rows of zeros to its
height. Then a move by (i, j) is a move of the flat array by i * width + j places:

    g =  a b 0     moved by (1, 1):     . . .          flat:  a b 0 c d 0 0 0 0
         c d 0                          . a b                 . . . . a b 0 c d
         0 0 0                          . c d

What runs over the end of a row is zeros. Some of the work is wasted (13 % here), but all of it is
fast now.

With a stride of 2, part k goes to every second place. Take the even and the odd places of x as two
pictures: in each of them the places are neighbours. Those of k are the picture k % 2, from k // 2
on. With stride s there are s pictures for each dimension, which take turns in x; at the end they
are put together by a transpose.

In a depthwise convolution the products have an inner dimension of 1: a multiplication is enough.

Changed: Geometry, convolve_input.
Try: a stride of 3 for `line`. Which elements of the kernel add to which of the three pictures?
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
    """gx[n, c, p * stride + k * dilation] = bias[c] + sum of w[o, c, k] g[n, o, p].

    A product gives what each p adds for each k. With stride 1, that is added at a distance of k *
    dilation. If the rows of g are filled up with zeros to the length of those of gx, this is one
    addition of flat arrays, many times as fast as one of parts of rows. With stride s, gx consists
    of s pictures in each dimension that take turns: for s = 2 its even and its odd elements. Each k
    adds to one of them.
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
    for images, rows in geo.blocks(inner * channels + o):
        block = g[images, :, rows].swapaxes(0, 1)
        # A block of whole images is written to gx, bias included; blocks of rows add up there.
        taken, whole = g[0, 0, rows].shape, rows.stop - rows.start == geo.out[0]
        size = [a + b for a, b in zip(taken, extra, strict=True)]
        wide = xp.zeros((*block.shape[:2], *size), g.dtype)
        wide[(..., *map(slice, taken))] = block
        block = wide
        matrix = block.reshape(geo.groups, o // geo.groups, -1)
        size.insert(0, block.shape[1])
        pictures = xp.empty((*geo.stride, channels, *size), g.dtype)
        pictures[...] = bias[..., None] if whole else 0
        moves = pictures.strides[-n:]
        product, result = xp.matmul if o > geo.groups else xp.multiply, None
        for matrices, steps in zip(w, geo.steps, strict=True):
            result = product(matrices, matrix, out=result)  # the same memory for all kernel rows
            parts = result.reshape(inner, channels, *block.shape[1:])
            for part, (turn, step) in zip(parts, steps, strict=True):
                total = pictures[turn]
                shift = sum(map(mul, step, moves)) // g.itemsize
                total = total.reshape(-1)[shift:]
                total += part.reshape(-1)[: total.size]
        # [*turns, channels, images, *size] -> [images, channels, size, turn, size, turn, ...]
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

    part, picture = np.ones((64, 30, 30), np.float32), np.zeros((64, 32, 32), np.float32)
    wide = np.zeros_like(picture)
    wide[:, :30, :30] = part

    def microseconds(function):
        times = []
        for _ in range(50):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times) * 1e6

    corner, flat, moved = picture[:, 2:, 1:31], picture.reshape(-1)[65:], wide.reshape(-1)[:-65]
    slow = microseconds(lambda: np.add(corner, part, out=corner))
    fast = microseconds(lambda: np.add(flat, moved, out=flat))
    print(f"rows {slow:.0f} us, flat {fast:.0f} us")  # -> ...
    print("at least twice as fast:", slow > 2 * fast)  # -> at least twice as fast: True

    other = np.zeros_like(picture)
    other.reshape(-1)[65:] += moved
    print("the same place:", np.array_equal(other[:, 2:, 1:31], part), other.sum() == part.sum())
    # -> the same place: True True

    # The turn and the step of each k: stride 2, dilation 1, three elements.
    plain = ((0, 0),), (1,), 1
    line = Geometry((1, 1, 7), (1, 1, 3), (2,), *plain)
    print([(turn, step) for row in line.steps for turn, step in row])
    # -> [((0,), [0]), ((1,), [0]), ((0,), [1])]
    print(convolve_input(np.ones((1, 1, 3)), np.array([[[1.0, 2.0, 4.0]]]), None, line)[0, 0])
    # -> [1. 2. 5. 2. 5. 2. 4.]

    # <g, conv(x, w)> = <conv_input(g, w), x> (step conv03), in many geometries.
    rng = np.random.default_rng(0)
    worst = 0
    usual = BLOCK
    for stride, dilation, padding, groups, out in np.ndindex(3, 2, 2, 3, 2):
        channels, outputs = (6, 3 * groups + 3) if out else (6, groups + 1)
        x_shape, w_shape = (3, channels, 9, 8), (outputs, channels // (groups + 1), 3, 2)
        pads, stride, dilation = (
            ((padding, 1),) * 2,
            (stride + 1, 1 + stride // 2),
            (dilation + 1, 1),
        )
        geo = Geometry(x_shape, w_shape, stride, pads, dilation, groups + 1)
        x, w = rng.standard_normal(x_shape), rng.standard_normal(w_shape)
        g = rng.standard_normal(geo.y_shape)
        BLOCK = (usual, 50)[out]
        by_y, by_x = (
            (convolve(x, w, None, geo) * g).sum(),
            (convolve_input(g, w, None, geo) * x).sum(),
        )
        worst = max(worst, abs(by_y - by_x))
    print("72 geometries:", worst < 1e-9)  # -> 72 geometries: True
