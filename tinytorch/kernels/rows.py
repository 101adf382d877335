"""Kernels that the operations use on a GPU: the softmax of rows, and rows added at an index."""

import math
from typing import Any

import numpy as np

from tinytorch.cuda.backend import cupy, on_cuda
from tinytorch.kernels.kernel import Kernel
from tinytorch.ops.indexing import add_at
from tinytorch.ops.softmax import softmax_forward

# A block for each row. A thread takes every blockDim.x-th element; `combined` makes one number of
# the threads' numbers: first the 32 threads of a warp exchange theirs, then the warps.
softmax_kernel = Kernel(
    "softmax",
    """
__device__ T combined(T value, bool largest) {
    __shared__ T of_warp[32];
    for (int k = 16; k > 0; k /= 2) {
        T other = __shfl_xor_sync(0xffffffff, value, k);
        value = largest ? (other > value ? other : value) : value + other;
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (int w = 1; w < blockDim.x / 32; w++) {
        T other = of_warp[w];
        value = largest ? (other > value ? other : value) : value + other;
    }
    __syncthreads();
    return value;
}

extern "C" __global__ void softmax(const T* x, T* y, int columns) {
    x += (long long)blockIdx.x * columns;
    y += (long long)blockIdx.x * columns;
    T top = x[threadIdx.x < columns ? threadIdx.x : 0], sum = 0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x) top = x[j] > top ? x[j] : top;
    top = combined(top, true);
    for (int j = threadIdx.x; j < columns; j += blockDim.x) sum += exp(x[j] - top);
    sum = combined(sum, false);
    for (int j = threadIdx.x; j < columns; j += blockDim.x) y[j] = exp(x[j] - top) / sum;
}
""",
    ("float32", "float64"),
)


@on_cuda(softmax_forward)
def softmax_on_cuda(x: Any, ctx: Any) -> Any:
    if ctx.dims != (x.ndim - 1,) or not softmax_kernel.fits(x) or not x.size:
        return softmax_forward.dispatch(object)(x, ctx)
    y, columns = cupy.empty(x.shape, x.dtype), x.shape[-1]
    threads = min(256, 32 * math.ceil(columns / 128))
    softmax_kernel.launch(x.dtype, (x.size // columns,), (threads,), x, y, np.int32(columns))
    return y


# Two threads may have the same row to add to. An atomic addition reads, adds and writes as one.
add_at_kernel = Kernel(
    "add_at",
    """
extern "C" __global__ void add_at(T* out, const long long* rows, const T* values, long long n,
                                  long long width) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&out[rows[i / width] * width + i % width], values[i]);
}
""",
    ("float32", "float64", "int32"),
)


@on_cuda(add_at)
def add_at_on_cuda(array: Any, rows: Any, values: Any) -> None:
    values = cupy.ascontiguousarray(values)
    if not add_at_kernel.fits(array, values) or not values.size:
        return add_at.dispatch(object)(array, rows, values)
    n, width = np.int64(values.size), np.int64(array.shape[1])
    rows = cupy.ascontiguousarray(rows, dtype=np.int64)
    blocks = math.ceil(values.size / 256)
    add_at_kernel.launch(array.dtype, (blocks,), (256,), array, rows, values, n, width)
