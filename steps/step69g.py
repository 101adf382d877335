"""Step 69g: Threads, blocks and grids

On a GPU you do not write a loop over the elements. You write what happens to one element, a kernel,
and say how many threads are to run it. Threads come in blocks, blocks make up a grid, and each
thread works out from its position which element is its own:

    i = blockIdx.x * blockDim.x + threadIdx.x

1,000 elements in blocks of 256 need 4 blocks, which are 1,024 threads. The last 24 have nothing to
do. They have to check (`if i < n`), or they write past the end of the array, into something else.

The threads of a block share a little fast memory, and can wait for each other at a barrier, CUDA's
__syncthreads(). Say each has written a number. All wait; then half of the threads add the numbers
of the other half, then a quarter: the sum of 8 numbers takes 3 rounds. Blocks cannot wait for each
other.

What goes wrong on a GPU goes wrong silently. If two threads read a counter, add one and write it
back, one addition can be lost: a race condition. It depends on the order, so it happens on one day
and not on the next. And a barrier that only some threads of a block reach hangs, or computes
nonsense.

It matters where neighbours read. A GPU runs 32 threads in step, a warp, and reads memory in sectors
of 32 bytes, or 8 floats. If a warp reads 32 adjacent floats, 4 sectors are fetched; if each thread
reads from a different row, 32. This is coalesced against strided access: the same amount of data
used, 8 times the traffic.

`launch` is a GPU in plain Python, with these rules and these errors; a `yield` is the barrier.
Below it are two kernels in real CUDA C, each behind a functools.singledispatch: one body for all
array libraries, which gives the same numbers, and one for CuPy, whose RawKernel compiles the source
at its first launch. In `add` a thread starts at its own number and moves on by the size of the
grid, so that a small grid can handle a large array: a grid-stride loop, as in add_one_to_all.

Changed: nothing; step 68g is finished. New: Dim3, Thread, launch; Kernel; add and copy in CUDA C.
Try: remove `if i < n` from add_one: Python stops it. Make the list 12 long: nothing stops it.
"""

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tinytorch.core.device import device_of
from tinytorch.cuda.backend import cupy, on_cuda


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
    of the orders that a GPU may choose. RuntimeError where some threads of a block come to a
    barrier and others end: on a GPU that hangs, or computes nonsense.
    """
    grid, block = (Dim3(*size) if isinstance(size, tuple) else Dim3(size) for size in (grid, block))
    for place in grid.places():
        shared: dict = {}
        runs = [
            kernel(Thread(within, place, block, grid, shared), *args) for within in block.places()
        ]
        if not inspect.isgeneratorfunction(kernel):
            continue
        ended = 0
        while not ended:
            ended = sum(next(run, "end") == "end" for run in runs)
        if ended < len(runs):
            raise RuntimeError(
                f"block {place}: {ended} threads of {len(runs)} have ended, while the others wait "
                f"for them at a barrier"
            )


# What the element types are called in CUDA C. Other types keep to the generic version.
C_NAMES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long"}


class Kernel:
    """A function in CUDA C that runs on the GPU in many threads at once.

    Args:
        name: the name of the function in the source.
        source: CUDA C, in which T stands for the element type.
        types: the element types that it is written for, by name.
    """

    def __init__(self, name: str, source: str, types: tuple[str, ...] = tuple(C_NAMES)):
        self.name, self.source, self.types = name, source, types
        self.compiled: dict[str, Any] = {}

    def text(self, dtype: str) -> str:
        """The source for one element type, as the compiler gets it."""
        return f"typedef {C_NAMES[dtype]} T;\n{self.source}"

    def fits(self, *arrays: Any) -> bool:
        """Whether the kernel can take these arrays: one type that it knows, laid out row by row."""
        dtype = arrays[0].dtype
        return dtype.name in self.types and all(
            array.dtype == dtype and array.flags.c_contiguous for array in arrays
        )

    def launch(self, dtype: Any, grid: tuple, block: tuple, *args: Any) -> None:
        """Starts grid x block threads on the current stream; compiled at the first launch."""
        if dtype.name not in self.compiled:
            self.compiled[dtype.name] = cupy.RawKernel(self.text(dtype.name), self.name)
        self.compiled[dtype.name](grid, block, args)


# Each thread starts at its own number and goes on in steps of all threads there are: a grid of any
# size does arrays of any size, and neighbours always touch neighbours.
add_kernel = Kernel(
    "add",
    """
extern "C" __global__ void add(const T* a, const T* b, T* c, long long n) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        c[i] = a[i] + b[i];
}
""",
)


@functools.singledispatch
def add(a: Any, b: Any) -> Any:
    """a + b for two arrays of one shape and type."""
    return a + b


@on_cuda(add)
def add_on_cuda(a: Any, b: Any) -> Any:
    if a.shape != b.shape or not add_kernel.fits(a, b):
        return a + b
    c = device_of(a).xp.empty(a.shape, a.dtype)
    blocks = min(math.ceil(a.size / 256), 4096)
    if a.size:
        add_kernel.launch(a.dtype, (blocks,), (256,), a, b, c, np.int64(a.size))
    return c


# The same elements, in order (step 1) or from here and there. The GPU reads 32 bytes at a time,
# whether a thread wants 4 of them or eight threads want them all.
copy_kernel = Kernel(
    "copy",
    """
extern "C" __global__ void copy(const T* x, T* y, long long n, long long step) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        long long place = i * step % n;
        y[place] = x[place];
    }
}
""",
)


@functools.singledispatch
def copy(x: Any, step: int = 1) -> Any:
    """A copy of an array, read and written in steps. step and x.size have no common divisor."""
    return x.copy()


@on_cuda(copy)
def copy_on_cuda(x: Any, step: int = 1) -> Any:
    if math.gcd(step, x.size) != 1 or not copy_kernel.fits(x):
        return x.copy()
    y = device_of(x).xp.empty(x.shape, x.dtype)
    blocks = math.ceil(x.size / 256)
    copy_kernel.launch(x.dtype, (blocks,), (256,), x, y, np.int64(x.size), np.int64(step))
    return y


if __name__ == "__main__":

    def add_one(t, data, n):
        i = t.blockIdx.x * t.blockDim.x + t.threadIdx.x
        if i < n:
            data[i] += 1

    data = [10 * i for i in range(10)]
    launch(add_one, math.ceil(9 / 4), 4, data, 9)  # 3 blocks of 4: 12 threads, 3 idle
    print(data)  # -> [1, 11, 21, 31, 41, 51, 61, 71, 81, 90]

    def add_one_to_all(t, data):
        for i in range(t.number, len(data), t.gridDim.x * t.blockDim.x):
            data[i] += 1

    many = [0] * 100
    launch(add_one_to_all, 2, 4, many)  # the grid-stride loop
    print("8 threads, 100 elements, each once:", many == [1] * 100)
    # -> 8 threads, 100 elements, each once: True

    def block_sum(t, numbers, sums):
        own = t.threadIdx.x
        t.shared[own] = numbers[t.number]
        half = t.blockDim.x // 2
        while half:
            yield  # all have written
            if own < half:
                t.shared[own] += t.shared[own + half]
            half //= 2
        if own == 0:
            sums[t.blockIdx.x] = t.shared[0]

    sums = [0, 0]
    launch(block_sum, 2, 8, list(range(16)), sums)
    print("sums of the blocks:", sums, sum(range(8)), sum(range(8, 16)))
    # -> sums of the blocks: [28, 92] 28 92

    def count(t, total):
        old = total[0]
        yield  # all threads read before any of them writes
        total[0] = old + 1

    def count_atomically(t, total):
        total[0] += 1  # no thread comes between reading and writing

    raced, atomic = [0], [0]
    launch(count, 4, 8, raced)
    launch(count_atomically, 4, 8, atomic)
    print("32 threads counted to", raced, "and", atomic)  # -> 32 threads counted to [4] and [32]

    def early_return(t, n):
        if t.number >= n:
            return
        yield
        yield

    try:
        launch(early_return, 2, 4, 5)
    except RuntimeError as error:
        print(str(error)[:80])
        # -> block Dim3(x=1, y=0, z=0): 3 threads of 4 have ended, while the others wait for

    def sectors(places):
        """How many sectors of 32 bytes hold the floats at these places."""
        return len({4 * place // 32 for place in places})

    coalesced, strided = [], []
    launch(lambda t: coalesced.append(t.number), 1, 32)
    launch(lambda t: strided.append(t.number * 1024), 1, 32)
    print("sectors fetched for 32 floats:", sectors(coalesced), "or", sectors(strided))
    # -> sectors fetched for 32 floats: 4 or 32

    # The kernels in CUDA C, on CuPy's arrays. Without a GPU these calls take the generic version.
    xp = cupy if cupy is not None and cupy.cuda.is_available() else np
    a = xp.arange(1000, dtype=xp.float32)
    b = xp.ones(1000, xp.float32)
    print("add:", (add(a, b) == a + 1).all())  # -> add: True
    print("copy, in order and in steps of 7:", (copy(a) == a).all(), (copy(a, 7) == a).all())
    # -> copy, in order and in steps of 7: True True
    touched = sorted(i * 7 % 1000 for i in range(1000))
    print("each element once:", touched == list(range(1000)))  # -> each element once: True
    print(add_kernel.text("float32").splitlines()[0])  # -> typedef float T;
    print("fits:", add_kernel.fits(a, b), add_kernel.fits(a[::2], b[::2]))  # -> fits: True False

    def speed(action, arrays):
        """Gigabytes in a second, if each call reads and writes so many large arrays."""
        if cupy is None or not cupy.cuda.is_available():
            return "left out, for want of a GPU"
        big = cupy.ones(1 << 26, cupy.float32)
        action(big)  # compiles it
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        action(big)
        end.record()
        end.synchronize()
        seconds = cupy.cuda.get_elapsed_time(start, end) / 1000
        return f"{arrays * big.nbytes / seconds / 1e9:.0f} GB/s"

    for step in (1, 1021):
        print(f"copy in steps of {step}:", speed(lambda x, step=step: copy(x, step), 2))  # -> ...
    print("CuPy's copy:", speed(lambda x: x.copy(), 2))  # -> ...
    print("add:", speed(lambda x: add(x, x), 3), "CuPy's:", speed(lambda x: x + x, 3))  # -> ...
