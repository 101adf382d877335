"""Step winograd06: Where Winograd's tiles pay

Tiles are not always faster. The transforms of a channel cost the same however many channels the
products combine it with, so with few channels they cost more than is saved. With few tiles, the 36
products have few rows. Compared with one product for the whole kernel (step conv01), the tiles of
32 and 64 channels take about half the time, and those of 8 channels 0.8 to 0.9 of it. But the forms
of steps conv10 to conv12 are faster than that product: for 8 channels, and for a single image of 16
x 16, they are faster than the tiles too.

The second limit is rounding. A tile adds and subtracts numbers that are larger than the result, so
its error is two to four times that of the direct form. It grows with the square root of the number
of channels. With 64, results of size 1 differ from the exact ones by up to 1e-5, which is what
PyTorch's own tests tolerate between two ways to compute in float32. 128 channels would save as much
time, but exceed that.

So `pays` is true for 32 to 64 channels and at least 64 tiles.

The trap: these limits were measured on one machine. They have to be right where much can be gained
or lost, not in between.

Changed: Tiles. Module finished: tinytorch/ops/winograd.py.
Try: 256 channels. How large is the largest error then?
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
    pays: few channels, or few tiles, cost less without. With more channels the results round more:
        with 64, those of size 1 differ by up to 1e-5. An inf or a nan in x makes all outputs of its
        tiles nan, not only those whose kernel covers it.
    """

    def __init__(self, x_shape: tuple, w_shape: tuple, pads: tuple, out: tuple):
        (n, c), o = x_shape[:2], w_shape[0]
        self.x_shape, self.w_shape, self.y_shape = x_shape, w_shape, (n, o, *out)
        self.counts = tuple(-(-size // 4) for size in out)
        self.start = tuple(before for before, _ in pads)
        self.pays = min(c, o) >= 32 and max(c, o) <= 64 and n * math.prod(self.counts) >= 64
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
    """The transposed map: [6, before, count, after] -> [before, length, after]. Windows that share
    elements are added up; the length is then 4 * count + 4, with two zeros at the end."""
    xp = device_of(values).xp
    _, before, count, after = values.shape
    values, shared = values.transpose(1, 2, 0, 3), matrix.shape[1] - 4
    out = xp.empty((before, count + (shared > 0), 4, after), values.dtype)
    xp.matmul(matrix[:, :4].T, values, out=out[:, :count])
    if shared:
        out[:, count] = 0
        out[:, 1:, :shared] += matrix[:, 4:].T @ values
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
    """The transposed map: writes M' v M of the tiles, added up, to `out` [N, C, height, width]."""
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


def convolve_tiles_back(x: Any, g: Any, w: Any, bias: Any, tiles: Tiles) -> tuple:
    """(gx, gw): the gradients of both arguments, from the same tiles of g. gx needs w and may have
    a bias; gw needs x. Without these each is None."""
    xp, (a, b, evaluate) = device_of(g).xp, constants(device_of(g), g.dtype)
    o, c, *_ = tiles.w_shape
    gx = gw = None
    if w is not None:
        u = (evaluate @ w.transpose(2, 3, 0, 1).reshape(9, -1)).reshape(36, o, c)
        gx = xp.empty(tiles.x_shape, g.dtype)
    if x is not None:
        gu = xp.zeros((36, c, o), g.dtype)
    for images in tiles.blocks:
        values = to_tiles(g[images], a, (0, 0), tiles.counts)
        if w is not None:
            from_tiles(values @ u, b, tiles.start, tiles.counts, gx[images], bias)
        if x is not None:
            gu += to_tiles(x[images], b, tiles.start, tiles.counts).swapaxes(1, 2) @ values
    if x is not None:
        gw = (evaluate.T @ gu.reshape(36, -1)).reshape(3, 3, c, o).transpose(3, 2, 0, 1)
        gw = xp.ascontiguousarray(gw)
    return gx, gw


if __name__ == "__main__":
    import time

    def direct(x, w):
        """One product for each image, of the whole kernel (step conv01)."""
        (n, c, height, width), o = x.shape, len(w)
        seen = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
        columns = seen.transpose(0, 1, 4, 5, 2, 3).reshape(n, c * 9, -1)
        return (w.reshape(o, -1) @ columns).reshape(n, o, height - 2, width - 2)

    def milliseconds(function):
        times = []
        for _ in range(5):
            start = time.process_time()
            function()
            times.append(time.process_time() - start)
        return min(times) * 1e3

    rng = np.random.default_rng(0)
    print("channels  tiles  pays   time / direct  rms error / direct  largest error")
    # -> channels  tiles  pays   time / direct  rms error / direct  largest error
    for channels, images in ((8, 16), (32, 16), (64, 16), (128, 8), (64, 1), (64, 4)):
        x = rng.standard_normal((images, channels, 18, 18)).astype(np.float32)
        w = rng.standard_normal((channels, channels, 3, 3)) / np.sqrt(9 * channels)
        w = w.astype(np.float32)
        tiles = Tiles(x.shape, w.shape, ((0, 0), (0, 0)), (16, 16))
        exact = direct(x.astype(float), w.astype(float))
        y, plain = convolve_tiles(x, w, None, tiles), direct(x, w)
        rms = np.sqrt(np.mean((y - exact) ** 2) / np.mean((plain - exact) ** 2))
        took = milliseconds(lambda x=x, w=w, tiles=tiles: convolve_tiles(x, w, None, tiles))
        took /= milliseconds(lambda x=x, w=w: direct(x, w))
        print(
            f"{channels:8}  {images * 16:5}  {tiles.pays!s:5}  {took:13.2f}  {rms:18.1f}"
            f"  {abs(y - exact).max():13.1e}"
        )
    # ->        8    256  False ...
    # ->       32    256  True  ...
    # ->       64    256  True  ...
    # ->      128    128  False ...
    # ->       64     16  False ...
    # ->       64     64  True  ...
