"""Step kernel07: One text, and a program for each element type

The kernel of step kernel06 says float. Given two arrays of float64 it takes their bytes for floats
of half the length, and the result is nonsense, without an error: the demo shows it. A function in C
is written for one type, so another text would be needed for each.

PyTorch's kernels are C++ templates: `T` stands for the type, and the compiler makes a function for
each. In C, one line in front of the text does it:

    typedef float T;        T is float from here on

So there is one text, and a program for each type, in a dictionary. `launch` is told the type.

The trap: the name of a type is not the same everywhere. NumPy's float64 is C's double.

Changed: Kernel, add_on_cuda. New: C_NAMES.
Try: add_kernel.text("float16"). What is missing?
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.core.device import device_of
from tinytorch.cuda.backend import cupy, on_cuda

# What the element types are called in CUDA C.
C_NAMES = {"float32": "float", "float64": "double"}


class Kernel:
    """A function in CUDA C that runs on the GPU in many threads at once.

    Args:
        name: the name of the function in the source.
        source: CUDA C, in which T stands for the element type.
    """

    def __init__(self, name: str, source: str):
        self.name, self.source = name, source
        self.compiled: dict[str, Any] = {}

    def text(self, dtype: str) -> str:
        """The source for one element type, as the compiler gets it."""
        return f"typedef {C_NAMES[dtype]} T;\n{self.source}"

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
    c = device_of(a).xp.empty(a.shape, a.dtype)
    blocks = min(math.ceil(a.size / 256), 4096)
    add_kernel.launch(a.dtype, (blocks,), (256,), a, b, c, np.int64(a.size))
    return c


if __name__ == "__main__":
    from tinytorch.kernels.simulator import launch

    # The kernel of step kernel06 takes the bytes of doubles for floats.
    doubles = np.array([1.0, 2.0, 3.0])
    print(doubles.view(np.float32))  # -> [0.    1.875 0.    2.    0.    2.125]

    for dtype in ("float32", "float64"):
        print(add_kernel.text(dtype).splitlines()[0])
        # -> typedef float T;
        # -> typedef double T;

    # A program for each type, simulated.
    def add_in_python(t, a, b, c, n):
        for i in range(t.number, n, t.gridDim.x * t.blockDim.x):
            c[i] = a[i] + b[i]

    for dtype in ("float32", "float64"):
        add_kernel.compiled[dtype] = lambda grid, block, args: launch(
            add_in_python, grid, block, *args
        )
        a = np.arange(1000, dtype=dtype)
        c = add_on_cuda(a, a)
        print(c.dtype, np.array_equal(c, a + a))
        # -> float32 True
        # -> float64 True

    if cupy is not None and cupy.cuda.is_available():
        add_kernel.compiled.clear()
        for dtype in (cupy.float32, cupy.float64):
            x = cupy.arange(1000, dtype=dtype)
            print(bool((add(x, x) == 2 * x).all()), "compiled:", list(add_kernel.compiled))
