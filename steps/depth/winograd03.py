"""Step winograd03: The tiles of all images as 36 matrix products

For one channel, the transforms of step winograd02 cost more than they save. But a layer has many
channels, and the sum over the input channels stands inside the brackets:

    y = A' [sum over channels of (B d B') * (G w G')] A

So B d B' is computed once for each input channel and serves all output channels, and A' [...] A
once for each output channel. Between them, each of the 36 places is a sum over channels, for each
tile and each output: a matrix product [tiles, C] @ [C, O]. All 36 are one call of matmul. With 32
to 64 channels this is a quarter of the multiplications of step conv01, in products of good size.

How the numbers lie in memory decides whether the rest is cheap. With channels last, [height, width,
N, C], the numbers of one place lie side by side, so each transform works on long rows. One
transposed copy at the beginning and one at the end are all the copying there is. Padding costs
nothing: the first copy goes into an array of zeros. Sizes that are not multiples of 4 are filled up
with zeros too, and the outputs there are cut off.

The trap: the order of (tile, image). A row of the product is a tile of an image; the images must be
inside, beside the channels, or the two transforms would see short rows.

New: constants, Tiles, to_tiles, from_tiles, convolve_tiles.
Try: 8 channels in and out. Which form is faster then?
"""

import functools
from typing import Any

import numpy as np

from tinytorch.core.device import Device, device_of
from tinytorch.ops.storage import strided

POINTS = (0, 5 / 8, -5 / 8, 3 / 2, -3 / 2)  # these round less than 0, 1, -1, 2, -2


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
    """How many tiles the pictures of a convolution have.

    counts: the tiles of a picture, down and across. start: where the pictures begin in them.
    """

    def __init__(self, x_shape: tuple, w_shape: tuple, pads: tuple, out: tuple):
        self.w_shape, self.y_shape = w_shape, (x_shape[0], w_shape[0], *out)
        self.counts = tuple(-(-size // 4) for size in out)
        self.start = tuple(before for before, _ in pads)


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
    values = to_tiles(x, b, tiles.start, tiles.counts)
    from_tiles(values @ u, a, (0, 0), tiles.counts, y, bias)
    return y


if __name__ == "__main__":
    import time

    def direct(x, w, bias=0):
        """One product for each image, of the whole kernel, without padding (step conv01)."""
        (n, c, height, width), o = x.shape, len(w)
        seen = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
        columns = seen.transpose(0, 1, 4, 5, 2, 3).reshape(n, c * 9, -1)
        return (w.reshape(o, -1) @ columns).reshape(n, o, height - 2, width - 2) + bias

    def milliseconds(function):
        times = []
        for _ in range(5):
            start = time.process_time()
            function()
            times.append(time.process_time() - start)
        return min(times) * 1e3

    rng = np.random.default_rng(0)
    x, w, bias = (rng.standard_normal(shape) for shape in ((2, 3, 9, 14), (4, 3, 3, 3), 4))
    tiles = Tiles(x.shape, w.shape, ((0, 0), (0, 0)), (7, 12))
    print("tiles:", tiles.counts)  # -> tiles: (2, 3)
    print(to_tiles(x, matrices(POINTS)[1], (0, 0), tiles.counts).shape)  # -> (36, 12, 3)
    y = convolve_tiles(x, w, bias, tiles)
    print(np.allclose(y, direct(x, w, bias[:, None, None])))  # -> True
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2), (2, 1)))
    tiles = Tiles(x.shape, w.shape, ((1, 2), (2, 1)), (10, 15))
    print(np.allclose(convolve_tiles(x, w, None, tiles), direct(padded, w)))  # -> True

    x = rng.standard_normal((16, 64, 26, 26)).astype(np.float32)
    w = rng.standard_normal((64, 64, 3, 3)).astype(np.float32) / 24
    tiles = Tiles(x.shape, w.shape, ((0, 0), (0, 0)), (24, 24))
    exact = direct(x.astype(float), w.astype(float))
    for name, form in (
        ("direct", direct),
        ("tiles", lambda x, w: convolve_tiles(x, w, None, tiles)),
    ):
        error = np.sqrt(np.mean((form(x, w) - exact) ** 2))
        took = milliseconds(lambda form=form: form(x, w))
        print(f"{name}: {took:.1f} ms, error {error:.1e}")
    # -> direct: ... ms, error ...e-07
    # -> tiles: ... ms, error ...e-07
