"""Two matrix products: one thread for each element, and tiles in shared memory."""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.core.device import device_of
from tinytorch.cuda.backend import on_cuda
from tinytorch.kernels.kernel import Kernel

# One thread for each element of the product. It reads a whole row and a whole column.
naive_kernel = Kernel(
    "matmul_naive",
    """
extern "C" __global__ void matmul_naive(const T* a, const T* b, T* c, int m, int k, int n) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m || j >= n) return;
    T sum = 0;
    for (int s = 0; s < k; s++)
        sum += a[(long long)i * k + s] * b[(long long)s * n + j];
    c[(long long)i * n + j] = sum;
}
""",
)
# A block brings a 16 x 16 tile of each factor into its shared memory, where each number is read 16
# times, and moves on: one sixteenth of the reads from the GPU's memory.
tiled_kernel = Kernel(
    "matmul_tiled",
    """
extern "C" __global__ void matmul_tiled(const T* a, const T* b, T* c, int m, int k, int n) {
    __shared__ T tile_a[16][16], tile_b[16][16];
    int y = threadIdx.y, x = threadIdx.x, i = blockIdx.y * 16 + y, j = blockIdx.x * 16 + x;
    T sum = 0;
    for (int t = 0; t < k; t += 16) {
        tile_a[y][x] = i < m && t + x < k ? a[(long long)i * k + t + x] : T(0);
        tile_b[y][x] = t + y < k && j < n ? b[(long long)(t + y) * n + j] : T(0);
        __syncthreads();  // no thread reads before all have written
        for (int s = 0; s < 16; s++) sum += tile_a[y][s] * tile_b[s][x];
        __syncthreads();  // no thread writes before all have read
    }
    if (i < m && j < n) c[(long long)i * n + j] = sum;
}
""",
)


@functools.singledispatch
def matmul(a: Any, b: Any, tiled: bool = True) -> Any:
    """The product of two matrices (m, k) and (k, n), with or without tiles in shared memory."""
    return a @ b


@on_cuda(matmul)
def matmul_on_cuda(a: Any, b: Any, tiled: bool = True) -> Any:
    kernel = tiled_kernel if tiled else naive_kernel
    (m, k), n = a.shape, b.shape[1]
    if not kernel.fits(a, b) or not m * k * n:
        return a @ b
    c = device_of(a).xp.empty((m, n), a.dtype)
    grid = (math.ceil(n / 16), math.ceil(m / 16))
    kernel.launch(a.dtype, grid, (16, 16), a, b, c, np.int32(m), np.int32(k), np.int32(n))
    return c
