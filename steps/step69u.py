"""Step 69u: Kernels of our own

CuPy has a kernel for each of NumPy's functions. Why write others? Because memory is the limit. A
softmax made of max, -, exp, sum and / reads or writes the whole matrix eight times. A single kernel
reads it from the GPU's memory once and writes it once: each block takes a row, which is still in
the cache when the block looks at it a second and a third time.

    y_j = exp(x_j - m) / sum_k exp(x_k - m),      m = the largest x of the row

Without m, a logit of 1,000 overflows: exp(1000) = inf, and inf / inf = nan. Subtracting the largest
does not change the quotient, and no exponent is above 0. A softmax without it is wrong.

The matrix product shows what shared memory is for. With one thread for each element, reading a row
and a column, every element costs 2 k reads. A block of 16 x 16 threads copies one tile of each
factor into shared memory, and each number fetched is used 16 times. Two barriers keep it correct:
no thread reads before all have written, none writes before all have read.

Scatter-add is the gradient of an index: several rows may go to one place. Threads that read, add
and write lose additions (step 69g), so the kernel uses atomicAdd. The price: the order of additions
is not fixed, so the sums of floats can differ a little from run to run.

Each kernel enters at a seam: softmax_forward and add_at are singledispatch functions that the
operations call. `on_cuda` gives them another body for CuPy's arrays. No operation changes, and
whatever the kernel cannot take (other types, other layouts) uses the generic version as before.

A kernel has to be measured to earn its place. On a GPU the demo times each against the library's
own. For the product NVIDIA's cuBLAS is far ahead, with more of the same idea: tiles of tiles, down
to the registers.

Changed: nothing. New: matmul by two kernels; softmax_on_cuda, add_at_on_cuda. Moved: step 69n.
Try: take the second `yield` out of `tiled` in the demo, and see what the product becomes.
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.core.device import device_of
from tinytorch.cuda.backend import cupy, on_cuda
from tinytorch.kernels.kernel import Kernel
from tinytorch.ops.indexing import add_at
from tinytorch.ops.softmax import softmax_forward

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


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.cuda.backend import is_available
    from tinytorch.kernels.simulator import launch
    from tinytorch.ops import reduction  # noqa: F401  (its methods)
    from tinytorch.ops.softmax import softmax

    class Counted(list):
        """Numbers in the GPU's memory: it counts how often one is read."""

        reads = 0

        def __getitem__(self, place):
            self.reads += 1
            return super().__getitem__(place)

    n, tile = 8, 4

    def naive(t, a, b, c):
        i = t.blockIdx.y * tile + t.threadIdx.y
        j = t.blockIdx.x * tile + t.threadIdx.x
        c[i * n + j] = sum(a[i * n + s] * b[s * n + j] for s in range(n))

    def tiled(t, a, b, c):
        y, x = t.threadIdx.y, t.threadIdx.x
        i, j = t.blockIdx.y * tile + y, t.blockIdx.x * tile + x
        total = 0
        for k in range(0, n, tile):
            t.shared["a", y, x] = a[i * n + k + x]
            t.shared["b", y, x] = b[(k + y) * n + j]
            yield  # no thread reads before all have written
            total += sum(t.shared["a", y, s] * t.shared["b", s, x] for s in range(tile))
            yield  # no thread writes before all have read
        c[i * n + j] = total

    rng = np.random.default_rng(0)
    p, q = (rng.integers(0, 10, (n, n)) for _ in range(2))
    for kernel in (naive, tiled):
        a, b, c = Counted(p.ravel().tolist()), Counted(q.ravel().tolist()), [0] * (n * n)
        launch(kernel, (n // tile, n // tile), (tile, tile), a, b, c)
        right = (np.array(c).reshape(n, n) == p @ q).all()
        print(f"{kernel.__name__}: right {right}, reads from memory {a.reads + b.reads}")
        # -> naive: right True, reads from memory 1024
        # -> tiled: right True, reads from memory 256

    with np.errstate(over="ignore", invalid="ignore"):
        row = np.array([1000.0, 999.0, 0.0], np.float32)
        print("without the largest:", np.exp(row) / np.exp(row).sum())
        # -> without the largest: [nan nan  0.]
    print("softmax:", [round(v, 4) for v in softmax(tensor(row), 0).tolist()])
    # -> softmax: [0.7311, 0.2689, 0.0]

    def scatter(t, out, rows, values):
        old = out[rows[t.number]]
        yield  # the others read too
        out[rows[t.number]] = old + values[t.number]

    rows, values = [0, 2, 2, 2], [1, 10, 20, 30]
    lost = [0, 0, 0]
    launch(scatter, 1, 4, lost, rows, values)
    print("read, add, write:", lost)  # -> read, add, write: [1, 0, 30]
    out = np.zeros((3, 1))
    add_at(out, np.array(rows), np.array(values, dtype=float)[:, None])
    print("add_at:", out[:, 0].tolist())  # -> add_at: [1.0, 0.0, 60.0]

    # What no kernel takes, such as NumPy's arrays, goes to the generic version.
    x = rng.standard_normal((5, 40))
    print("generic:", np.array_equal(matmul(x, x.T, True), x @ x.T))  # -> generic: True

    def time_of(action):
        """Milliseconds on the GPU: the shortest of five."""
        times = []
        for _ in range(6):
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            action()
            end.record()
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, end))
        return min(times[1:])

    if is_available():
        m = cupy.random.standard_normal((2048, 2048), dtype=cupy.float32)
        t = tensor(cupy.asnumpy(m), device="cuda")

        def in_five_steps():
            powers = cupy.exp(m - m.max(axis=1, keepdims=True))
            return powers / powers.sum(axis=1, keepdims=True)

        places = cupy.asarray(rng.integers(0, len(m) // 20, len(m)))
        work = {
            "matmul naive": lambda: matmul(m, m, False),
            "matmul tiled": lambda: matmul(m, m, True),
            "matmul of cuBLAS": lambda: m @ m,
            "softmax, one kernel": lambda: softmax(t, 1),
            "softmax, CuPy's five": in_five_steps,
            "copy, the limit": m.copy,
            "add_at, one kernel": lambda: add_at(cupy.zeros_like(m), places, m),
            "add_at, CuPy's": lambda: add_at.dispatch(object)(cupy.zeros_like(m), places, m),
        }
        report = ", ".join(f"{name} {time_of(action):.3f}" for name, action in work.items())
        sums, generic_sums = cupy.zeros_like(m), cupy.zeros_like(m)
        add_at(sums, places, m)
        add_at.dispatch(object)(generic_sums, places, m)
        pairs = (
            (matmul(m, m), m @ m),
            (softmax(t, 1).array, in_five_steps()),
            (sums, generic_sums),
        )
        off = max(float(abs(ours - theirs).max() / abs(theirs).max()) for ours, theirs in pairs)
        report += f"; the numbers differ from the library's by {off:.1e} at most"
    else:
        report = "left out, for want of a GPU"
    print("ms:", report)  # -> ...
