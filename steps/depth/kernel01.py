"""Step kernel01: launch in the package's dress

Step 80a built the simulated GPU: a kernel is what happens to one element, and threads in blocks run
it. Here Thread and launch get annotations, and a thread knows its number in the whole grid.

The trap of step 80b: 9 elements in blocks of 4 need 3 blocks, which are 12 threads. The last 3 have
no element and must check, or they write past the end of the array, into something else.

Changed: Thread, launch. New: Thread.number.
Try: blocks of 16 threads instead of 4. How many blocks do 9 elements need, and how many are idle?
"""

from collections.abc import Callable
from typing import Any


class Thread:
    """What a thread knows of itself, by CUDA's names."""

    def __init__(self, threadIdx: int, blockIdx: int, blockDim: int):
        self.threadIdx, self.blockIdx = threadIdx, blockIdx
        self.blockDim = blockDim

    @property
    def number(self) -> int:
        """The thread's number in the whole grid."""
        return self.blockIdx * self.blockDim + self.threadIdx


def launch(kernel: Callable, grid: int, block: int, *args: Any) -> None:
    """Runs kernel(thread, *args) for grid x block threads: `grid` blocks of `block` threads.

    They run one after the other, which is one of the orders that a GPU may choose.
    """
    for place in range(grid):
        for within in range(block):
            kernel(Thread(within, place, block), *args)


if __name__ == "__main__":
    import math

    def add_one(t, data, n):
        i = t.blockIdx * t.blockDim + t.threadIdx
        if i < n:
            data[i] += 1

    data = [10 * i for i in range(9)]
    blocks = math.ceil(9 / 4)
    launch(add_one, blocks, 4, data, 9)
    print(data)  # -> [1, 11, 21, 31, 41, 51, 61, 71, 81]
    idle = []
    launch(lambda t: idle.append(t.number) if t.number >= 9 else None, blocks, 4)
    print(blocks, "blocks of 4; idle threads:", idle)  # -> 3 blocks of 4; idle threads: [9, 10, 11]

    # Memory is one long row of numbers. Three others lie behind our 9.
    def add_one_unchecked(t, data):
        data[t.number] += 1

    memory = [0] * 9 + [70, 80, 90]
    launch(add_one_unchecked, blocks, 4, memory)
    print("the neighbour's numbers:", memory[9:])  # -> the neighbour's numbers: [71, 81, 91]
    try:
        launch(add_one_unchecked, blocks, 4, [0] * 9)
    except IndexError:
        print("a list of Python has an end; a GPU's memory goes on")
        # -> a list of Python has an end; a GPU's memory goes on
