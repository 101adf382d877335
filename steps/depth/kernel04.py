"""Step kernel04: Shared memory and barriers in the package's dress

Step 80e built them: `yield` is the barrier, and `launch` lets each thread of a block run to its
next yield, then all of them to the following one. Here it does so for blocks of three dimensions,
and for kernels without a barrier as before.

    shared    0  1  2  3  4  5  6  7        all have written
    barrier
    shared    4  6  8 10  .  .  .  .        4 threads add
    barrier
    shared   12 16  .  .  .  .  .  .        2 threads add          28 after one more

The trap: in an ordinary launch blocks cannot wait for each other. A grid may have more blocks than
run at once, and waiting for one that has not begun would never end. A second launch adds the
blocks' sums.

Changed: Thread.__init__ (shared), launch.
Try: take the `yield` out of the loop of block_sum, and put one in front of the loop.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Dim3(NamedTuple):
    """A size or a place in up to three dimensions; x is the fastest."""

    x: int
    y: int = 1
    z: int = 1

    def places(self) -> Iterator["Dim3"]:
        """All places in a grid of this size."""
        for z, y, x in itertools.product(range(self.z), range(self.y), range(self.x)):
            yield Dim3(x, y, z)


class Thread:
    """What a thread knows of itself, by CUDA's names, and the memory that its block shares."""

    def __init__(
        self, threadIdx: Dim3, blockIdx: Dim3, blockDim: Dim3, gridDim: Dim3, shared: dict
    ):
        self.threadIdx, self.blockIdx = threadIdx, blockIdx
        self.blockDim, self.gridDim = blockDim, gridDim
        self.shared = shared

    @property
    def number(self) -> int:
        """The thread's number in the whole grid, along x."""
        return self.blockIdx.x * self.blockDim.x + self.threadIdx.x


def launch(kernel: Callable, grid: Any, block: Any, *args: Any) -> None:
    """Runs kernel(thread, *args) for grid x block threads; sizes are numbers or tuples.

    A `yield` in the kernel is a barrier, __syncthreads(): the threads of a block go on from there
    only when all have come to it. Between two barriers they run one after the other, which is one
    of the orders that a GPU may choose.
    """
    grid, block = (Dim3(*size) if isinstance(size, tuple) else Dim3(size) for size in (grid, block))
    for place in grid.places():
        shared: dict = {}
        runs = [
            kernel(Thread(within, place, block, grid, shared), *args) for within in block.places()
        ]
        if not inspect.isgeneratorfunction(kernel):
            continue
        while runs:  # each goes on to its next barrier, or ends
            runs = [run for run in runs if next(run, "end") != "end"]


if __name__ == "__main__":

    def hasty(t, numbers, memory, sums):
        own = t.threadIdx.x
        memory[own] = numbers[own]
        half = t.blockDim.x // 2
        while half:
            if own < half:
                memory[own] += memory[own + half]  # is it there yet?
            half //= 2
        if own == 0:
            sums[0] = memory[0]

    sums = [0]
    launch(hasty, 1, 8, list(range(8)), [0] * 8, sums)
    print("without a barrier:", sums[0], "instead of", sum(range(8)))
    # -> without a barrier: 0 instead of 28

    def block_sum(t, numbers, sums, rounds):
        own = t.threadIdx.x
        t.shared[own] = numbers[t.number]
        half = t.blockDim.x // 2
        while half:
            yield  # all have written
            rounds.add(half)
            if own < half:
                t.shared[own] += t.shared[own + half]
            half //= 2
        if own == 0:
            sums[t.blockIdx.x] = t.shared[0]

    sums, rounds = [0, 0], set()
    launch(block_sum, 2, 8, list(range(16)), sums, rounds)
    print("sums of the blocks:", sums, "in", len(rounds), "rounds")
    # -> sums of the blocks: [28, 92] in 3 rounds
    total = [0]
    launch(block_sum, 1, 2, sums, total, rounds)
    print("their sum, by a second launch:", total[0], sum(range(16)))
    # -> their sum, by a second launch: 120 120

    # Each block has a shared memory of its own, and it begins empty.
    found = []

    def look(t):
        found.append(dict(t.shared))
        t.shared["left by a block"] = t.blockIdx.x

    launch(look, 3, 1)
    print(found)  # -> [{}, {}, {}]
