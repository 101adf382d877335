"""A GPU in plain Python: it runs a kernel, a Python function, once for each thread of a grid."""

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
