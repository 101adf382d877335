"""Step products05: Warp shuffles instead of barriers

A row of 10 takes 256 threads, of which 246 have nothing to do, and 20 barriers, at each of which 8
warps wait for the slowest. For a short row the waiting is all that the kernel does.

Threads of one warp need no barrier among themselves: one can read another's register, and the
exchange itself brings them together. __shfl_xor_sync(mask, value, k) gives each thread the value of
the thread whose number differs from its own in the bit k. After 16, 8, 4, 2 and 1, all 32 have
combined all 32 values:

    thread   0  1  2  3      k = 2: 0+2 1+3 2+0 3+1      k = 1: each has 0+1+2+3

Now only the warps have to meet: each writes one number to shared memory, barrier, and every thread
combines these (8 at most) for itself. The second barrier is that of step products04. So a call of
`combined` has 2 barriers instead of 10.

The mask 0xffffffff says which threads take part: all 32. The trap is to leave some out: a warp
whose threads do not all come to the exchange hangs or reads nonsense, as at a barrier. So a block
always has whole warps, and threads without columns come along. (Until 2017 the threads of a warp
ran in step, and old code relies on that. Now each has its own place in the program, and without the
exchange nothing says that they are equally far.)

How many warps? One for each 128 columns, at most 8: each thread should have a few columns, or the
combining costs more than it shares out.

Changed: softmax_kernel, softmax_on_cuda.
Try: start with k = 8 in `combined` of the demo. What has each half of a warp found?
"""

import math
from typing import Any

import numpy as np

from tinytorch.cuda.backend import cupy, on_cuda
from tinytorch.kernels.kernel import Kernel
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


if __name__ == "__main__":

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

    from tinytorch.core.tensor import tensor
    from tinytorch.kernels.simulator import launch
    from tinytorch.ops.softmax import softmax

    # An exchange inside of a warp, simulated with the launch's barrier; a GPU needs none for it.
    def exchanged(t, value, k):
        t.shared["register", t.threadIdx.x] = value
        yield
        other = t.shared["register", t.threadIdx.x ^ k]
        yield
        return other

    def combined(t, value, largest):
        own, both = t.threadIdx.x, max if largest else lambda a, b: a + b
        for k in (16, 8, 4, 2, 1):
            value = both(value, (yield from exchanged(t, value, k)))
        if own % 32 == 0:
            t.shared[own // 32] = value
        barriers[t.number] = barriers.get(t.number, 0) + 2
        yield
        value = t.shared[0]
        for warp in range(1, t.blockDim.x // 32):
            value = both(value, t.shared[warp])
        yield
        return value

    def in_python(t, x, y, columns):
        first = t.blockIdx.x * columns
        mine = range(first + t.threadIdx.x, first + columns, t.blockDim.x)
        top = max([x[first], *(x[place] for place in mine)])
        top = yield from combined(t, top, True)
        total = sum(math.exp(x[place] - top) for place in mine)
        total = yield from combined(t, total, False)
        for place in mine:
            y[place] = math.exp(x[place] - top) / total

    rng = np.random.default_rng(0)
    for shape in ((8, 10), (3, 700)):
        barriers = {}
        x = tensor(rng.standard_normal(shape).astype(np.float32))
        y = on_a_simulated_gpu(lambda x=x: softmax(x, 1))
        same = np.allclose(y.array, softmax(x, 1).array, atol=1e-6)
        print(
            f"{shape}: {same}, threads {len(barriers)}, barriers of each {set(barriers.values())}"
        )
        # -> (8, 10): True, threads 256, barriers of each {4}
        # -> (3, 700): True, threads 576, barriers of each {4}

    if cupy is not None and cupy.cuda.is_available():
        m = cupy.random.standard_normal((2048, 2048), dtype=cupy.float32)
        t = tensor(cupy.asnumpy(m), device="cuda")

        def in_five_steps():
            powers = cupy.exp(m - m.max(axis=1, keepdims=True))
            return powers / powers.sum(axis=1, keepdims=True)

        ways = {"one kernel": lambda: softmax(t, 1), "CuPy's five": in_five_steps}
        ways["copy, the limit"] = m.copy
        report = ", ".join(f"{name} {time_of(action):.3f} ms" for name, action in ways.items())
    else:
        report = "left out, for want of a GPU"
    print("2048 x 2048:", report)  # -> ...
