"""Step 80f: A barrier that some threads miss

May a thread leave early? `if i >= n: return` at the top looks like the mask of step 80b, and saves
the spare threads the rest of the kernel. But CUDA's rule is that every thread of the block comes to
every barrier, and the spare ones do not.

The kernel of the demo reverses the numbers of each block. 6 numbers in blocks of 4: in the second
block, two threads leave. It gives the right numbers, and our launch has said nothing. Today's GPUs
are as lenient: they do not wait for threads that have ended. So the mistake stays, until a kernel
comes in which the spare threads were to fetch something for the others (step 81a).

A barrier inside an `if` is worse. The threads that go around it are still alive: they read what is
not written yet, or wait at another barrier. On a GPU the result is undefined, or the block hangs.

So launch keeps to the strict rule. If some threads of a block wait and others have ended, it raises
an error that says how many. The right form lets the spare threads come along to each barrier, and
asks at each access:

    if i < n: (read)     yield     if i < n: (write)

The trap: with a size that the blocks divide, no thread is spare, and both kernels pass.

NVIDIA's compute-sanitizer has a check for this, called synccheck.

Changed: launch raises an error.
Try: put the barrier of come_along under `if t.threadIdx.x < 3:`. What does the error count?
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
    if result is not None:
        yield from result


def launch(kernel, grid, block, *args, shared=0, seed=0):
    """Run kernel(thread, *args) in grid x block threads; sizes are numbers or tuples (x, y, z).

    Each block has `shared` words of shared memory. A `yield` is a barrier: the threads of a block
    go on when all have come to it. The order of blocks and threads is shuffled from the seed.

    RuntimeError: some threads of a block have come to a barrier, and others have ended.
    """
    Thread.launches += 1
    grid, block = (Dim3(*size) if isinstance(size, tuple) else Dim3(size) for size in (grid, block))
    order = random.Random(seed)
    for place in order.sample(list(grid.places()), grid.x * grid.y * grid.z):
        memory = Memory().array([0] * shared)
        threads = [Thread(i, place, block, grid, memory) for i in block.places()]
        runs = [(thread, stops(kernel, thread, args)) for thread in threads]
        while runs:
            order.shuffle(runs)
            waiting = []
            for Thread.running, run in runs:
                if next(run, "end") != "end":
                    waiting.append((Thread.running, run))
            if 0 < len(waiting) < len(runs):
                ended = len(runs) - len(waiting)
                raise RuntimeError(
                    f"{place}: {ended} threads of {len(runs)} have ended, {len(waiting)} wait at a "
                    f"barrier"
                )
            runs = waiting


if __name__ == "__main__":

    def leave_early(t, x, y, n):
        first = t.blockIdx.x * t.blockDim.x
        i, last = first + t.threadIdx.x, min(first + t.blockDim.x, n) - 1
        if i >= n:
            return
        t.shared[t.threadIdx.x] = x[i]
        yield
        y[i] = t.shared[last - i]

    def come_along(t, x, y, n):
        first = t.blockIdx.x * t.blockDim.x
        i, last = first + t.threadIdx.x, min(first + t.blockDim.x, n) - 1
        if i < n:
            t.shared[t.threadIdx.x] = x[i]
        yield  # the spare threads too
        if i < n:
            y[i] = t.shared[last - i]

    memory = Memory()
    x, y = memory.array([0, 1, 2, 3, 4, 5]), memory.array([0] * 6)
    try:
        launch(leave_early, 2, 4, x, y, 6, shared=4)
    except RuntimeError as error:
        print(error)
        # -> Dim3(x=1, y=0, z=0): 2 threads of 4 have ended, 2 wait at a barrier
    launch(come_along, 2, 4, x, y, 6, shared=4)
    print(y.tolist(6))  # -> [3, 2, 1, 0, 5, 4]
    launch(leave_early, 1, 4, x, y, 4, shared=4)
    print(y.tolist(4))  # -> [3, 2, 1, 0]
