"""Step kernel09: Measuring memory access: a copy in steps

Step kernel02 counted the sectors of 32 bytes that a warp touches: neighbouring elements share them,
and elements far apart need one each. Is it so on a GPU, and what does it cost?

`copy` is a kernel to measure it. It copies the same elements in order, or in steps: thread i takes
the place i * step % n. If step and n have no common divisor, this visits each place once. Only the
order differs:

    step 1     0 1 2 3 ...          32 threads read 4 sectors
    step 7     0 7 14 21 ...        32 threads read 28

On a GPU, the demo prints how many gigabytes a second both ways reach, and what CuPy's own copy and
the addition reach; where there is none, it counts the sectors that a warp touches.

The trap: with a common divisor, some places are visited several times and others never. Such a
step takes the generic version.

New: copy_kernel, copy. Finished: kernels/kernel.py and kernels/basic.py.
Try: copy(a, 8), whose step divides 1,000. How many different places would the kernel touch?
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.core.device import device_of
from tinytorch.cuda.backend import cupy, on_cuda

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
    from tinytorch.kernels.simulator import launch

    # The copy, in order and in steps of 7.
    def copy_in_python(t, x, y, n, step):
        if t.number < n:
            place = t.number * step % n
            y[place] = x[place]
            if t.number < 32:
                touched.append(place)

    copy_kernel.compiled["float32"] = lambda grid, block, args: launch(
        copy_in_python, grid, block, *args
    )
    a = np.arange(1000, dtype=np.float32)
    for step in (1, 7):
        touched = []
        equal = np.array_equal(copy_on_cuda(a, step), copy(a, step))
        sectors = len({4 * place // 32 for place in touched})
        print(f"step {step}: {equal}, sectors for the first warp: {sectors}")
        # -> step 1: True, sectors for the first warp: 4
        # -> step 7: True, sectors for the first warp: 28
    touched = []
    copy_on_cuda(a, 8)
    print("a step that divides 1,000 takes the generic version:", touched)
    # -> a step that divides 1,000 takes the generic version: []

    # On a GPU, with kernels that were compiled.
    copy_kernel.compiled.clear()

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
