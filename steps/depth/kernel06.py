"""Step kernel06: Kernel, and how an operation reaches it

Step 82a built it: the text of a kernel in CUDA C, and a body of the operation for CuPy's arrays.
Here `add` is a functools.singledispatch: it chooses a body by the type of its first argument, and
@on_cuda (step backend05) adds one. The caller of `add` need not know of it. PyTorch's dispatcher
does the same with a table: operation and device, and the kernel for the two.

The trap: `launch` passes addresses. Nothing checks the number, order or type of the arguments; the
type of a Python int would have to be guessed, so n goes as np.int64, which is C's long long.

On a machine without a GPU the demo puts a simulated kernel in the place of the compiled one: the
launch of step kernel05 runs it. (The tests also compile the text itself, with the machine's C++
compiler and, where it is installed, with NVIDIA's NVRTC.)

New: Kernel; add and add_kernel.
Try: n = 999 in `add_on_cuda`, and print c. Which element is left as it was in memory?
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.core.device import device_of
from tinytorch.cuda.backend import cupy, on_cuda


class Kernel:
    """A function in CUDA C that runs on the GPU in many threads at once.

    Args:
        name: the name of the function in the source.
        source: CUDA C.
    """

    def __init__(self, name: str, source: str):
        self.name, self.source = name, source
        self.compiled: Any = None

    def launch(self, grid: tuple, block: tuple, *args: Any) -> None:
        """Starts grid x block threads on the current stream; compiled at the first launch."""
        if self.compiled is None:
            self.compiled = cupy.RawKernel(self.source, self.name)
        self.compiled(grid, block, args)


# Each thread starts at its own number and goes on in steps of all threads there are: a grid of any
# size does arrays of any size, and neighbours always touch neighbours.
add_kernel = Kernel(
    "add",
    """
extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {
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
    add_kernel.launch((blocks,), (256,), a, b, c, np.int64(a.size))
    return c


if __name__ == "__main__":
    from tinytorch.kernels.simulator import launch

    a = np.arange(1000, dtype=np.float32)
    b = np.ones(1000, np.float32)
    print("the generic body, for NumPy's arrays:", add(a, b)[:3])
    # -> the generic body, for NumPy's arrays: [1. 2. 3.]

    # What the compiler would make of the text, simulated: the same loop, thread by thread.
    def add_in_python(t, a, b, c, n):
        for i in range(t.number, n, t.gridDim.x * t.blockDim.x):
            c[i] = a[i] + b[i]

    launches = []

    def simulated(grid, block, args):
        launches.append((grid, block))
        args[2].fill(np.nan)  # new memory may hold anything
        launch(add_in_python, grid, block, *args)

    add_kernel.compiled = simulated
    c = add_on_cuda(a, b)
    print("the body for CuPy's arrays, simulated:", np.array_equal(c, a + b), launches)
    # -> the body for CuPy's arrays, simulated: True [((4,), (256,))]
    print(
        "for a million:", min(math.ceil(10**6 / 256), 4096), "blocks"
    )  # -> for a million: 3907 blocks
    print("for a thousand million:", min(math.ceil(10**9 / 256), 4096))
    # -> for a thousand million: 4096

    if cupy is not None and cupy.cuda.is_available():
        add_kernel.compiled = None
        x = cupy.arange(1000, dtype=cupy.float32)
        report = bool((add(x, x) == 2 * x).all()), "compiled:", add_kernel.compiled is not None
    else:
        report = "left out, for want of a GPU"
    print("on the GPU:", report)  # -> ...
