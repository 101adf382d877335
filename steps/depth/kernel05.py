"""Step kernel05: The launch that checks: shuffled order, missed barriers

Step 80f has shown races: threads use the same place, one of them writes, and their order is not
fixed. So the launch runs blocks and threads in an order that is shuffled from a seed: a kernel
which depends on one order is wrong at once. The other common mistake is a barrier that some threads
miss.

A barrier that some threads miss. With a barrier inside of an `if`, some threads wait and the others
go around it: they read what is not written yet, or wait at another barrier. CUDA asks that all
threads of the block come to it; otherwise the result is nonsense, or the block hangs. `if i >= n:
return` at the top of a kernel looks like the check of step kernel01, and is the mild case: today's
GPUs do not wait for threads that have ended, so `reversed_block` of the demo gives the right
numbers, as it does on the launch of step kernel04. It breaks as soon as the ended threads should
have fetched something for the others (step products02).

So the launch checks the strict rule: when a thread ends, all threads of the block must end in the
same round. The right kernel lets idle threads come along to every barrier, and checks at each
access. And it runs blocks and threads in an order that is shuffled from a seed, so that a kernel
which depends on one order is wrong at once.

NVIDIA's compute-sanitizer looks for such mistakes in real kernels: for missed barriers, and for
races in shared memory. It does not see a race in the GPU's own memory, such as the one on `total`.

Changed: launch raises an error, and shuffles. With it, tinytorch/kernels/simulator.py is finished.
Try: put the barrier of reversed_block under `if t.threadIdx.x < 2:`. What does the error count?
"""

import inspect
import itertools
import random
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


def launch(kernel: Callable, grid: Any, block: Any, *args: Any, seed: int = 0) -> None:
    """Runs kernel(thread, *args) for grid x block threads; sizes are numbers or tuples.

    A `yield` in the kernel is a barrier, __syncthreads(): the threads of a block go on from there
    only when all have come to it. Between two barriers they run one after the other, in an order
    that is shuffled from the seed. RuntimeError where some threads of a block come to a
    barrier and others end: CUDA asks that all of them come to it.
    """
    grid, block = (Dim3(*size) if isinstance(size, tuple) else Dim3(size) for size in (grid, block))
    order = random.Random(seed)
    for place in order.sample(list(grid.places()), grid.x * grid.y * grid.z):
        shared: dict = {}
        threads = [Thread(within, place, block, grid, shared) for within in block.places()]
        order.shuffle(threads)
        runs = [kernel(thread, *args) for thread in threads]
        if not inspect.isgeneratorfunction(kernel):
            continue
        ended = 0
        while not ended:
            order.shuffle(runs)
            ended = sum(next(run, "end") == "end" for run in runs)
        if ended < len(runs):
            raise RuntimeError(
                f"block {place}: {ended} threads of {len(runs)} have ended, while the others wait "
                f"at a barrier"
            )


if __name__ == "__main__":
    # A race: the same kernel in two of the orders that a GPU may choose.
    def count(t, total):
        total[0] = total[0] + 1

    def count_later(t, total):
        old = total[0]
        yield  # all threads of the block read before any of them writes
        total[0] = old + 1

    one_by_one, together = [0], [0]
    launch(count, 4, 8, one_by_one)
    launch(count_later, 4, 8, together)
    print("32 threads counted to", one_by_one, "or to", together)
    # -> 32 threads counted to [32] or to [4]

    def count_in_shared(t, total):
        t.shared[t.threadIdx.x] = 1  # a place for each thread
        yield
        if t.threadIdx.x == 0:
            total[t.blockIdx.x] = sum(t.shared.values())

    sums = [0] * 4
    launch(count_in_shared, 4, 8, sums)
    print("a place for each:", sums, sum(sums))  # -> a place for each: [8, 8, 8, 8] 32

    # Each block reverses its numbers. There are 6 of them, in blocks of 4.
    def reversed_block(t, x, y):
        first, last = t.blockIdx.x * t.blockDim.x, min((t.blockIdx.x + 1) * t.blockDim.x, len(x))
        if t.number >= len(x):
            return
        t.shared[t.threadIdx.x] = x[t.number]
        yield
        y[t.number] = t.shared[last - first - 1 - t.threadIdx.x]

    def unchecked(kernel, grid, block, *args):
        """The launch of step kernel04, along x."""
        for place in range(grid):
            sizes, shared = (Dim3(block), Dim3(grid)), {}
            runs = [
                kernel(Thread(Dim3(i), Dim3(place), *sizes, shared), *args) for i in range(block)
            ]
            while runs:
                runs = [run for run in runs if next(run, "end") != "end"]

    y = [0] * 6
    unchecked(reversed_block, 2, 4, list(range(6)), y)
    print("threads that end before the barrier:", y)
    # -> threads that end before the barrier: [3, 2, 1, 0, 5, 4]
    try:
        launch(reversed_block, 2, 4, list(range(6)), y)
    except RuntimeError as error:
        print(str(error).partition(" have")[0])  # -> block Dim3(x=1, y=0, z=0): 2 threads of 4

    def all_come_along(t, x, y):
        first, last = t.blockIdx.x * t.blockDim.x, min((t.blockIdx.x + 1) * t.blockDim.x, len(x))
        if t.number < len(x):
            t.shared[t.threadIdx.x] = x[t.number]
        yield  # the idle threads too
        if t.number < len(x):
            y[t.number] = t.shared[last - first - 1 - t.threadIdx.x]

    launch(all_come_along, 2, 4, list(range(6)), y)
    print(y)  # -> [3, 2, 1, 0, 5, 4]
