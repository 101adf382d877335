"""Step 80c: Coalesced access, counted

Does it matter which thread takes which element? For the numbers no, for the memory very much. Say
32 threads are to handle 1,024 elements, 32 each. There are two ways to divide them:

    chunk     thread 0 takes 0, 1, 2, ..., 31;   thread 1 takes 32, 33, ...
    stride    thread 0 takes 0, 32, 64, ...;     thread 1 takes 1, 33, 65, ...

A GPU runs 32 threads of a block together, a warp, and fetches memory in sectors of 32 bytes, which
are 8 floats. With chunks, what the 32 threads want in one turn lies 32 floats apart: 32 sectors.
With the stride they want neighbours: 4 sectors, used whole. Such access is called coalesced.

The simulator counts it. Each thread numbers its accesses; number k of all threads of a warp, in one
launch, is one request, and its sectors are counted once.

The stride is the number of all threads, gridDim * blockDim. So a grid of any size does an array of
any size, and the end of the range is the mask.

The trap: on a CPU chunks are right, since each core has a cache of its own.

Changed: Memory and Pointer count, Thread, launch. New: Memory.note, Memory.sectors.
Try: put an array of 4 words into the memory before `data`. Why do the sectors of by_stride grow?
"""

import random


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
        request = (t.launch, t.blockIdx, t.threadIdx // 32, t.accesses)
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


def launch(kernel, grid, block, *args, seed=0):
    """Run kernel(thread, *args) in `grid` blocks of `block` threads, in an order from the seed."""
    Thread.launches += 1
    threads = [Thread(i, b, block, grid) for b in range(grid) for i in range(block)]
    random.Random(seed).shuffle(threads)
    for thread in threads:
        Thread.running = thread
        kernel(thread, *args)


if __name__ == "__main__":

    def by_chunk(t, data, n):
        each = n // (t.gridDim * t.blockDim)
        first = (t.blockIdx * t.blockDim + t.threadIdx) * each
        for i in range(first, first + each):
            data[i] = 3 * data[i]

    def by_stride(t, data, n):
        first = t.blockIdx * t.blockDim + t.threadIdx
        for i in range(first, n, t.gridDim * t.blockDim):
            data[i] = 3 * data[i]

    for kernel in (by_chunk, by_stride):
        memory = Memory()
        data = memory.array([1] * 1024)
        launch(kernel, 1, 32, data, 1024)
        print(kernel.__name__, data.tolist(1024) == [3] * 1024, memory.accesses, memory.sectors)
        # -> by_chunk True 2048 2048
        # -> by_stride True 2048 256
