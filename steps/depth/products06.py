"""Step products06: Scatter-add, with atomic additions

The gradient of x[rows] adds each row that arrives to the row that it was taken from, and several
may go to one place. Word embeddings do this with each batch. As a kernel with a thread for each
number, it is a race (step kernel05): threads that read, add and write lose additions. In the demo,
60 should arrive at place 2, and 30 do.

A barrier does not help, as the threads are in different blocks, and it is not known in advance
which of them meet. An atomic addition does: atomicAdd reads, adds and writes as one, and the next
one for the same place waits. Units beside the cache carry it out, so that nothing goes back and
forth.

What it costs: where all threads want one place, they queue. And the order of the additions is not
fixed. Sums of floats depend on the order, so the result can differ a little from run to run. That
is the trap: a seed does not make such a run repeatable. PyTorch documents it for index_add_, and
torch.use_deterministic_algorithms(True) chooses slower ways.

The kernel is registered for `add_at`, which indexing, embedding and scatter_add share (step
indexing02). Its values and rows may have any layout: they are copied into row order. The result
must fit as it is, because it is written in place. int64 is left out: CUDA's atomicAdd takes
`unsigned long long`, whose sums have the same bits, so it would need a cast, and gradients are
floats.

New: add_at_kernel, add_at_on_cuda. With them, tinytorch/kernels/rows.py is finished.
Try: in the demo, add 0.1 + 0.2 + 0.3 in all six orders. How many different sums are there?
"""

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


if __name__ == "__main__":

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

    import itertools

    from tinytorch.autograd.backward import backward  # noqa: F401  (backward)
    from tinytorch.core.tensor import tensor
    from tinytorch.kernels.simulator import launch
    from tinytorch.ops import arithmetic, indexing, reduction  # noqa: F401  (their methods)

    def scatter(t, out, rows, values):
        old = out[rows[t.number]]
        yield  # the others read too
        out[rows[t.number]] = old + values[t.number]

    rows, values = [0, 2, 2, 2], [1, 10, 20, 30]
    lost = [0, 0, 0]
    launch(scatter, 1, 4, lost, rows, values)
    print("read, add, write:", lost)  # -> read, add, write: [1, 0, 30]

    # What the text says, thread by thread: no yield comes between reading and writing.
    def in_python(t, out, rows, values, n, width):
        i = t.number
        if i < n:
            out[rows[i // width] * width + i % width] += values[i]

    launches = []

    def simulated(grid, block, args):
        launches.append(grid)
        launch(in_python, grid, block, *(x.reshape(-1) if x.ndim else x for x in args))

    kept, cupy = cupy, np  # NumPy stands in for CuPy
    add_at_kernel.compiled["float32"] = simulated
    add_at.register(np.ndarray, add_at_on_cuda)
    out = np.zeros((3, 2), np.float32)
    pairs = np.array([[1.0, 10, 20, 30], [0, 1, 2, 3]], np.float32).T  # column by column
    add_at(out, np.array(rows), pairs)
    print("add_at, simulated:", out.tolist(), launches)
    # -> add_at, simulated: [[1.0, 0.0], [0.0, 0.0], [60.0, 6.0]] [(1,)]
    table = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (table[[1, 1, 0]] * tensor([[1.0], [2.0], [3.0]])).sum().backward()
    print("the gradient of an index:", table.grad.tolist(), len(launches))
    # -> the gradient of an index: [[3.0, 3.0], [3.0, 3.0]] 2
    wide = np.zeros((3, 1), np.int64)
    add_at(wide, np.array(rows), np.array(values)[:, None])
    print("int64, the generic version:", wide[:, 0].tolist(), len(launches))
    # -> int64, the generic version: [1, 0, 60] 2
    cupy = kept
    add_at.register(np.ndarray, add_at.dispatch(object))
    add_at_kernel.compiled.clear()

    orders = itertools.permutations(np.array([1e8, 1.0, -1e8], np.float32))
    print("three float32, sums in all orders:", sorted({float(a + b + c) for a, b, c in orders}))
    # -> three float32, sums in all orders: [0.0, 1.0]

    if cupy is not None and cupy.cuda.is_available():
        m = cupy.random.standard_normal((2048, 2048), dtype=cupy.float32)
        places = cupy.asarray(np.random.default_rng(0).integers(0, len(m) // 20, len(m)))
        ours, theirs = cupy.zeros_like(m), cupy.zeros_like(m)
        generic = add_at.dispatch(object)
        ways = {"one kernel": lambda: add_at(ours, places, m)}
        ways["CuPy's"] = lambda: generic(theirs, places, m)
        report = ", ".join(f"{name} {time_of(action):.3f} ms" for name, action in ways.items())
        report += f"; off by {float(abs(ours - theirs).max() / abs(theirs).max()):.1e}"
    else:
        report = "left out, for want of a GPU"
    print("2048 rows:", report)  # -> ...
