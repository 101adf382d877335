"""Step 80e: Shared memory and barriers

How can threads work together? One thread that adds 8 numbers takes 7 turns, while the others wait.

Each block has a small fast memory of its own, shared memory. The threads put their numbers there,
and half of them add the other half, again and again:

    8 numbers    3 1 7 0 4 1 6 3      thread i adds number i + 4
    4 sums       7 2 13 3             thread i adds number i + 2
    2 sums       20 5                 thread 0 adds number 1
    1 sum        25                   3 turns in place of 7

A thread must not add a number that is not there yet. A barrier holds every thread of the block
until all have come to it. Here it is a `yield`: launch lets each run go on to its next yield, and
then begins a new round, in a new order. CUDA writes __syncthreads().

Blocks do not wait for each other. launch runs them one after the other, in a shuffled order.

The trap: every thread of the block has to come to the barrier, or the block hangs. So spare threads
come along, and the mask of step 80b stands at each access.

New: stops. Changed: launch (shared, CUDA's third number of a launch), Thread.shared.
Try: `if barrier and half == 4`: a barrier in the first turn only.
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
    shared: the memory that it shares with the threads of its block, and with no others.
    """

    running = None  # the thread whose turn it is
    launches = 0

    def __init__(self, threadIdx, blockIdx, blockDim, gridDim, shared):
        self.threadIdx, self.blockIdx = threadIdx, blockIdx
        self.blockDim, self.gridDim = blockDim, gridDim
        self.launch, self.accesses, self.shared = Thread.launches, 0, shared

    @property
    def warp(self):
        """The number of its warp in the block: 32 threads in a row, row after row."""
        (x, y, z), size = self.threadIdx, self.blockDim
        return (x + size.x * (y + size.y * z)) // 32


def stops(kernel, thread, args):
    """A run of the kernel as a generator, which stops at each barrier."""
    result = kernel(thread, *args)
    if result is not None:  # a kernel without a barrier has run by now, and returned None
        yield from result


def launch(kernel, grid, block, *args, shared=0, seed=0):
    """Run kernel(thread, *args) in grid x block threads; sizes are numbers or tuples (x, y, z).

    Each block has `shared` words of shared memory. A `yield` is a barrier: the threads of a block
    go on when all have come to it. The order of blocks and threads is shuffled from the seed.
    """
    Thread.launches += 1
    grid, block = (Dim3(*size) if isinstance(size, tuple) else Dim3(size) for size in (grid, block))
    order = random.Random(seed)
    blocks = list(grid.places())
    order.shuffle(blocks)
    for place in blocks:
        memory = Memory().array([0] * shared)
        threads = [Thread(i, place, block, grid, memory) for i in block.places()]
        runs = [(thread, stops(kernel, thread, args)) for thread in threads]
        while runs:
            order.shuffle(runs)
            waiting = []
            for thread, run in runs:
                Thread.running = thread
                if next(run, "end") != "end":  # it has come to a barrier
                    waiting.append((thread, run))
            runs = waiting


if __name__ == "__main__":

    def block_sum(t, numbers, sums, barrier):
        i, half = t.threadIdx.x, t.blockDim.x // 2
        t.shared[i] = numbers[t.blockIdx.x * t.blockDim.x + i]
        while half:
            if barrier:
                yield  # all have written
            if i < half:
                t.shared[i] = t.shared[i] + t.shared[i + half]
            half //= 2
        if i == 0:
            sums[t.blockIdx.x] = t.shared[0]

    memory = Memory()
    numbers, sums = memory.array([3, 1, 7, 0, 4, 1, 6, 3] * 2), memory.array([0, 0])
    for barrier in (False, True):
        found = []
        for seed in range(4):
            launch(block_sum, 2, 8, numbers, sums, barrier, shared=8, seed=seed)
            found.append(sums.tolist(2))
        print(barrier, found)
        # -> False [[16, 3], [15, 7], [24, 20], [3, 4]]
        # -> True [[25, 25], [25, 25], [25, 25], [25, 25]]
