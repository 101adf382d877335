"""Step 80f: Races

32 threads count by total[0] = total[0] + 1, twice each. Our simulator says 64, with every seed,
because it lets a thread read and write before the next one begins. On a GPU that line is three
actions, read, add, write, and all may read before any has written. Then they count to 2.

This is a race: threads use one place, one of them writes, and nothing fixes their order. A
simulator that is always right hides it. Ours changes:

    a write is under way for a while, and arrives before the next barrier
    until then its own thread sees the new value, and the others see the old one

How many writes arrive at each access is drawn from the seed, and so the count changes with it.

An atomic addition reads, adds and writes in one piece. Threads that add to one place then take
turns, which is slow; so a block adds up as in step 80e, and only its sum is added atomically.

The trap: atomic additions happen in the order in which the threads come. For floats (a + b) + c is
not a + (b + c), so the last digits of a sum change from run to run.

PyTorch warns of it: index_add_ "may behave nondeterministically" on a GPU.

New: Memory.read, Memory.write, Memory.arrive, atomic_add. Changed: launch, Pointer.
Try: total[0] = 1 in `by_line`. All threads write one place: is it a race, and is the result wrong?
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


if __name__ == "__main__":

    def by_line(t, total):
        for _ in range(2):
            total[0] = total[0] + 1

    def by_atomic(t, total):
        for _ in range(2):
            atomic_add(total, 0, 1)

    for kernel in (by_line, by_atomic):
        found = []
        for seed in range(3):
            total = Memory().array([0])
            launch(kernel, 2, 16, total, seed=seed)
            found += total.tolist(1)
        print(kernel.__name__, found)
        # -> by_line [20, 30, 34]
        # -> by_atomic [64, 64, 64]
