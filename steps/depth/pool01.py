"""Step pool01: Average pooling, by reshaping

Step 50d built max pooling, and said what pooling is for: a shift by a pixel should change little,
and what follows has a quarter of the work. The mean of each square is the simpler kind. Squares
that do not overlap need no loop. Cut each dimension in two, (row of squares, row in the square,
column of squares, column in the square), and take the mean over the second and the last:

    [h, w]  ->  [h / k, k, w / k, k]  ->  [h / k, w / k]

The derivative is already there: reshape and mean have theirs. Each pixel gets 1 / k^2 of the
gradient of its square.

The trap: an image of 5 x 5 has no whole number of squares. As in PyTorch, the last row and the last
column are left out. Their gradient is 0.

PyTorch: nn.AvgPool2d, nn.functional.avg_pool2d. A new module: nn/modules/pooling.py. The
convolution layers of the run conv are laid aside until step upsample07, which finishes them.

New: avg_pool2d.
Try: take the mean over (-4, -2) instead. Which pixels does it average?
"""

import numpy as np

from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops import indexing, reduction, shape  # noqa: F401 (they attach methods)


def avg_pool2d(input: Tensor, kernel_size: int) -> Tensor:
    """The mean of each square of `kernel_size` x `kernel_size` pixels: [..., h, w] -> [..., h / k,
    w / k]. Rows and columns that do not fill a square are left out."""
    *batch, height, width = input.array.shape
    k = kernel_size
    rows, columns = height // k, width // k
    squares = input[..., : rows * k, : columns * k].reshape(*batch, rows, k, columns, k)
    return squares.mean((-3, -1))


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)

    image = tensor([[1.0, 3.0, 0.0, 0.0], [5.0, 7.0, 0.0, 4.0]], requires_grad=True)
    small = avg_pool2d(image, 2)
    print("means:", small.tolist())  # -> means: [[4.0, 1.0]]
    (small * tensor([[1.0, 10.0]])).sum().backward()
    print("gradient:", image.grad.tolist())
    # -> gradient: [[0.25, 0.25, 2.5, 2.5], [0.25, 0.25, 2.5, 2.5]]

    # How far a shift by one pixel changes a picture, and its means, relative to their size.
    rng = np.random.default_rng(0)
    digit = np.zeros((28, 28))
    digit[6:22, 12:16] = 1 + 0.1 * rng.normal(size=(16, 4))  # a one
    before, after = tensor(digit), tensor(np.roll(digit, 1, axis=1))
    for name, k in (("pixels", 1), ("means", 2), ("means", 4)):
        x, y = (avg_pool2d(each, k).array for each in (before, after))
        change = np.linalg.norm(x - y) / np.linalg.norm(x)
        print(f"{name} of {k} x {k}: changed by {change:.0%}, {10 * x.size} weights")
    # -> pixels of 1 x 1: changed by 71%, 7840 weights
    # -> means of 2 x 2: changed by 51%, 1960 weights
    # -> means of 4 x 4: changed by 36%, 490 weights

    odd = tensor(np.ones((5, 5)), requires_grad=True)
    avg_pool2d(odd, 2).sum().backward()
    print("left out:", (odd.grad.array == 0).sum(), "of", odd.numel())  # -> left out: 9 of 25
