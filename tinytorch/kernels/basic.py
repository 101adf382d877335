"""The first kernels: an addition, and a copy in two orders."""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.core.device import device_of
from tinytorch.cuda.backend import on_cuda
from tinytorch.kernels.kernel import Kernel

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
