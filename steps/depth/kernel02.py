"""Step kernel02: gridDim and the grid-stride loop

Step 80c counted what coalesced access saves. The loop that reads like this is written with the
number of all threads, gridDim * blockDim, as its step. A grid of any size then handles arrays of
any size, and the end of the range takes the place of `if i < n`. Each thread begins with work of
its own (its number, a scale to look up), and with 32 elements for each thread this is done 32
times, not 1,024 times: the demo counts.

How much the cache saves where access is not coalesced depends on how many warps share it.

Changed: Thread.__init__ (gridDim, the number of blocks), launch.
Try: floats of 8 bytes in `sectors`. How many sectors does a turn fetch then, in both ways?
"""

from collections.abc import Callable
from typing import Any


class Thread:
    """What a thread knows of itself, by CUDA's names."""

    def __init__(self, threadIdx: int, blockIdx: int, blockDim: int, gridDim: int):
        self.threadIdx, self.blockIdx = threadIdx, blockIdx
        self.blockDim, self.gridDim = blockDim, gridDim

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
            kernel(Thread(within, place, block, grid), *args)


if __name__ == "__main__":
    prepared = []

    def scale_one(t, data):  # step kernel01: an element for each thread
        prepared.append(t.number)
        data[t.number] *= 3

    launch(scale_one, 32, 32, [1] * 1024)
    print("threads that had to prepare:", len(prepared))  # -> threads that had to prepare: 1024

    def by_chunk(t, data, turns):
        prepared.append(t.number)
        each = len(data) // (t.gridDim * t.blockDim)
        for turn in range(each):
            i = t.number * each + turn
            data[i] *= 3
            turns[turn].append(i)

    def by_stride(t, data, turns):
        prepared.append(t.number)
        for turn, i in enumerate(range(t.number, len(data), t.gridDim * t.blockDim)):
            data[i] *= 3
            turns[turn].append(i)

    def sectors(places):
        """How many sectors of 32 bytes hold the floats at these places."""
        return len({4 * place // 32 for place in places})

    for kernel in (by_chunk, by_stride):
        prepared, data, turns = [], [1] * 1024, [[] for _ in range(32)]
        launch(kernel, 1, 32, data, turns)
        first, total = sectors(turns[0]), sum(map(sectors, turns))
        way = f"{kernel.__name__}: right {data == [3] * 1024}; turn 0 wants {turns[0][:3]} ..."
        print(f"{way}: {first} sectors, {total} in all turns")
        # -> by_chunk: right True; turn 0 wants [0, 32, 64] ...: 32 sectors, 1024 in all turns
        # -> by_stride: right True; turn 0 wants [0, 1, 2] ...: 4 sectors, 128 in all turns
    print("threads that had to prepare:", len(prepared))  # -> threads that had to prepare: 32

    odd, turns = [1] * 100, [[] for _ in range(13)]
    launch(by_stride, 2, 4, odd, turns)  # 100 is not a multiple of 8
    print("8 threads, 100 elements, each once:", odd == [3] * 100)
    # -> 8 threads, 100 elements, each once: True
    print("busy in the last turn:", len(turns[-1]))  # -> busy in the last turn: 4
