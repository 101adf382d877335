"""Step 80b: The mask for the tail

What do the spare threads do? 10 numbers in blocks of 4 need 3 blocks, which are 12 threads. The
last two have no element, and they run the kernel like all others.

A Python list would raise an IndexError. A GPU has no lists. Its memory is one long row of words,
and an array is an address in it, a pointer: data[i] means "the word i places behind data". Where
the array ends, the next one begins:

    words      0 10 20 ... 90 | 7 7 7        data[10] and data[11] are the first two sevens
               data           | neighbour

So the two threads change another array. There is no error, and the wrong number turns up later, in
some other operation. The remedy is a condition, the mask, in every kernel:

    if i < n: ...

n must be an argument, as the kernel cannot ask a pointer for a length. The number of blocks is n /
block, rounded up: math.ceil(n / block).

The trap: with sizes that blocks divide, 8 or 1,024, the mistake does not show. Test with 10.

PyTorch's own kernels have this line. (NVIDIA's compute-sanitizer looks for such accesses.)

New: Memory, Pointer.
Try: i <= n in the mask.
"""

import random


class Memory:
    """The memory of a GPU: words of 4 bytes in one row. Arrays lie in it side by side."""

    def __init__(self):
        self.words = []

    def array(self, numbers):
        """Copy numbers behind what is there, and return where they begin."""
        self.words += numbers
        return Pointer(self, len(self.words) - len(numbers))


class Pointer:
    """A place in a memory: p[i] is the word i places on. It knows no length."""

    def __init__(self, memory, address):
        self.memory, self.address = memory, address

    def __getitem__(self, i):
        return self.memory.words[self.address + i]

    def __setitem__(self, i, value):
        self.memory.words[self.address + i] = value

    def tolist(self, n):
        """The n words from here on, copied back to Python."""
        return self.memory.words[self.address : self.address + n]


class Thread:
    """One run of a kernel. It knows its place, by CUDA's names."""

    def __init__(self, threadIdx, blockIdx, blockDim, gridDim):
        self.threadIdx, self.blockIdx = threadIdx, blockIdx
        self.blockDim, self.gridDim = blockDim, gridDim


def launch(kernel, grid, block, *args, seed=0):
    """Run kernel(thread, *args) in `grid` blocks of `block` threads, in an order from the seed."""
    threads = [Thread(i, b, block, grid) for b in range(grid) for i in range(block)]
    random.Random(seed).shuffle(threads)
    for thread in threads:
        kernel(thread, *args)


if __name__ == "__main__":
    import math

    def hasty(t, data):
        i = t.blockIdx * t.blockDim + t.threadIdx
        data[i] = data[i] + 1

    def masked(t, data, n):
        i = t.blockIdx * t.blockDim + t.threadIdx
        if i < n:
            data[i] = data[i] + 1

    n = 10
    blocks = math.ceil(n / 4)
    for kernel, args in ((hasty, ()), (masked, (n,))):
        memory = Memory()
        data, neighbour = memory.array([10 * i for i in range(n)]), memory.array([7, 7, 7])
        launch(kernel, blocks, 4, data, *args)
        print(data.tolist(n), neighbour.tolist(3))
        # -> [1, 11, 21, 31, 41, 51, 61, 71, 81, 91] [8, 8, 7]
        # -> [1, 11, 21, 31, 41, 51, 61, 71, 81, 91] [7, 7, 7]
