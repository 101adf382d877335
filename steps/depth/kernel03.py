"""Step kernel03: Blocks in three dimensions

Step 80d built blocks of two dimensions. CUDA's positions and sizes have three parts, x, y, z.

    column = blockIdx.x * blockDim.x + threadIdx.x          a block of (4, 4) threads
    row    = blockIdx.y * blockDim.y + threadIdx.y          does 4 x 4 pixels

A size that is given as a number is a size along x, and the others are 1: what steps kernel01 and
kernel02 launched still runs, with `.x` behind each name.

The trap: NumPy writes [row, column], CUDA (x, y), which is (column, row). If they are exchanged,
the numbers are right, and each warp reads 8 times as much as it should.

Changed: Thread, launch. New: Dim3.
Try: a block of (8, 2) threads, then (2, 8). How many pixels does each look at?
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Dim3(NamedTuple):
    """A size or a place in up to three dimensions; x is the fastest."""

    x: int
    y: int = 1
    z: int = 1

    def places(self) -> Iterator["Dim3"]:
        """All places in a grid of this size."""
        for z, y, x in itertools.product(range(self.z), range(self.y), range(self.x)):
            yield Dim3(x, y, z)


class Thread:
    """What a thread knows of itself, by CUDA's names."""

    def __init__(self, threadIdx: Dim3, blockIdx: Dim3, blockDim: Dim3, gridDim: Dim3):
        self.threadIdx, self.blockIdx = threadIdx, blockIdx
        self.blockDim, self.gridDim = blockDim, gridDim

    @property
    def number(self) -> int:
        """The thread's number in the whole grid, along x."""
        return self.blockIdx.x * self.blockDim.x + self.threadIdx.x


def launch(kernel: Callable, grid: Any, block: Any, *args: Any) -> None:
    """Runs kernel(thread, *args) for grid x block threads; sizes are numbers or tuples.

    They run one after the other, which is one of the orders that a GPU may choose.
    """
    grid, block = (Dim3(*size) if isinstance(size, tuple) else Dim3(size) for size in (grid, block))
    for place in grid.places():
        for within in block.places():
            kernel(Thread(within, place, block, grid), *args)


if __name__ == "__main__":
    import math

    height, width = 6, 10
    picture = [[(3 * row + column) % 5 for column in range(width)] for row in range(height)]

    def blurred(row, column, looked_at):
        """The mean of the pixels around one; those beyond the border do not count."""
        around = [
            (r, c)
            for r in range(max(row - 1, 0), min(row + 2, height))
            for c in range(max(column - 1, 0), min(column + 2, width))
        ]
        looked_at.update(around)
        return sum(picture[r][c] for r, c in around) / len(around)

    right = [[blurred(row, column, set()) for column in range(width)] for row in range(height)]

    def blur(t, out, looked_at):
        column = t.blockIdx.x * t.blockDim.x + t.threadIdx.x
        row = t.blockIdx.y * t.blockDim.y + t.threadIdx.y
        if column < width and row < height:
            out[row][column] = blurred(row, column, looked_at.setdefault(t.blockIdx, set()))

    for block in ((16, 1), (4, 4)):
        out, looked_at = [[0] * width for _ in range(height)], {}
        grid = math.ceil(width / block[0]), math.ceil(height / block[1])
        launch(blur, grid, block, out, looked_at)
        pixels = sum(len(each) for each in looked_at.values())
        print(f"blocks of {block}: right {out == right}, grid {grid}, pixels looked at {pixels}")
        # -> blocks of (16, 1): right True, grid (1, 6), pixels looked at 160
        # -> blocks of (4, 4): right True, grid (3, 2), pixels looked at 112

    order = []
    launch(lambda t: order.append((t.threadIdx.y, t.threadIdx.x)), 1, (3, 2))
    print("(row, column), in the order of a warp:", order)
    # -> (row, column), in the order of a warp: [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]

    # Three dimensions: z is the picture of a batch.
    batch = [[[0] * 3 for _ in range(2)] for _ in range(4)]

    def mark(t):
        batch[t.blockIdx.z][t.threadIdx.y][t.threadIdx.x] += 1

    launch(mark, (1, 1, 4), (3, 2))
    print(batch == [[[1] * 3] * 2] * 4)  # -> True

    def add_one_to_all(t, data):  # step kernel02, along x
        for i in range(t.number, len(data), t.gridDim.x * t.blockDim.x):
            data[i] += 1

    many = [0] * 100
    launch(add_one_to_all, 2, 4, many)
    print("8 threads, 100 elements, each once:", many == [1] * 100)
    # -> 8 threads, 100 elements, each once: True
