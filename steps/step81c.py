"""Step 81c: Philox: random number i as a function of i

How do a million threads draw random numbers? Most generators keep a state that each draw changes.
If all threads share it, that is the race of step 80f. If not, a million states have to be kept.

A counter-based generator keeps nothing: random number i is a function of i that scrambles its bits.
Any thread computes its own number, at any time. Philox does ten rounds of this with four words of
32 bits, a to d, which begin with the counter i:

    p = a * 0xD2511F53,  q = c * 0xCD9E8D57           products of 64 bits
    a, b, c, d = high(q) ^ b ^ key,  low(q),  high(p) ^ d ^ other_key,  low(p)

In the upper half of a product each bit depends on all the bits below, so a change of one bit
spreads; the lower half loses nothing. The seed is the two keys, and after each round a constant is
added to each.

The numbers can be drawn again: dropout keeps no mask for backward, but the seed and a counter.

The trap: two calls must not use the same counters. PyTorch's generator on a GPU is Philox as well,
and its state is the seed and an offset, the counters used so far.

New: philox.
Try: range(2) in place of range(10). How many bits differ from one i to the next?
"""

import itertools
import random
from typing import NamedTuple

import numpy as np


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


def philox(counters, seed):
    """Four random 32-bit words for each counter, an int or an array of uint64: [..., 4] uint32.

    Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
    (2011).
    """
    low = 0xFFFFFFFF  # the lower 32 bits
    a, b = counters & low, counters >> 32
    c = d = counters & 0  # zeros of their shape
    key, other_key = seed & low, seed >> 32
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57  # products of 64 bits
        a, b, c, d = (q >> 32) ^ b ^ key, q & low, (p >> 32) ^ d ^ other_key, p & low
        key, other_key = (key + 0x9E3779B9) & low, (other_key + 0xBB67AE85) & low
    return np.stack([a, b, c, d], axis=-1).astype(np.uint32)


if __name__ == "__main__":

    def draw(t, seed, out):
        i = t.blockIdx.x * t.blockDim.x + t.threadIdx.x
        out[i] = int(philox(i, seed)[0])

    many = philox(np.arange(1000, dtype=np.uint64), 0)
    out = Memory().array([None] * 64)
    launch(draw, 2, 32, 0, out)
    print("64 threads drew the same:", out.tolist(64) == many[:64, 0].tolist())
    # -> 64 threads drew the same: True
    print([f"{word:08x}" for word in many[0]])  # the published words of counter 0
    # -> ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    changed = np.unpackbits((many[:-1] ^ many[1:]).view(np.uint8)).mean()
    print(f"bits that differ: {changed:.2f}")  # -> bits that differ: 0.50
