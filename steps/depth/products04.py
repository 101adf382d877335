"""Step products04: Softmax with a block for each row

A thread for each row has two faults. A matrix of 8 rows keeps 8 threads busy, on a GPU that has
room for 200,000. And the threads of a warp read 32 different rows at the same time, places that are
far apart: the demo counts 32 sectors in each turn, where 4 would do (step kernel02).

So a row becomes the work of a block. Thread t takes the columns t, t + 256, t + 512, ..., and the
threads of a warp read neighbours. But now each thread knows only the largest of its own columns,
and all need the largest of the row. `combined` makes one number of 256 in shared memory, by the
halving of step kernel04:

    found[t] = own;  barrier;  the lower half of the threads takes over the upper half;  ...

The same function serves the largest and the sum. All threads come along to every barrier, and leave
with the number in found[0].

The trap is the last barrier. `combined` is called twice. A thread that is quick writes its part of
the sum into found[0], while a slow one has not read the maximum there yet.

A thread that has no column (a row of 10, say) starts from a number of the row, x[0], for the
largest, and from 0 for the sum: it changes neither. (PyTorch's softmax kernel for long rows has
this form, too.)

Changed: softmax_kernel, softmax_on_cuda.
Try: take the last `yield` out of `combined` in the demo. Which threads take the wrong maximum?
"""

from typing import Any

import numpy as np

from tinytorch.cuda.backend import cupy, on_cuda
from tinytorch.kernels.kernel import Kernel
from tinytorch.ops.softmax import softmax_forward

# A block for each row. A thread takes every blockDim.x-th element; `combined` makes one number of
# the threads' numbers, in rounds: half of the threads take over those of the other half.
softmax_kernel = Kernel(
    "softmax",
    """
__device__ T combined(T value, bool largest) {
    __shared__ T found[256];
    found[threadIdx.x] = value;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            T own = found[threadIdx.x], other = found[threadIdx.x + half];
            found[threadIdx.x] = largest ? (other > own ? other : own) : own + other;
        }
    }
    __syncthreads();
    value = found[0];
    __syncthreads();  // no thread writes the next number before all have read this one
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
    softmax_kernel.launch(x.dtype, (x.size // columns,), (256,), x, y, np.int32(columns))
    return y


if __name__ == "__main__":
    import math

    def simulated(grid, block, args):
        flat = (x.reshape(-1) if isinstance(x, np.ndarray) else x for x in args)
        launch(in_python, grid, block, *flat)

    def on_a_simulated_gpu(action):
        """With NumPy for CuPy, and in_python for the compiled kernel."""
        global cupy
        kept, cupy = cupy, np
        softmax_forward.register(np.ndarray, softmax_on_cuda)
        softmax_kernel.compiled["float32"] = simulated
        try:
            return action()
        finally:
            cupy = kept
            softmax_forward.register(np.ndarray, softmax_forward.dispatch(object))
            softmax_kernel.compiled.clear()

    from tinytorch.core.tensor import tensor
    from tinytorch.kernels.simulator import launch
    from tinytorch.ops.softmax import softmax

    def sectors(places):
        """How many sectors of 32 bytes hold the floats at these places."""
        return len({4 * place // 32 for place in places})

    columns = 1000
    by_thread, by_block = [], []
    launch(lambda t: by_thread.append(t.number * columns), 1, 32)  # step products03, column 0
    launch(lambda t: by_block.append(t.threadIdx.x), 1, 32)
    print("sectors that a warp reads at once:", sectors(by_thread), "or", sectors(by_block))
    # -> sectors that a warp reads at once: 32 or 4

    # What the text says, thread by thread. `yield from` is a call of a function that has barriers.
    def combined(t, value, largest):
        found, own = t.shared, t.threadIdx.x
        found[own] = value
        half = t.blockDim.x // 2
        while half:
            yield
            if own < half:
                pair = found[own], found[own + half]
                found[own] = max(pair) if largest else sum(pair)
            half //= 2
        yield
        value = found[0]
        yield
        return value

    def in_python(t, x, y, columns):
        first = t.blockIdx.x * columns
        mine = range(first + t.threadIdx.x, first + columns, t.blockDim.x)
        busy.add(t.number)
        top = max([x[first], *(x[place] for place in mine)])
        top = yield from combined(t, top, True)
        total = sum(math.exp(x[place] - top) for place in mine)
        total = yield from combined(t, total, False)
        for place in mine:
            y[place] = math.exp(x[place] - top) / total

    busy = set()
    rng = np.random.default_rng(0)
    for shape in ((8, 10), (3, 700)):
        x = tensor(rng.standard_normal(shape).astype(np.float32))
        y = on_a_simulated_gpu(lambda x=x: softmax(x, 1))
        print(shape, "as the generic one:", np.allclose(y.array, softmax(x, 1).array, atol=1e-6))
        # -> (8, 10) as the generic one: True
        # -> (3, 700) as the generic one: True
    print("threads for 8 rows:", len(busy))  # -> threads for 8 rows: 2048
    halves = tensor(rng.standard_normal((2, 4)).astype(np.float16))
    busy.clear()
    on_a_simulated_gpu(lambda: softmax(halves, 1))
    print("float16 takes the generic version:", busy)  # -> float16 takes the generic version: set()
