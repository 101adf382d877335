"""Step 81a: A product in tiles

A GPU does dozens of multiplications in the time in which it fetches one number. Each element of C =
A B needs 2 k numbers, a row of A and a column of B; if each of m n threads fetches its own, that is
2 k m n reads. For two matrices of 16 by 16, which hold 512 numbers, the demo counts 8,192.

A block of 8 x 8 threads needs 8 rows and 8 columns, each number in 8 of its threads. So it brings a
tile of 8 x 8 of each factor into shared memory, one number of each a thread, and all threads add
what the two tiles give. Then the next two tiles, to the end of the row:

             b  . 1            C = (tile 1 of a) (tile 1 of b) + (tile 2 of a) (tile 2 of b)
                . 2
       a        . .            each number that is fetched is used 8 times: 1,024 reads
       1 2      . C

The trap is the second barrier, which is the one that is forgotten: none reads before all have
written, and none writes the next tile before all have read this one.

A thread at the border that has no element still fetches for the others. Where a tile reaches past a
matrix it holds zeros, which add nothing.

PyTorch calls NVIDIA's library cuBLAS.

New: matmul_naive, matmul_tiled.
Try: take the second yield out of matmul_tiled.
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


def matmul_naive(t, a, b, c, m, k, n):
    """c = a b for matrices [m, k] and [k, n]: each thread computes one element."""
    i = t.blockIdx.y * t.blockDim.y + t.threadIdx.y
    j = t.blockIdx.x * t.blockDim.x + t.threadIdx.x
    if i < m and j < n:
        c[i * n + j] = sum(a[i * k + s] * b[s * n + j] for s in range(k))


def matmul_tiled(t, a, b, c, m, k, n):
    """The same, with square blocks. shared: a tile of a, and behind it a tile of b."""
    size, y, x = t.blockDim.x, t.threadIdx.y, t.threadIdx.x
    i, j = t.blockIdx.y * size + y, t.blockIdx.x * size + x
    tile_b = size * size
    total = 0
    for start in range(0, k, size):
        t.shared[y * size + x] = a[i * k + start + x] if i < m and start + x < k else 0
        t.shared[tile_b + y * size + x] = b[(start + y) * n + j] if start + y < k and j < n else 0
        yield  # no thread reads before all have written
        for s in range(size):
            total += t.shared[y * size + s] * t.shared[tile_b + s * size + x]
        yield  # no thread writes before all have read
    if i < m and j < n:
        c[i * n + j] = total


if __name__ == "__main__":
    import math

    import numpy as np

    rng = np.random.default_rng(0)
    for m, k, n in ((16, 16, 16), (9, 12, 10)):
        p, q = rng.integers(0, 10, (m, k)), rng.integers(0, 10, (k, n))
        for kernel in (matmul_naive, matmul_tiled):
            memory = Memory()
            a, b = memory.array(p.ravel().tolist()), memory.array(q.ravel().tolist())
            c = memory.array([None] * (m * n))
            grid = math.ceil(n / 8), math.ceil(m / 8)
            launch(kernel, grid, (8, 8), a, b, c, m, k, n, shared=128)
            right = c.tolist(m * n) == (p @ q).ravel().tolist()
            reads = memory.accesses - m * n
            print(f"{kernel.__name__}: right {right}, {reads} reads, {memory.sectors} sectors")
            # -> matmul_naive: right True, 8192 reads, 672 sectors
            # -> matmul_tiled: right True, 1024 reads, 160 sectors
            # -> matmul_naive: right True, 2160 reads, 338 sectors
            # -> matmul_tiled: right True, 456 reads, 150 sectors
