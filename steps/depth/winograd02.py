"""Step winograd02: Winograd's convolution in two dimensions

A picture has two dimensions, so the saving counts twice. Take a tile d of 6 x 6 elements and a
kernel w of 3 x 3. Apply the matrices of step winograd01 to the columns and to the rows:

    y = A' [(B d B') * (G w G')] A         4 x 4 outputs from 36 products, instead of 144

The next tile begins 4 elements further: neighbours share two rows or columns. To apply a matrix
along one dimension of an array, see the array as [before, length, after] with that dimension in the
middle. A view of overlapping windows, [before, count, 6, after], is then multiplied without a copy
by one call of matmul, and the 6 results become a first dimension. The second dimension comes next.

The points decide how large the rounding errors are. Papers show 0, 1, -1, 2, -2, with 4 and 8 in A
and 5 in B. With points whose powers are nearer to 1, such as 0, 5/8, -5/8, 3/2, -3/2, the errors
are half as large (1.7e-6 and 0.7e-6 in the demo). All of them are exact in binary, as are A and B.

The trap: B d B' has 36 numbers for 16 outputs. For one channel, the additions that make them cost
more than the multiplications saved. They pay where many channels share them (step winograd03).

New: POINTS, windows, transform, transform_back.
Try: the points 0, 1, -1, 1/2, -2.
"""

from typing import Any

import numpy as np

from tinytorch.core.device import device_of
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


if __name__ == "__main__":
    a, b, g = matrices(POINTS)
    rng = np.random.default_rng(0)
    d, w = rng.standard_normal((6, 6)), rng.standard_normal((3, 3))
    windows_of_3 = np.lib.stride_tricks.sliding_window_view(d, (3, 3))
    direct = np.einsum("ijkl,kl->ij", windows_of_3, w)
    u, v = g @ w @ g.T, b @ d @ b.T
    print("products:", direct.size * w.size, "and", u.size)  # -> products: 144 and 36
    print("the same:", np.allclose(a.T @ (u * v) @ a, direct))  # -> the same: True

    # Tiles of a picture of 6 x 14: the windows begin 4 elements apart.
    x = rng.standard_normal((6, 14))
    print(windows(x.reshape(6, 14, 1), 6).shape)  # -> (6, 3, 6, 1)
    rows = transform(x.reshape(6, 14, 1), b)  # along a row: [6, 6 rows, 3 tiles, 1]
    tiles = transform(rows.reshape(6, 6, 3), b)  # and along a column
    print(rows.shape, tiles.shape)  # -> (6, 6, 3, 1) (6, 6, 1, 3)
    print(np.allclose(tiles[:, :, 0, 1], b @ x[:, 4:10] @ b.T))  # -> True
    values = tiles * (g @ w @ g.T)[:, :, None, None]
    y = transform_back(transform_back(values, a).reshape(6, 4, 3, 1), a)
    windows_of_3 = np.lib.stride_tricks.sliding_window_view(x, (3, 3))
    print(y.shape, np.allclose(y[..., 0], np.einsum("ijkl,kl->ij", windows_of_3, w)))
    # -> (4, 12, 1) True

    def error(points):
        """Of float32, over 64 channels and 300 tiles."""
        rng = np.random.default_rng(1)
        d, w = rng.standard_normal((300, 64, 6, 6)), rng.standard_normal((64, 3, 3)) / 24
        d, w = d.astype(np.float32), w.astype(np.float32)
        windows_of_3 = np.lib.stride_tricks.sliding_window_view(d.astype(float), (3, 3), (2, 3))
        exact = np.einsum("ncijkl,ckl->nij", windows_of_3, w)
        a, b, g = (m.astype(np.float32) for m in matrices(points))
        y = a.T @ ((b @ d @ b.T) * (g @ w @ g.T)).sum(1) @ a
        return np.sqrt(np.mean((y - exact) ** 2))

    usual, chosen = error((0, 1, -1, 2, -2)), error(POINTS)
    print(f"errors: {usual:.1e} and {chosen:.1e}")  # -> errors: ...
    print("half as much or less:", chosen < 0.6 * usual)  # -> half as much or less: True
