"""Step products01: A product with one thread for each element, in CUDA C

Step 81a wrote this kernel for the simulated GPU, and the one with tiles. Here both become text in
CUDA C that CuPy compiles, beginning with the simple one:

    c[i, j] = sum over s of a[i, s] * b[s, j]        i = blockIdx.y * blockDim.y + threadIdx.y
                                                     j = blockIdx.x * blockDim.x + threadIdx.x

A matrix is a row of numbers in memory: a[i, s] is a[i * k + s]. x runs along the columns, so a warp
is two rows of a block: its 32 threads read 16 neighbours in b, and two numbers in a.

It reads 2 k numbers for each of m n elements. For 2,048 x 2,048 each number is fetched 2,048 times.

The trap is the size of an int. i * k + s passes 2^31 when a matrix has 46,341 rows and columns, so
the place is computed as long long. m, k and n go as np.int32, C's int: `launch` passes what it
gets.

New: naive_kernel, matmul.
Try: leave out `if i < m and j < n` in `naive` of the demo. What stops it here, and what on a GPU?
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


@functools.singledispatch
def matmul(a: Any, b: Any) -> Any:
    """The product of two matrices (m, k) and (k, n)."""
    return a @ b


@on_cuda(matmul)
def matmul_on_cuda(a: Any, b: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    if not naive_kernel.fits(a, b) or not m * k * n:
        return a @ b
    c = device_of(a).xp.empty((m, n), a.dtype)
    grid = (math.ceil(n / 16), math.ceil(m / 16))
    naive_kernel.launch(a.dtype, grid, (16, 16), a, b, c, np.int32(m), np.int32(k), np.int32(n))
    return c


if __name__ == "__main__":

    class Counted(list):
        """Numbers in the GPU's memory: it counts how often one is read."""

        reads = 0

        def __getitem__(self, place):
            self.reads += 1
            return super().__getitem__(place)

    from tinytorch.kernels.simulator import launch

    def naive(t, a, b, c, m, k, n):  # what the text says, thread by thread
        i = t.blockIdx.y * t.blockDim.y + t.threadIdx.y
        j = t.blockIdx.x * t.blockDim.x + t.threadIdx.x
        if i < m and j < n:
            c[i * n + j] = sum(a[i * k + s] * b[s * n + j] for s in range(k))

    rng = np.random.default_rng(0)
    p, q = (rng.integers(0, 10, (8, 8)) for _ in range(2))
    a, b, c = Counted(p.ravel().tolist()), Counted(q.ravel().tolist()), [0] * 64
    launch(naive, (2, 2), (4, 4), a, b, c, 8, 8, 8)
    right = np.array_equal(np.reshape(c, (8, 8)), p @ q)
    print(f"right {right}; numbers {p.size + q.size}, reads from memory {a.reads + b.reads}")
    # -> right True; numbers 128, reads from memory 1024

    grids = []

    def simulated(grid, block, args):
        grids.append((grid, block))
        launch(
            naive, grid, block, *(x.reshape(-1) if isinstance(x, np.ndarray) else x for x in args)
        )

    naive_kernel.compiled["float64"] = simulated
    x, y = rng.standard_normal((20, 18)), rng.standard_normal((18, 33))
    print("20 x 33, simulated:", np.allclose(matmul_on_cuda(x, y), x @ y), grids)
    # -> 20 x 33, simulated: True [((3, 2), (16, 16))]
    print("generic:", np.array_equal(matmul(x, y), x @ y))  # -> generic: True
    grids.clear()
    print(
        "a transposed matrix does not fit:", np.allclose(matmul_on_cuda(y.T, x.T), y.T @ x.T), grids
    )
    # -> a transposed matrix does not fit: True []
    print("nothing to add:", matmul_on_cuda(x[:, :0], y[:0]).any(), grids)
    # -> nothing to add: False []
