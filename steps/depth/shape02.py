"""Step shape02: Transpose, T and mT

Step 69b: a transpose exchanges two strides and moves nothing. Step 37c built it for matrices. Here
`transpose(dim0, dim1)` takes any two dimensions, `.T` is the short form for a matrix, and `.mT`
transposes each matrix of a batch. A swap of two dimensions is its own inverse: the gradient's
dimensions are swapped once more.

The trap: memory is read fast in the order in which it lies. After a transpose, neighbours in a row
are far apart, so an operation that follows may become slower. The work is only put off.

New: Transpose, transpose, and the properties T and mT.
Try: return g.reshape(...) of the right shape from Transpose.backward. Which line notices?
"""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their operators and methods)


class Reshape(Function):
    """y = the elements of x, in their order, in another shape. The gradient gets the old shape.

    A view where the memory allows it, else a copy.
    """

    view = True

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape = x.shape
        return x.reshape(shape)

    def backward(ctx, g: Any) -> Any:
        return g.reshape(ctx.shape)


@tensor_method("reshape")
def reshape(input: Tensor, *sizes: Any) -> Tensor:
    """The elements of `input` in the shape `reshape(2, 3)` or `reshape((2, 3))`.

    One size may be -1: it follows from the others. The result shares the memory of `input` where
    that is possible.
    """
    one = len(sizes) == 1 and isinstance(sizes[0], (tuple, list))
    return Reshape.apply(input, tuple(sizes[0]) if one else sizes)


class Transpose(Function):
    """y = x with two dimensions exchanged: a view. The gradient exchanges them back."""

    view = True

    def forward(ctx, x: Any, dim0: int, dim1: int) -> Any:
        ctx.dims = dim0, dim1
        return x.swapaxes(dim0, dim1)

    def backward(ctx, g: Any) -> Any:
        return g.swapaxes(*ctx.dims)


@tensor_method("transpose", "swapaxes")
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """A view of `input` with `dim0` and `dim1` exchanged."""
    return Transpose.apply(input, dim0, dim1)


@tensor_method("T")
@property
def matrix_transpose(self: Tensor) -> Tensor:
    """The transpose of a matrix."""
    return Transpose.apply(self, 0, 1)


@tensor_method("mT")
@property
def matrices_transpose(self: Tensor) -> Tensor:
    """A batch of matrices, each one transposed: the last two dimensions exchanged."""
    return Transpose.apply(self, -2, -1)


@tensor_method("stride")
def stride(self: Tensor) -> tuple[int, ...]:
    """How many elements of memory lie from one index to the next, for each dimension."""
    return tuple(step // self.array.itemsize for step in self.array.strides)


if __name__ == "__main__":
    import timeit

    import numpy as np

    from tinytorch.autograd.gradcheck import gradgradcheck
    from tinytorch.core.dtype import float64

    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    print("reshape:  ", x.reshape(3, 2).tolist())
    # -> reshape:   [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    print("transpose:", x.T.tolist())  # -> transpose: [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    print("strides:", x.stride(), "of the transpose:", x.T.stride())
    # -> strides: (3, 1) of the transpose: (1, 3)
    print("same memory:", np.shares_memory(x.array, x.T.array))  # -> same memory: True

    # The gradient goes back to where its element stands in x.
    (x.T * tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).sum().backward()
    print("gradient of x:", x.grad.tolist())  # -> gradient of x: [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]

    batch = tensor(np.arange(24.0).reshape(2, 3, 4), dtype=float64, requires_grad=True)
    print("first and last:", batch.transpose(0, 2).shape)
    # -> first and last: tinytorch.Size([4, 3, 2])
    print("each matrix:", batch.mT.shape)  # -> each matrix: tinytorch.Size([2, 4, 3])
    print("to second order:", gradgradcheck(lambda x: x.mT * x.transpose(1, 2), batch))
    # -> to second order: True

    large = tensor(np.zeros((1000, 1000)))
    view_time = min(timeit.repeat(lambda: large.T, number=20))
    copy_time = min(timeit.repeat(lambda: large.T.array.copy("C"), number=20))
    print(f"a million elements: a view takes 1/{copy_time / view_time:.0f} of a copy's time")
    # -> ...
