"""Step 82e: A network that reads digits in two kernels of our own

Can all this read digits? The package trains a network on 1,500 scanned digits: 64 pixels, 32 hidden
units, 10 digits. Then it reads others on the simulated GPU, by kernels of our own alone.

With a kernel for each function there would be six launches. But a block has its rows at hand, so
what follows on the same rows can be done before anything is written:

    product, bias, ReLU        ->  linear_relu         x W^T + b, ReLU       writes h
    product, bias, softmax     ->  linear_softmax      h W^T + b, softmax    writes p

This is fusion, the main thing that a compiler for GPUs does. The demo counts the accesses, and adds
four results that the six kernels write and read again.

The trap is the mask after the product. The tile has 16 columns for 10 digits: six logits that do
not exist would be 0, and take part in the softmax. They become -inf.

What you have now: kernels, from one thread to a fused network, and a count of what they cost. What
PyTorch has and you have not: a GPU under them, and thousands of tuned kernels.

New: linear_tile, linear_relu, linear_softmax; maximum and where in tl.
Try: leave out the line with tl.where. Which line of the demo changes, and which does not?
In depth: philox01 to philox08, products01 to products06.
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
    maximum, where = np.maximum, np.where

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


def linear_tile(x_ptr, w_ptr, b_ptr, n, k, m, BLOCK, OUT):
    """x W^T + b for BLOCK rows of x [n, k], with W [m, k]; and where the results belong."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    out, s = tl.arange(0, OUT), tl.arange(0, k)
    x = tl.load(x_ptr + (rows * k + s), mask=rows < n)
    w = tl.load(w_ptr + (out[:, None] * k + s), mask=out[:, None] < m)
    b = tl.load(b_ptr + out, mask=out < m)
    return x @ w.T + b, rows * m + out, (rows < n) & (out < m)


@jit
def linear_relu(x_ptr, w_ptr, b_ptr, y_ptr, n, k, m, BLOCK, OUT):
    y, offsets, mask = linear_tile(x_ptr, w_ptr, b_ptr, n, k, m, BLOCK, OUT)
    tl.store(y_ptr + offsets, tl.maximum(y, 0.0), mask=mask)


@jit
def linear_softmax(x_ptr, w_ptr, b_ptr, y_ptr, n, k, m, BLOCK, OUT):
    y, offsets, mask = linear_tile(x_ptr, w_ptr, b_ptr, n, k, m, BLOCK, OUT)
    y = tl.where(mask, y, -np.inf)
    e = tl.exp(y - tl.max(y, axis=1, keepdims=True))
    tl.store(y_ptr + offsets, e / tl.sum(e, axis=1, keepdims=True), mask=mask)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401  (backward)
    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.functional import cross_entropy, softmax
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops import indexing, matmul, sampling, shape  # noqa: F401  (methods)
    from tinytorch.ops.random import manual_seed
    from tinytorch.optim.adam import Adam

    images, labels = load_digits()
    flat = images.reshape(-1, 64)
    test, answers, n = flat[1500:1532], labels[1500:1532], 32
    manual_seed(0)
    model = Sequential(Linear(64, 32), ReLU(), Linear(32, 10))
    optimizer = Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        loss = cross_entropy(model(flat[:1500]), labels[:1500])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    memory = Memory()
    w1, b1, w2, b2 = (memory.array(p.reshape(-1).tolist()) for p in model.parameters())
    x = memory.array(test.reshape(-1).tolist())
    h, p = memory.array([0.0] * (n * 32)), memory.array([0.0] * (n * 10))
    linear_relu[2](x, w1, b1, h, n, 64, 32, BLOCK=16, OUT=32)
    linear_softmax[2](h, w2, b2, p, n, 32, 10, BLOCK=16, OUT=16)

    p = np.array(p.tolist(n * 10)).reshape(n, 10)
    expected = np.array(softmax(model(test), 1).tolist())
    print("as the package:", np.allclose(p, expected, atol=1e-4))  # -> as the package: True
    print("right:", (p.argmax(1) == answers.tolist()).sum(), "of", n)  # -> right: 32 of 32
    between = 2 * (2 * n * 32 + 2 * n * 10)  # four results of n rows
    print(f"2 launches, {memory.accesses} accesses; with 6 launches {memory.accesses + between}")
    # -> 2 launches, 9236 accesses; with 6 launches 14612
