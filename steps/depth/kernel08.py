"""Step kernel08: Which arrays a kernel can take

A kernel reads memory, not an array. The one of step kernel07 gets an address and a count, and takes
n elements from there on. If it is given x[::2], whose elements lie two apart, it reads the first
half of x: the demo shows it, and [0 2 4 6] + [0 2 4 6] is [0 2 4 6]. Two arrays of different types
are worse: the bytes of one are read as numbers of the other type. None of this is an error on a
GPU.

So `fits` checks the arrays before a launch: all have one type, the kernel is written for that type,
and the elements lie row by row without gaps (c_contiguous). Other arrays take the generic version,
which is slower, and right. Arrays of two shapes are broadcast there as well.

(Our `fits` refuses more than it must: PyTorch's kernels for elementwise operations take strides
along, and compute the place of each element from them.)

The trap: an empty array fits, but a grid of 0 blocks is an error in CUDA. So it gets no launch.

Changed: C_NAMES (int types), Kernel (types, fits), add_on_cuda.
Try: fits of x.reshape(2, 4).T and of x[4:]. Which of the two is refused, and why not the other?
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


if __name__ == "__main__":
    from tinytorch.kernels.simulator import launch

    # The kernels, simulated. They see memory: n elements from the address of an array on.
    def memory_of(array, n):
        return np.lib.stride_tricks.as_strided(array, (n,), (array.itemsize,))

    def add_in_python(t, a, b, c, n):
        for i in range(t.number, n, t.gridDim.x * t.blockDim.x):
            c[i] = a[i] + b[i]

    launches = []

    def simulated_add(grid, block, args):
        launches.append(grid)
        *arrays, n = args
        launch(add_in_python, grid, block, *(memory_of(array, n) for array in arrays), n)

    add_kernel.compiled["float32"] = simulated_add
    x = np.arange(8, dtype=np.float32)
    half, wrong = x[::2], np.empty(4, np.float32)
    simulated_add((1,), (256,), (half, half, wrong, np.int64(4)))  # as step kernel07 launched it
    print(
        half + half, "should be, and is", wrong
    )  # -> [ 0.  4.  8. 12.] should be, and is [0. 2. 4. 6.]
    print("fits:", add_kernel.fits(x, x), add_kernel.fits(half, half))  # -> fits: True False
    print("fits, two types:", add_kernel.fits(x, x.astype(np.float64)))  # -> fits, two types: False
    print("fits, a type unknown to it:", add_kernel.fits(x > 1, x > 1))
    # -> fits, a type unknown to it: False

    launches.clear()
    print(add_on_cuda(half, half), add_on_cuda(x[:3], x[:1]), "launches:", len(launches))
    # -> [ 0.  4.  8. 12.] [0. 1. 2.] launches: 0
    print(add_on_cuda(x, x), add_on_cuda(x[:0], x[:0]), "launches:", len(launches))
    # -> [ 0.  2.  4.  6.  8. 10. 12. 14.] [] launches: 1
