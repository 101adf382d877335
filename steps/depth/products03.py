"""Step products03: Softmax in one kernel, in CUDA C

Step 81b wrote the softmax as one kernel. Here is its text, for one thread a row. The thread goes
over the row three times: for the maximum, for the sum, for the results. Nothing is written but y.

How is it called? The operation calls softmax_forward, a singledispatch (step softmax07), for its
array, and `on_cuda` gives it this body for CuPy's. No operation changes, and the gradient is what
it was: its formula needs only y. What the kernel does not do (other types, another dimension than
the last, no elements) goes to the generic version, which is what `dispatch(object)` finds.

New: softmax_kernel, softmax_on_cuda.
Try: top = 0 in `in_python`, and a row of numbers below -1,000. What would C say, instead of an
error?
"""

import math
from typing import Any

import numpy as np

from tinytorch.cuda.backend import cupy, on_cuda
from tinytorch.kernels.kernel import Kernel
from tinytorch.ops.softmax import softmax_forward

# A thread for each row. It goes over the row three times.
softmax_kernel = Kernel(
    "softmax",
    """
extern "C" __global__ void softmax(const T* x, T* y, long long rows, int columns) {
    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += row * columns;
    y += row * columns;
    T top = x[0], sum = 0;
    for (int j = 0; j < columns; j++) top = x[j] > top ? x[j] : top;
    for (int j = 0; j < columns; j++) sum += exp(x[j] - top);
    for (int j = 0; j < columns; j++) y[j] = exp(x[j] - top) / sum;
}
""",
    ("float32", "float64"),
)


@on_cuda(softmax_forward)
def softmax_on_cuda(x: Any, ctx: Any) -> Any:
    if ctx.dims != (x.ndim - 1,) or not softmax_kernel.fits(x) or not x.size:
        return softmax_forward.dispatch(object)(x, ctx)
    y, columns = cupy.empty(x.shape, x.dtype), x.shape[-1]
    rows = x.size // columns
    blocks = math.ceil(rows / 256)
    softmax_kernel.launch(x.dtype, (blocks,), (256,), x, y, np.int64(rows), np.int32(columns))
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

    from tinytorch.autograd.backward import backward  # noqa: F401  (backward)
    from tinytorch.core.tensor import tensor
    from tinytorch.kernels.simulator import launch
    from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their methods)
    from tinytorch.ops.softmax import softmax

    class Counted(np.ndarray):
        """An array that counts the elements that whole-array operations read and write."""

        moved = 0

        def __array_ufunc__(self, ufunc, method, *inputs, **options):
            inputs = [np.asarray(x) for x in inputs]
            result = getattr(ufunc, method)(*inputs, **options)
            Counted.moved += sum(x.size for x in inputs) + np.size(result)
            return np.asarray(result).view(Counted)

    x = np.random.default_rng(0).standard_normal((100, 1000)).astype(np.float32)
    v = x.view(Counted)
    powers = np.exp(v - v.max(axis=1, keepdims=True))
    powers / powers.sum(axis=1, keepdims=True)
    print(f"times the matrix goes through memory: {Counted.moved / x.size:.0f}")
    # -> times the matrix goes through memory: 8

    with np.errstate(over="ignore", invalid="ignore"):
        row = np.array([1000.0, 999.0, 0.0], np.float32)
        print("without the largest:", np.exp(row) / np.exp(row).sum())
        # -> without the largest: [nan nan  0.]

    # What the text says, thread by thread.
    def in_python(t, x, y, rows, columns):
        row = t.number
        if row >= rows:
            return
        started.append(row)
        places = range(row * columns, (row + 1) * columns)
        top = max(x[place] for place in places)
        total = sum(math.exp(x[place] - top) for place in places)
        for place in places:
            y[place] = math.exp(x[place] - top) / total

    started = []
    logits = tensor([[1000.0, 999.0, 0.0], [1.0, 2.0, 3.0]], requires_grad=True)
    y = on_a_simulated_gpu(lambda: softmax(logits, 1))
    print("simulated:", [round(v, 4) for v in y.tolist()[0]], "rows", sorted(started))
    # -> simulated: [0.7311, 0.2689, 0.0] rows [0, 1]
    print("as the generic one:", np.allclose(y.array, softmax(logits, 1).array))
    # -> as the generic one: True
    (y * tensor([1.0, 0.0, 0.0])).sum().backward()
    print("and its gradient:", [round(v, 4) for v in logits.grad.tolist()[0]])
    # -> and its gradient: [0.1966, -0.1966, 0.0]
    columns = on_a_simulated_gpu(lambda: softmax(logits, 0))
    print("another dimension:", round(columns.tolist()[0][2], 4), "rows", sorted(started))
    # -> another dimension: 0.0474 rows [0, 1]
