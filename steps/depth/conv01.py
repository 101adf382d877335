"""Step conv01: A convolution, written as loops

A Linear layer has a weight for each pixel. What it has learned about a pixel says nothing about the
pixel beside it: a linear classifier that reads 89 % of the digits reads 29 % of them when they are
moved by one pixel, and 17 % after two. But a picture shows the same things at any place.

A convolution has one small table of weights, the kernel, and lays it on every place of the signal:

    y[i] = w[0] x[i] + w[1] x[i + 1] + w[2] x[i + 2]            one dimension

       x   0   0   5   5   5   0   0        a kernel [-1, 1] answers where
       w      -1   1                        the signal changes:
       y     0   5   0   0  -5   0

A part of the signal that one output looks at is called a window. If x moves, y moves with it. This
property is called equivariance, and it is what the Linear layer lacks. A picture has two dimensions
and several channels (colours, or what the layer before has found), so that the sum goes over a
window in all channels; each output channel has a kernel of its own.

The trap: in mathematics, a convolution reverses the kernel (x[i - k]); what networks compute is
called cross-correlation there. As kernels are learned, the difference does not matter.

New: convolve_1d, convolve_2d.
Try: w[-1 - k] in convolve_1d, the convolution of mathematics. Which signs of the demo change?
"""

from typing import Any

import numpy as np


def convolve_1d(x: Any, w: Any) -> Any:
    """y[i] = sum of w[k] x[i + k]."""
    y = np.zeros(len(x) - len(w) + 1)
    for i in range(len(y)):
        for k in range(len(w)):
            y[i] += w[k] * x[i + k]
    return y


def convolve_2d(x: Any, w: Any) -> Any:
    """y[o, i, j] = sum over c, a, b of w[o, c, a, b] x[c, i + a, j + b]."""
    channels, height, width = x.shape
    outputs, _, rows, columns = w.shape
    y = np.zeros((outputs, height - rows + 1, width - columns + 1))
    for o, i, j in np.ndindex(y.shape):
        for c, a, b in np.ndindex(w.shape[1:]):
            y[o, i, j] += w[o, c, a, b] * x[c, i + a, j + b]
    return y


if __name__ == "__main__":
    from tinytorch.datasets.digits import load_digits

    pixels, labels = (t.array for t in load_digits())
    x = pixels.reshape(-1, 64).astype(float)
    targets = np.eye(10)[labels]

    # The best linear classifier (least squares) of half of the digits, and the other half, moved.
    weights = np.linalg.lstsq(x[:900], targets[:900], rcond=None)[0]
    pictures = x[900:].reshape(-1, 8, 8)

    def accuracy(moved_by):
        moved = np.roll(pictures, moved_by, axis=2).reshape(-1, 64)
        return ((moved @ weights).argmax(1) == labels[900:]).mean()

    print(f"read: {accuracy(0):.0%}, moved by 1: {accuracy(1):.0%}, by 2: {accuracy(2):.0%}")
    # -> read: 89%, moved by 1: 29%, by 2: 17%

    signal = np.array([0.0, 0, 5, 5, 5, 0, 0])
    print(convolve_1d(signal, np.array([-1.0, 1])))  # -> [ 0.  5.  0.  0. -5.  0.]
    print(convolve_1d(np.roll(signal, 1), np.array([-1.0, 1])))  # -> [ 0.  0.  5.  0.  0. -5.]

    # Two kernels of 3 x 3 on a 0: one answers to vertical edges, one to horizontal edges.
    edge = np.array([[-1.0, 0, 1], [-1, 0, 1], [-1, 0, 1]])
    kernels = np.stack([edge, edge.T])[:, None]
    picture = np.pad(x[0].reshape(1, 8, 8), ((0, 0), (0, 0), (0, 1)))
    y = convolve_2d(picture, kernels)
    print(picture.shape, kernels.shape, y.shape)  # -> (1, 8, 9) (2, 1, 3, 3) (2, 6, 7)
    # A row of the first answer: positive where dark becomes bright, negative at the other side.
    print(y[0, 2])  # -> [ 2.1875 -0.625  -2.1875  1.625   1.5    -1.75   -1.5   ]
    moved = convolve_2d(np.roll(picture, 1, axis=2), kernels)
    print("moves with the picture:", np.array_equal(moved[:, :, 1:], y[:, :, :-1]))
    # -> moves with the picture: True

    print("weights of a Linear layer and of the convolution:", y.size * 64, kernels.size)
    # -> weights of a Linear layer and of the convolution: 5376 18
