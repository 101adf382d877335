"""Step winograd04: Blocks of tiles that stay in the cache

The tiles of 64 images of 32 x 26 x 26 are 36 numbers for 16 outputs of each channel: 10 MB going
into the products and 21 MB coming out. Each of the four transforms reads such an array and writes
another. That is far more than a core's cache, so the processor waits for memory.

Step conv09 had the same problem, and the answer is the same: a few images at a time. Their tiles
are written and read again while they are in the cache, and the next block uses the same memory.
Five images are a good block here; the time grows slowly on both sides.

The trap: blocks that are too small. With one image, the products have 36 rows, and the call of each
of the 36 products costs as much as its work.

Changed: Tiles, convolve_tiles. New: BLOCK.
Try: all = 2**17, one image for each block, in the list of sizes below.
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.core.device import Device, device_of
from tinytorch.ops.storage import strided

POINTS = (0, 5 / 8, -5 / 8, 3 / 2, -3 / 2)  # these round less than 0, 1, -1, 2, -2
BLOCK = 640 * 1024  # numbers of a block's tiles: 2.5 MiB of float32, which stay in the cache


def matrices(points: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A [n, n - 2], B [n, n] and G [n, 3], for n - 1 points: A' ((B d) * (G w)) are the n - 2
    outputs of a kernel w of 3 elements on d, which has n."""
    p = np.array(points, np.float64)
    others = [np.delete(p, i) for i in range(len(p))]
    scale = np.array([np.prod(at - rest) for at, rest in zip(p, others, strict=True)])[:, None]
    a = np.vstack([p[:, None] ** np.arange(len(p) - 1), np.eye(len(p) - 1)[-1]])
    g = np.vstack([p[:, None] ** np.arange(3) / scale, np.eye(3)[-1]])
    # Row i: the coefficients of the polynomial that is zero at all other points.
    b = [np.append(np.poly(rest)[::-1], 0) for rest in others]
    return a, np.vstack([*b, np.poly(p)[::-1]]), g


@functools.lru_cache
def constants(device: Device, dtype: np.dtype) -> tuple:
    """On a device: A, B, and G for both dimensions of a kernel, [36, 9]."""
    a, b, g = matrices(POINTS)
    send = device.backend.from_numpy
    return tuple(send(m.astype(dtype), device.index) for m in (a, b, np.kron(g, g)))


class Tiles:
    """How many tiles the pictures of a convolution have, and how the images are cut into blocks.

    counts: the tiles of a picture, down and across. start: where the pictures begin in them.
    """

    def __init__(self, x_shape: tuple, w_shape: tuple, pads: tuple, out: tuple):
        (n, c), o = x_shape[:2], w_shape[0]
        self.w_shape, self.y_shape = w_shape, (n, o, *out)
        self.counts = tuple(-(-size // 4) for size in out)
        self.start = tuple(before for before, _ in pads)
        numbers = 36 * math.prod(self.counts) * (c + o)  # of one image; 0 where nothing fits
        step = BLOCK // (numbers or 1) or 1
        self.blocks = [slice(first, first + step) for first in range(0, n, step)]


def windows(x: Any, size: int) -> Any:
    """A view of x [before, length, after]: its windows [before, count, size, after], at a distance
    of 4. Windows of 6 share elements."""
    (before, length, after), (s0, s1, s2) = x.shape, x.strides
    return strided(x, (before, (length + 4 - size) // 4, size, after), (s0, 4 * s1, s1, s2))


def transform(x: Any, matrix: Any) -> Any:
    """matrix @ each window of x [before, length, after]: [6, before, count, after]."""
    parts = windows(x, matrix.shape[1])
    before, count, _, after = parts.shape
    xp = device_of(x).xp
    out = xp.empty((len(matrix), before, count, after), x.dtype)
    xp.matmul(matrix, parts, out=out.transpose(1, 2, 0, 3))
    return out


def transform_back(values: Any, matrix: Any) -> Any:
    """The way back, from [6, before, count, after]: matrix' @ each six, [before, length, after]."""
    xp = device_of(values).xp
    _, before, count, after = values.shape
    out = xp.empty((before, count, 4, after), values.dtype)
    xp.matmul(matrix.T, values.transpose(1, 2, 0, 3), out=out)
    return out.reshape(before, -1, after)


def to_tiles(x: Any, matrix: Any, start: tuple, counts: tuple) -> Any:
    """The tiles of x [N, C, height, width] as M d M': [36, tiles * N, C]. Channels come last, so
    that the numbers of one place lie side by side."""
    (n, c, height, width), (top, left), (down, across) = x.shape, start, counts
    more = matrix.shape[1] - 4
    size = 4 * down + more, 4 * across + more
    xp = device_of(x).xp
    inner = (xp.empty if (height, width) == size else xp.zeros)((*size, n, c), x.dtype)
    inner[top : top + height, left : left + width] = x.transpose(2, 3, 0, 1)
    values = transform(inner.reshape(*size, n * c), matrix)
    values = transform(values.reshape(6, size[0], across * n * c), matrix)
    return values.reshape(36, down * across * n, c)


def from_tiles(values: Any, matrix: Any, start: tuple, counts: tuple, out: Any, bias: Any) -> None:
    """The way back: writes M' v M of the tiles, plus bias, to `out` [N, C, height, width]."""
    (n, c, height, width), (top, left), (down, across) = out.shape, start, counts
    values = transform_back(values.reshape(6, 6, down, across * n * c), matrix)
    values = transform_back(values.reshape(6, -1, across, n * c), matrix)
    values = values.reshape(*values.shape[:2], n, c)
    values = values[top : top + height, left : left + width]
    if bias is not None:
        values += bias
    out[...] = values.transpose(2, 3, 0, 1)


def convolve_tiles(x: Any, w: Any, bias: Any, tiles: Tiles) -> Any:
    """y[n, o, p] = bias[o] + sum of w[o, c, k] x[n, c, p + k], with padding."""
    (a, b, evaluate), (o, c, *_) = constants(device_of(x), x.dtype), tiles.w_shape
    u = (evaluate @ w.transpose(2, 3, 1, 0).reshape(9, -1)).reshape(36, c, o)
    y = device_of(x).xp.empty(tiles.y_shape, x.dtype)
    for images in tiles.blocks:
        values = to_tiles(x[images], b, tiles.start, tiles.counts)
        from_tiles(values @ u, a, (0, 0), tiles.counts, y[images], bias)
    return y


if __name__ == "__main__":
    import time

    def milliseconds(function):
        times = []
        for _ in range(5):
            start = time.process_time()
            function()
            times.append(time.process_time() - start)
        return min(times) * 1e3

    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 32, 26, 26)).astype(np.float32)
    w = rng.standard_normal((64, 32, 3, 3)).astype(np.float32)
    shapes = x.shape, w.shape, ((0, 0), (0, 0)), (24, 24)
    results = {}
    for numbers in (2**17, BLOCK, 2**24):
        BLOCK = numbers
        tiles = Tiles(*shapes)
        took = milliseconds(lambda tiles=tiles: convolve_tiles(x, w, None, tiles))
        results[numbers] = convolve_tiles(x, w, None, tiles)
        print(f"{len(tiles.blocks)} blocks of {tiles.blocks[0].stop} images: {took:.1f} ms")
    # -> 64 blocks of 1 images: ... ms
    # -> 13 blocks of 5 images: ... ms
    # -> 1 blocks of 134 images: ... ms
    one, *others = results.values()
    print(all(np.allclose(one, each, atol=1e-4) for each in others))  # -> True
