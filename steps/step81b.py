"""Step 81b: Softmax in one kernel

What does a kernel of your own save, if the library has one for each function? Softmax is five
functions, and each is a kernel that reads its operands from memory and writes a result:

                m = max(x)    d = x - m    e = exp(d)    s = sum(e)    y = e / s
    reads           1             1            1             1            1
    writes                        1            1                          1

That is 8 times the matrix. For 4 rows of 64 it makes 8 * 256 accesses. m and s are 4 numbers each,
written once, and read by each of 256 threads: 2 * (4 + 256) more, 2,568 in all. One kernel reads x
once and writes y once, 512. A block takes a row, and keeps it in shared memory until y is done.

Every thread needs the maximum and the sum of the row. Each finds those of its own columns, puts
them into shared memory, and after a barrier combines them all. (Step 80e does it in fewer turns.)

(The maximum is there against overflow, as in step 39a.)

The trap is the barrier between reading the maxima and writing the sums to the same places.

PyTorch's softmax on a GPU is one kernel of this kind.

New: softmax_kernel.
Try: take that barrier out, and run the demo.
"""

import itertools
import math
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

    order = random.Random(0)  # decides when a write arrives; set by launch
    under_way = []  # (memory, address, value, thread) of writes that have not arrived

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

    def read(self, address):
        """The word at an address, with this thread's own writes, and what has arrived of others."""
        self.note(address)
        Memory.arrive(Memory.order.randrange(2))
        for memory, place, value, thread in reversed(Memory.under_way):
            if memory is self and place == address and thread is Thread.running:
                return value
        return self.words[address]

    def write(self, address, value):
        """Send a word on its way. It arrives at some time before the next barrier."""
        self.note(address)
        Memory.arrive(Memory.order.randrange(2))
        Memory.under_way.append((self, address, value, Thread.running))

    @staticmethod
    def arrive(n):
        """Let the first n writes that are under way arrive."""
        for memory, address, value, _ in Memory.under_way[:n]:
            memory.words[address] = value
        del Memory.under_way[:n]

    def array(self, numbers):
        """Copy numbers behind what is there, and return where they begin."""
        self.words += numbers
        return Pointer(self, len(self.words) - len(numbers))


class Pointer:
    """A place in a memory: p[i] is the word i places on. It knows no length."""

    def __init__(self, memory, address):
        self.memory, self.address = memory, address

    def __getitem__(self, i):
        return self.memory.read(self.address + i)

    def __setitem__(self, i, value):
        self.memory.write(self.address + i, value)

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


def atomic_add(pointer, i, value):
    """pointer[i] += value in one piece, which no other thread interrupts."""
    memory, address = pointer.memory, pointer.address + i
    memory.note(address)
    Memory.arrive(len(Memory.under_way))  # one that arrived later would overwrite the sum
    memory.words[address] += value


def launch(kernel, grid, block, *args, shared=0, seed=0):
    """Run kernel(thread, *args) in grid x block threads; sizes are numbers or tuples (x, y, z).

    Each block has `shared` words of shared memory. A `yield` is a barrier: the threads of a block
    go on when all have come to it. The order of blocks and threads is shuffled from the seed.
    """
    Thread.launches += 1
    grid, block = (Dim3(*size) if isinstance(size, tuple) else Dim3(size) for size in (grid, block))
    order = Memory.order = random.Random(seed)
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
            Memory.arrive(len(Memory.under_way))
            runs = waiting


def softmax_kernel(t, x, y, columns):
    """Softmax of each row of x, one block a row. shared: columns + blockDim words."""
    row, i, size = t.blockIdx.x * columns, t.threadIdx.x, t.blockDim.x
    partial = columns  # where the partial results lie in shared memory

    top = -math.inf
    for j in range(i, columns, size):
        t.shared[j] = x[row + j]  # the only read
        top = max(top, t.shared[j])
    t.shared[partial + i] = top
    yield
    top = max(t.shared[partial + k] for k in range(size))
    yield  # all have read the maxima: their places are free

    total = 0.0
    for j in range(i, columns, size):
        t.shared[j] = math.exp(t.shared[j] - top)
        total += t.shared[j]
    t.shared[partial + i] = total
    yield
    total = sum(t.shared[partial + k] for k in range(size))
    for j in range(i, columns, size):
        y[row + j] = t.shared[j] / total


if __name__ == "__main__":
    import numpy as np

    rows, columns = 4, 64
    n = rows * columns
    logits = np.random.default_rng(0).normal(size=(rows, columns))
    logits[0] += 1000
    memory = Memory()
    x, y = memory.array(logits.ravel().tolist()), memory.array([0.0] * n)
    launch(softmax_kernel, rows, 32, x, y, columns, shared=columns + 32)
    e = np.exp(logits - logits.max(1, keepdims=True))
    print(np.allclose(y.tolist(n), (e / e.sum(1, keepdims=True)).ravel()))  # -> True
    print(n, "numbers:", memory.accesses, "accesses,", memory.sectors, "sectors")
    # -> 256 numbers: 512 accesses, 64 sectors
