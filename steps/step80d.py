"""Step 80d: Blocks in two dimensions

How does a thread find its row and column? It could divide its number, i // width and i % width. But
then a block is a strip of one row, a bad shape when a pixel needs those above and below (step 81a).

So each place and each size has three parts, x, y and z (a NamedTuple is a tuple whose items have
names), and a block can be a square:

    column = blockIdx.x * blockDim.x + threadIdx.x
    row    = blockIdx.y * blockDim.y + threadIdx.y

In memory the pixel is word row * width + column. A warp is 32 threads of the block, row after row.

The trap: NumPy writes [row, column], CUDA writes (x, y), which is (column, row). If a kernel takes
x for the row, all numbers are right; but neighbours of a warp are then a whole row apart in memory,
and each turn fetches up to 32 sectors instead of 4 (step 80c). The demo counts both.

A size that is given as a number is a size along x, as before; its place is now called .x.

New: Dim3, Thread.warp. Changed: launch, Memory.note.
Try: blocks of (8, 4), then of (4, 8) threads, with grids (8, 10) and (16, 5) for x along the rows.
Why does one fetch twice as much?
"""

import itertools
import random
from typing import NamedTuple


class Dim3(NamedTuple):
    """A size or a place in up to three dimensions; x is the fastest."""

    x: int
    y: int = 1
    z: int = 1

    def places(self):
        """All places in a block or grid of this size, in the order of the warps."""
        for z, y, x in itertools.product(range(self.z), range(self.y), range(self.x)):
            yield Dim3(x, y, z)


class Memory:
    """The memory of a GPU: words of 4 bytes in one row. Arrays lie in it side by side.

    accesses: reads and writes of single words. sectors: how many pieces of 32 bytes moved.
    """

    def __init__(self):
        self.words, self.accesses, self.requests = [], 0, {}

    @property
    def sectors(self):
        return sum(len(sectors) for sectors in self.requests.values())

    def note(self, address):
        """Count an access. The accesses number k of all threads of a warp are one request."""
        t = Thread.running
        t.accesses += 1
        self.accesses += 1
        request = (t.launch, t.blockIdx, t.warp, t.accesses)
        self.requests.setdefault(request, set()).add(address // 8)

    def array(self, numbers):
        """Copy numbers behind what is there, and return where they begin."""
        self.words += numbers
        return Pointer(self, len(self.words) - len(numbers))


class Pointer:
    """A place in a memory: p[i] is the word i places on. It knows no length."""

    def __init__(self, memory, address):
        self.memory, self.address = memory, address

    def __getitem__(self, i):
        self.memory.note(self.address + i)
        return self.memory.words[self.address + i]

    def __setitem__(self, i, value):
        self.memory.note(self.address + i)
        self.memory.words[self.address + i] = value

    def tolist(self, n):
        """The n words from here on, copied back to Python."""
        return self.memory.words[self.address : self.address + n]


class Thread:
    """One run of a kernel. It knows its place, by CUDA's names.

    launch: the number of its launch. accesses: how often it has used the GPU's memory.
    """

    running = None  # the thread whose turn it is
    launches = 0

    def __init__(self, threadIdx, blockIdx, blockDim, gridDim):
        self.threadIdx, self.blockIdx = threadIdx, blockIdx
        self.blockDim, self.gridDim = blockDim, gridDim
        self.launch, self.accesses = Thread.launches, 0

    @property
    def warp(self):
        """The number of its warp in the block: 32 threads in a row, row after row."""
        (x, y, z), size = self.threadIdx, self.blockDim
        return (x + size.x * (y + size.y * z)) // 32


def launch(kernel, grid, block, *args, seed=0):
    """Run kernel(thread, *args) in grid x block threads; sizes are numbers or tuples (x, y, z).

    The order of the threads is shuffled from the seed.
    """
    Thread.launches += 1
    grid, block = (Dim3(*size) if isinstance(size, tuple) else Dim3(size) for size in (grid, block))
    threads = [Thread(i, b, block, grid) for b in grid.places() for i in block.places()]
    random.Random(seed).shuffle(threads)
    for thread in threads:
        Thread.running = thread
        kernel(thread, *args)


if __name__ == "__main__":

    def brighter(t, picture, height, width, by_rows):
        x = t.blockIdx.x * t.blockDim.x + t.threadIdx.x
        y = t.blockIdx.y * t.blockDim.y + t.threadIdx.y
        row, column = (y, x) if by_rows else (x, y)
        if row < height and column < width:
            picture[row * width + column] = 2 * picture[row * width + column]

    height, width = 40, 64
    for by_rows, grid in ((True, (2, 5)), (False, (2, 8))):
        memory = Memory()
        picture = memory.array(list(range(height * width)))
        launch(brighter, grid, (32, 8), picture, height, width, by_rows)
        doubled = picture.tolist(height * width) == [2 * i for i in range(height * width)]
        print(f"x along the rows: {by_rows}. Right numbers: {doubled}, {memory.sectors} sectors")
        # -> x along the rows: True. Right numbers: True, 640 sectors
        # -> x along the rows: False. Right numbers: True, 5120 sectors
