"""Step 82d: Block programs with masks

Can a kernel be written without threads? Most lines of step 81b's softmax share out work.

A block program is written for the block as a whole. It computes with small arrays, and a compiler
shares them out among the threads and sets the barriers. The launch starts a grid of programs:

    pid = tl.program_id(0)                          which block am I?
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n                              the tail, step 80b
    x = tl.load(x_ptr + offsets, mask=mask)         an array of BLOCK_SIZE numbers
    tl.store(y_ptr + offsets, 2 * x, mask=mask)

An array of offsets added to a pointer is an array of pointers, and load reads them all. The form is
Triton's, in which torch.compile writes its GPU kernels. It is simulated here: NumPy computes, and
`lanes` makes each element's access that of a thread of its own, 32 to a warp. Softmax needs the 512
accesses and 64 sectors of step 81b, in seven lines.

The trap is `other`, the value where the mask is false. For a maximum it must be -inf: with 0 a row
of negative logits would get a maximum that is not there. And tl.exp(-inf) = 0 adds nothing.

New: Pointer.__add__, lanes, tl, jit.
Try: leave out `other=-math.inf`, and see which line of the demo changes.
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

    def __add__(self, offsets):
        return Pointer(self.memory, self.address + offsets)

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


def lanes(pointers, mask):
    """(index, address) of each element whose mask is true. Element i is the work of thread i."""
    program = Thread.running
    program.accesses += 1
    addresses, mask = np.broadcast_arrays(pointers.address, mask)
    for i, (index, address) in enumerate(np.ndenumerate(addresses)):
        if mask[index]:
            Thread.running = Thread(Dim3(i), program.blockIdx, Dim3(addresses.size), None, None)
            Thread.running.accesses = program.accesses - 1  # note() counts this access
            yield index, int(address)
    Thread.running = program


class tl:
    """What a block program says beside operators: some of triton.language."""

    arange, exp, max, sum = np.arange, np.exp, np.max, np.sum

    @staticmethod
    def program_id(axis):
        return Thread.running.blockIdx[axis]

    @staticmethod
    def load(pointers, mask=True, other=0.0):
        """The words at the pointers; `other` where mask is false."""
        out = np.full(np.broadcast(pointers.address, mask).shape, other)
        for index, address in lanes(pointers, mask):
            out[index] = pointers.memory.read(address)
        return out

    @staticmethod
    def store(pointers, values, mask=True):
        """Write the values at the pointers, where mask is true."""
        for index, address in lanes(pointers, mask):
            pointers.memory.write(address, values[index].item())


class jit:
    """Decorator: a block program, started by function[grid](*args, BLOCK_SIZE=...)."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        def start(*args, **constants):
            launch(lambda t: self.function(*args, **constants), grid, 1)

        return start


if __name__ == "__main__":
    import math

    @jit
    def softmax_kernel(x_ptr, y_ptr, columns, BLOCK_SIZE):
        row = tl.program_id(0)
        offsets = tl.arange(0, BLOCK_SIZE)
        mask = offsets < columns
        x = tl.load(x_ptr + (row * columns + offsets), mask=mask, other=-math.inf)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + (row * columns + offsets), e / tl.sum(e, axis=0), mask=mask)

    logits = np.random.default_rng(0).normal(size=(4, 64))
    logits[0] += 1000
    e = np.exp(logits - logits.max(1, keepdims=True))
    memory = Memory()
    x, y = memory.array(logits.ravel().tolist()), memory.array([0.0] * 256)
    softmax_kernel[4](x, y, 64, BLOCK_SIZE=64)
    print(np.allclose(y.tolist(256), (e / e.sum(1, keepdims=True)).ravel()))  # -> True
    print(memory.accesses, memory.sectors)  # -> 512 64

    three = Memory().array([-1000.0, -1001.0, -2000.0])
    softmax_kernel[1](three, three, 3, BLOCK_SIZE=4)
    print([round(p, 4) for p in three.tolist(3)])  # -> [0.7311, 0.2689, 0.0]
