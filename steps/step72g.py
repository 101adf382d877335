"""Step 72g: Windows that overlap: unfold

A moving average takes the mean of x_0 x_1 x_2, of x_1 x_2 x_3, and so on: a loop with a slice for
each window. But strides are only numbers. With stride 1 in both dimensions each row begins one
place after the row before:

    x = 0 1 2 3 4      shape (3, 3), stride (1, 1) =  0 1 2
                                                      1 2 3
                                                      2 3 4

Nine elements in five places, and nothing is copied. unfold makes such windows along a dimension,
`step` apart; what stands in a window is a new, last dimension.

The way back follows the places: x_2 is in three windows, so three gradients are added up in its
place. Fold does this, one slice for each position in the window. Unfold and Fold are adjoint (step
71), so each is the other's backward.

And a convolution is a product: windows @ weights. Step 50b copied each window for it.

The traps. as_strided checks nothing: wrong strides read memory beside the array. And windows of
size k that are copied, by reshape or contiguous, take k times the memory.

PyTorch: Tensor.unfold. NumPy's safe form is sliding_window_view.

New: Unfold, Fold, unfold.
Try: write = instead of += in Fold. Which lines notice?

In depth: digits01 to digits03, storage01 to storage11, resize01 to resize04, sparse01 to sparse07,
conv01 to conv12, winograd01 to winograd07, convlayers01 to convlayers04, pool01 to pool12,
upsample01 to upsample08, grid01 to grid05.
"""

from numpy.lib.stride_tricks import as_strided

from tinytorch.autograd.backward import grad
from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import tensor, tensor_method
from tinytorch.ops import arithmetic, matmul, reduction, shape, storage  # noqa: F401


class Unfold(Function):
    """y[i, ..., k] = x[i * step + k]: all windows of `size` elements along `dim`, as a view."""

    view = True

    def forward(ctx, x, dim, size, step):
        ctx.call_with = x.shape, dim, size, step
        sizes, strides = list(x.shape), list(x.strides)
        sizes[dim], strides[dim] = (x.shape[dim] - size) // step + 1, x.strides[dim] * step
        return as_strided(x, (*sizes, size), (*strides, x.strides[dim]))

    def backward(ctx, g):
        return ctx.call(Fold, g, *ctx.call_with)


class Fold(Function):
    """The sum of the windows, each in its place: the adjoint of Unfold."""

    def forward(ctx, x, x_shape, dim, size, step):
        ctx.call_with = dim, size, step
        y = ctx.xp.zeros(x_shape, x.dtype)
        along = y.swapaxes(0, dim)  # a view, whose first dimension is dim
        for k in range(size):
            last = k + step * x.shape[dim]  # there are x.shape[dim] windows
            along[k:last:step] += x[..., k].swapaxes(0, dim)
        return y

    def backward(ctx, g):
        return ctx.call(Unfold, g, *ctx.call_with)


@tensor_method("unfold")
def unfold(self, dimension, size, step):
    """All windows of `size` elements, `step` apart, along a dimension; the last one is new."""
    return Unfold.apply(self, dimension, size, step)


if __name__ == "__main__":
    x = tensor([0.0, 1.0, 2.0, 3.0, 4.0], requires_grad=True)
    windows = x.unfold(0, 3, 1)
    print(windows.tolist())  # -> [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    print(windows.stride(), windows.data_ptr() == x.data_ptr())  # -> (1, 1) True
    print("moving average:", windows.mean(1).tolist())  # -> moving average: [1.0, 2.0, 3.0]
    print("how often read:", grad(windows.sum(), x)[0].tolist())
    # -> how often read: [1.0, 2.0, 3.0, 2.0, 1.0]

    # A convolution is a product: where does the signal rise, where does it fall?
    signal = tensor([0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    print((signal.unfold(0, 2, 1) @ tensor([-1.0, 1.0])).tolist())
    # -> [0.0, 1.0, 0.0, 0.0, -1.0]

    z = tensor([[0.3, -1.2, 2.0, 0.5], [0.1, -0.7, 1.5, 0.9]], dtype=float64, requires_grad=True)
    for f in (lambda z: (z * z).unfold(1, 2, 2), lambda z: (z * z).unfold(1, 3, 1)):
        print(gradcheck(f, (z,), raise_exception=False), gradgradcheck(f, (z,)))
        # -> True True
        # -> True True
