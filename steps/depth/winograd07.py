"""Step winograd07: Convolutions that choose Winograd's tiles

The convolutions of step conv12 are resumed, and take the tiles of step winograd06 where these pay:
kernels of 3 x 3 without stride, dilation and groups, float32, 32 to 64 channels. All others stay as
they were; float64 too, where a program asks for precision.

Geometry decides once for each set of shapes. The three functions ask it first, so a transposed
convolution uses tiles as well. In backward, both gradients are usually wanted, and then one
function computes them from the same tiles of g. This works for arrays only. Where the gradient
itself is to be differentiated, backward gets Tensors and calls the two operations as before, and
each of them asks Geometry for itself.

In the network of PyTorch's MNIST example, the second convolution has 32 and 64 channels. A training
step at batch 64 took 1.34 of PyTorch's time; now it takes as long as PyTorch's.

The tiles round more: their results are 3 to 5 times as far from the exact ones as those of the
direct way. Where that matters, use_deterministic_algorithms(True) makes all of them direct.

The trap: a GPU. Its library has fast forms of its own, the transforms would be many small launches,
and nothing was measured there. So only a device that computes in blocks for its cache uses tiles.

Changed: Geometry; convolve, convolve_weight, convolve_input; Convolution. Module finished:
tinytorch/ops/convolution.py.
Try: take `x.dtype == np.float32` out of Geometry.tiled. Which two lines of the demo change?
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
from tinytorch.core.deterministic import Deterministic
from tinytorch.core.device import device_of
from tinytorch.core.tensor import Tensor
from tinytorch.ops.reduction import wide
from tinytorch.ops.storage import strided
from tinytorch.ops.winograd import Tiles, convolve_tiles, convolve_tiles_back

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
        self.tiles = None
        if (self.kernel, stride, dilation, groups) == ((3, 3), (1, 1), (1, 1), 1):
            self.tiles = Tiles(x_shape, w_shape, pads, self.out)

    def tiled(self, x: Any) -> bool:
        """Whether Winograd's tiles take less time. On a GPU they were not measured."""
        tiles, in_cache = self.tiles, device_of(x).backend.chunk_elements is not None
        if tiles is None or not tiles.pays or Deterministic.enabled:
            return False
        return x.dtype == np.float32 and in_cache

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
    if geo.tiled(x):
        return convolve_tiles(x, w, bias, geo.tiles)
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
    if geo.tiled(x):
        return convolve_tiles_back(x, g, None, None, geo.tiles)[1]
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
    if geo.tiled(g):
        return convolve_tiles_back(None, g, w, bias, geo.tiles)[0]
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
        gb = sum_channels(g) if need_bias else None
        if need_x and need_w and ctx.xp is not Tensor and ctx.geo.tiled(g):
            # Both from the same tiles of g.
            return *convolve_tiles_back(x, g, w, None, ctx.geo.tiles), gb
        return (
            ctx.call(ConvolutionInput, g, w, None, ctx.geo) if need_x else None,
            ctx.call(ConvolutionWeight, x, g, ctx.geo) if need_w else None,
            gb,
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

    def shapes(channels, images=64):
        x, w = (images, channels, 26, 26), (64, channels, 3, 3)
        return x, w, (1, 1), ((0, 0), (0, 0)), (1, 1), 1

    def difference(a, b):
        """The largest one, relative to the size of b."""
        return abs(a - b).max() / b.std()

    manual_seed(0)
    geo, direct = Geometry(*shapes(32)), Geometry(*shapes(32))
    direct.tiles = None
    x, w, b, g = (randn(*shape) for shape in (geo.x_shape, geo.w_shape, (64,), geo.y_shape))
    for each in (x, w, b):
        each.requires_grad = True
    print(geo.tiled(x.array), geo.tiled(x.array.astype(np.float64)), direct.tiled(x.array))
    # -> True False False
    Deterministic.enabled = True
    print("the exact way:", geo.tiled(x.array))  # -> the exact way: False
    Deterministic.enabled = False
    print("3 channels:", Geometry(*shapes(3)).tiled(x.array))  # -> 3 channels: False

    found = []
    for form in (geo, direct):
        times = []
        for _ in range(3):
            x.grad = w.grad = b.grad = None
            start = time.process_time()
            y = Convolution.apply(x, w, b, form)
            y.backward(g)
            times.append(time.process_time() - start)
        found.append([t.array for t in (y, x.grad, w.grad, b.grad)])
        name = "direct" if form is direct else "tiles"
        print(f"{name}: {min(times) * 1e3:.1f} ms for convolution and gradients")
    # -> tiles: ... ms for convolution and gradients
    # -> direct: ... ms for convolution and gradients
    print([bool(difference(one, two) < 2e-5) for one, two in zip(*found, strict=True)])
    # -> [True, True, True, True]

    # One gradient alone, and the gradient of a gradient.
    x, w = x.detach(), w.detach()
    w.requires_grad = True
    Convolution.apply(x, w, None, geo).backward(g)
    print("only w:", difference(w.grad.array, found[1][2]) < 2e-5)  # -> only w: True
    moved = ConvolutionInput.apply(g, w, None, geo).array
    print("transposed:", difference(moved, found[1][1]) < 2e-5)  # -> transposed: True
    x.requires_grad = True
    for form in (geo, direct):
        x.grad = w.grad = None
        Convolution.apply(x, w, None, form).backward(g, create_graph=True)
        first, x.grad = x.grad, None
        (first * first).sum().backward()
        found.append(w.grad.array)
    print("second:", difference(*found[2:]) < 2e-5)  # -> second: True

    x, w = randn(1, 32, 34, 34, dtype=float64), randn(32, 32, 3, 3, dtype=float64)
    geo = Geometry(x.shape, w.shape, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    print(geo.tiles.pays, geo.tiled(x.array))  # -> True False
    x, w = (t[:, :2, :5, :5].detach() for t in (x, w[:2]))
    x.requires_grad = w.requires_grad = True
    geo = Geometry(x.shape, w.shape, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    print(gradcheck(lambda x, w: Convolution.apply(x, w, None, geo), (x, w)))  # -> True
