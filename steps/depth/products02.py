"""Step products02: Tiles in shared memory, in CUDA C

Step 81a has told the idea: a block brings a tile of each factor into its shared memory, and each
number that is fetched is used 16 times. Two barriers keep it right, and the second is the one that
is forgotten.

The trap at the border: a thread whose element does not exist must still come along, since it
fetches for others and every thread has to come to the barriers (step kernel05). Where a tile
reaches beyond a matrix it holds zeros, which add nothing; only the last line asks whether the
element exists.

NVIDIA's library cuBLAS takes the idea further, with tiles of tiles down to the registers, and is
far faster. PyTorch calls it, and so does a @ b. On a GPU the demo times all three.

Changed: matmul, matmul_on_cuda. New: tiled_kernel. With it, kernels/products.py is finished.
Try: take the second `yield` out of `tiled` in the demo, and see what the product becomes.
"""

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


if __name__ == "__main__":
    from tinytorch.cuda.backend import cupy

    class Counted(list):
        """Numbers in the GPU's memory: it counts how often one is read."""

        reads = 0

        def __getitem__(self, place):
            self.reads += 1
            return super().__getitem__(place)

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

    from tinytorch.kernels.simulator import launch

    def naive(t, a, b, c, m, k, n):
        i = t.blockIdx.y * t.blockDim.y + t.threadIdx.y
        j = t.blockIdx.x * t.blockDim.x + t.threadIdx.x
        if i < m and j < n:
            c[i * n + j] = sum(a[i * k + s] * b[s * n + j] for s in range(k))

    def tiled(t, a, b, c, m, k, n):
        size, y, x = t.blockDim.x, t.threadIdx.y, t.threadIdx.x
        i, j = t.blockIdx.y * size + y, t.blockIdx.x * size + x
        total = 0
        for start in range(0, k, size):
            t.shared["a", y, x] = a[i * k + start + x] if i < m and start + x < k else 0
            t.shared["b", y, x] = b[(start + y) * n + j] if start + y < k and j < n else 0
            yield  # no thread reads before all have written
            total += sum(t.shared["a", y, s] * t.shared["b", s, x] for s in range(size))
            yield  # no thread writes before all have read
        if i < m and j < n:
            c[i * n + j] = total

    rng = np.random.default_rng(0)
    p, q = (rng.integers(0, 10, (8, 8)) for _ in range(2))
    for kernel in (naive, tiled):
        a, b, c = Counted(p.ravel().tolist()), Counted(q.ravel().tolist()), [0] * 64
        launch(kernel, (2, 2), (4, 4), a, b, c, 8, 8, 8)
        right = np.array_equal(np.reshape(c, (8, 8)), p @ q)
        print(f"{kernel.__name__}: right {right}, reads from memory {a.reads + b.reads}")
        # -> naive: right True, reads from memory 1024
        # -> tiled: right True, reads from memory 256

    def simulated(kernel):
        def run(grid, block, args):
            flat = (x.reshape(-1) if isinstance(x, np.ndarray) else x for x in args)
            launch(kernel, grid, block, *flat)

        return run

    naive_kernel.compiled["float64"], tiled_kernel.compiled["float64"] = (
        simulated(naive),
        simulated(tiled),
    )
    x, y = rng.standard_normal((20, 18)), rng.standard_normal((18, 33))
    found = [np.allclose(matmul_on_cuda(x, y, way), x @ y) for way in (True, False)]
    print("with tiles and without, at the borders:", found)
    # -> with tiles and without, at the borders: [True, True]

    if cupy is not None and cupy.cuda.is_available():
        m = cupy.random.standard_normal((2048, 2048), dtype=cupy.float32)
        ways = {"naive": lambda: matmul(m, m, False), "tiled": lambda: matmul(m, m)}
        ways["cuBLAS"] = lambda: m @ m
        report = ", ".join(f"{name} {time_of(action):.3f} ms" for name, action in ways.items())
        report += f"; off by {float(abs(matmul(m, m) - m @ m).max() / abs(m @ m).max()):.1e}"
    else:
        report = "left out, for want of a GPU"
    print("2048 x 2048:", report)  # -> ...
