"""Winograd's convolution: kernels of 3 x 3 with a quarter of the multiplications.

A tile d of 6 x 6 elements gives 4 x 4 outputs. With three constant matrices, A [6, 4], B [6, 6]
and G [6, 3], w a kernel, ' for transposed, and * element by element:

    y = A' [sum over channels of (B d B') * (G w G')] A          36 products instead of 144

For all tiles and channels together, the sum is 36 matrix products [tiles, C] @ [C, O]. Each map is
linear, so the gradients go back through the transposed maps:

    gd = B' [sum over outputs of (A g A') * (G w G')] B
    gw = G' [sum over tiles of (B d B') * (A g A')] G

Sources: S. Winograd, Arithmetic complexity of computations, 1980; A. Lavin and S. Gray, Fast
algorithms for convolutional neural networks, 2015.
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
