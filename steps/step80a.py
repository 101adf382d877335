"""Step 80a: Thread, block, grid

Who does turn 7 of a loop, if there are thousands of processors, as on a GPU? To add 1 to each of 12
numbers a loop takes 12 turns, one after the other, though no number depends on another.

So you do not write the loop. You write what happens to one element, a function called a kernel, and
say how many threads are to run it. Each run is a thread. Threads come in blocks of one size; a
block goes to a processor when one is free. All blocks together are the grid:

    i = blockIdx * blockDim + threadIdx        block 0     block 1     block 2
                                               0 1 2 3     4 5 6 7     8 9 10 11
    blockDim: the threads of a block           (here 4; a GPU takes at most 1,024)

The trap: there is no order. A kernel that is right only if thread 3 has run before thread 4 is
wrong. `launch` simulates a GPU in plain Python, and runs the threads in an order shuffled from a
seed: a result that changes with the seed shows the mistake. It cannot show speed.

CUDA writes kernel<<<grid, block>>>(...). PyTorch's operations on a GPU end in such launches.

New: Thread, launch.
Try: take blockIdx out of add_one's formula. Which elements get how much?
"""

import random


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
    numbers = [10 * i for i in range(12)]

    def add_one(t, data, order):
        i = t.blockIdx * t.blockDim + t.threadIdx
        data[i] += 1
        order.append(i)

    for seed in (0, 1):
        data, order = list(numbers), []
        launch(add_one, 3, 4, data, order, seed=seed)
        print(order, "->", data == [n + 1 for n in numbers])
        # -> [1, 9, 8, 5, 10, 2, 3, 7, 4, 0, 11, 6] -> True
        # -> [7, 11, 0, 8, 5, 6, 3, 10, 4, 1, 9, 2] -> True

    # Each element becomes the sum of all before it. A loop can do it like this, threads cannot.
    def running_sum(t, data):
        i = t.blockIdx * t.blockDim + t.threadIdx
        if i > 0:
            data[i] += data[i - 1]

    for seed in (0, 1):
        data = [1] * 12
        launch(running_sum, 3, 4, data, seed=seed)
        print(data)
        # -> [1, 2, 3, 4, 5, 2, 3, 2, 2, 2, 3, 4]
        # -> [1, 2, 3, 2, 3, 2, 3, 2, 3, 4, 2, 2]
