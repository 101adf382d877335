"""Step conv01: A convolution in the package's dress: any number of dimensions

Step 50c made a convolution one matrix product of the windows (im2col). It was written for images.
Nothing in it depends on the number of dimensions, so here it is written once for signals, images
and volumes, on arrays: the gradients come in the next two steps.

    y [N, O, positions]  =  w [O, C * kernel]  @  columns [N, C * kernel, positions]

x is [N, C, *sizes], and w is [O, C, *kernel]. `Geometry` holds the sizes that the formulas need.
Its `windows` is the view of step 72g in all dimensions at once: the dimensions of the kernel have
the same strides as the positions. There is no padding and no stride yet (step conv06).

The trap: windows overlap. A write into one changes its neighbours.

New: Geometry, convolve.
Try: a kernel of 8 on the signal of 6. What does NumPy say? Step convlayers01 gives a better
message.
"""

import math
from typing import Any

from tinytorch.ops.storage import strided


class Geometry:
    """The sizes of a convolution."""

    def __init__(self, x_shape: tuple, w_shape: tuple):
        self.x_shape, self.w_shape = x_shape, w_shape
        self.kernel = w_shape[2:]
        sizes = zip(x_shape[2:], self.kernel, strict=True)
        self.out = tuple(n - k + 1 for n, k in sizes)
        self.y_shape = (x_shape[0], w_shape[0], *self.out)

    def windows(self, x: Any) -> Any:
        """A view of x: [N, C, *kernel, *out]. Windows share elements: do not write into it."""
        strides = (*x.strides, *x.strides[2:])
        return strided(x, (*x.shape[:2], *self.kernel, *self.out), strides)

    def columns(self, x: Any) -> Any:
        """The windows of x as matrices [N, C * kernel, positions]."""
        return self.windows(x).reshape(len(x), math.prod(self.w_shape[1:]), -1)


def convolve(x: Any, w: Any, geo: Geometry) -> Any:
    """y[n, o, p] = sum of w[o, c, k] x[n, c, p + k]."""
    return (w.reshape(len(w), -1) @ geo.columns(x)).reshape(geo.y_shape)


if __name__ == "__main__":
    import time

    import numpy as np

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 3, 12, 12)), rng.standard_normal((4, 3, 3, 3))

    def loops(x, w):  # step conv01
        y = np.zeros((len(w), x.shape[1] - w.shape[2] + 1, x.shape[2] - w.shape[3] + 1))
        for o, i, j in np.ndindex(y.shape):
            for c, a, b in np.ndindex(w.shape[1:]):
                y[o, i, j] += w[o, c, a, b] * x[c, i + a, j + b]
        return y

    def seconds(function):
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    geo = Geometry(x.shape, w.shape)
    y = convolve(x, w, geo)
    print(y.shape, np.allclose(y[0], loops(x[0], w)))  # -> (1, 4, 10, 10) True
    slow = seconds(lambda: loops(x[0], w))
    fast = min(seconds(lambda: convolve(x, w, geo)) for _ in range(5))
    print(f"loops {slow * 1e3:.0f} ms, product {fast * 1e3:.2f} ms")  # -> ...
    print("many times as fast:", slow > 20 * fast)  # -> many times as fast: True

    # Windows of a signal: a view, and each number is in several of them.
    signal = np.arange(6.0).reshape(1, 1, 6)
    line = Geometry(signal.shape, (1, 1, 3))
    print(line.windows(signal)[0, 0].T.tolist())
    # -> [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0], [3.0, 4.0, 5.0]]
    print("a view:", np.shares_memory(line.windows(signal), signal))  # -> a view: True
    print("columns:", line.columns(signal).shape)  # -> columns: (1, 3, 4)

    # The same lines compute in three dimensions.
    volume = rng.standard_normal((1, 1, 5, 5, 5))
    print(convolve(volume, np.ones((1, 1, 3, 3, 3)), Geometry(volume.shape, (1, 1, 3, 3, 3))).shape)
    # -> (1, 1, 3, 3, 3)
