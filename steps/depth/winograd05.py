"""Step winograd05: The gradients of Winograd's convolution, from the same tiles

Each part of step winograd03 is linear: the tiles of x, the products for each of the 36 places, the
way back to y. The gradient goes through the transposed maps, in reverse order:

    gd = B' [sum over outputs of (A g A') * (G w G')] B
    gw = G' [sum over tiles of (B d B') * (A g A')] G

So to_tiles with A in place of B cuts g into tiles of 4 x 4 and makes 36 numbers of each, and
from_tiles with B in place of A makes 6 x 6 numbers of 36. Only one thing is new: tiles of x share
two rows and two columns, so their gradients must be added there. A window of 6 has 4 rows of its
own and 2 that belong to the next window. transform_back writes the first 4, and adds the 2 to the
next window.

Both gradients use A g A', and computing it takes a quarter of the time. One function gives both.

The trap: the tiles at the border. g has zeros where the outputs were cut off, and the gradient of
the padding is cut off: to_tiles and from_tiles do both already, for g and gx in place of x and y.

Changed: transform_back, Tiles. New: convolve_tiles_back.
Try: leave out the line with `+=` in transform_back. Which lines of the demo change?
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
        self.x_shape, self.w_shape, self.y_shape = x_shape, w_shape, (n, o, *out)
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

    rng = np.random.default_rng(0)
    shapes = (2, 3, 9, 14), (4, 3, 3, 3), (2, 4, 10, 15)
    x, w, g = (rng.standard_normal(shape) for shape in shapes)
    tiles = Tiles(x.shape, w.shape, ((1, 2), (2, 1)), g.shape[2:])

    # The gradient of L = sum(g * y). L is linear in x and in w, so that a step in any direction
    # changes it by the gradient in that direction, exactly.
    gx, gw = convolve_tiles_back(x, g, w, None, tiles)
    step_x, step_w = rng.standard_normal(x.shape), rng.standard_normal(w.shape)
    change = (g * convolve_tiles(step_x, w, None, tiles)).sum()
    print("by x:", np.allclose(change, (gx * step_x).sum()))  # -> by x: True
    change = (g * convolve_tiles(x, step_w, None, tiles)).sum()
    print("by w:", np.allclose(change, (gw * step_w).sum()))  # -> by w: True

    # Windows of ones: where two overlap, their elements are added up.
    ones = np.ones((6, 1, 3, 1))
    print(transform_back(ones, np.eye(6)).ravel().astype(int))
    # -> [1 1 1 1 2 2 1 1 2 2 1 1 1 1 0 0]

    # Each alone. With a bias, the first is a transposed convolution.
    only_w, bias = convolve_tiles_back(x, g, None, None, tiles), rng.standard_normal(3)
    only_x = convolve_tiles_back(None, g, w, bias, tiles)
    print(only_w[0], np.array_equal(only_w[1], gw))  # -> None True
    print(only_x[1], np.allclose(only_x[0], gx + bias[:, None, None]))  # -> None True

    x = rng.standard_normal((16, 64, 26, 26)).astype(np.float32)
    w = rng.standard_normal((64, 64, 3, 3)).astype(np.float32)
    g = rng.standard_normal((16, 64, 24, 24)).astype(np.float32)
    tiles = Tiles(x.shape, w.shape, ((0, 0), (0, 0)), g.shape[2:])

    def milliseconds(function):
        times = []
        for _ in range(3):
            start = time.process_time()
            function()
            times.append(time.process_time() - start)
        return min(times) * 1e3

    both = milliseconds(lambda: convolve_tiles_back(x, g, w, None, tiles))
    each = milliseconds(lambda: convolve_tiles_back(x, g, None, None, tiles))
    each += milliseconds(lambda: convolve_tiles_back(None, g, w, None, tiles))
    print(f"both {both:.1f} ms, one after the other {each:.1f} ms")
    # -> both ... ms, one after the other ... ms
