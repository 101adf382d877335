"""Step shape01: Reshape in the package's dress

Step 69e has shown that a new shape of the same memory is a view: new strides, and no element is
moved. Step 37b built the operation and its gradient, which gets the old shape back. Here it says
`view = True`, which is all that an operation has to say to be one: the graph follows writes (steps
67a and 67b).

`stride()` counts in elements, as PyTorch does; NumPy counts in bytes.

The trap: one size may be -1 and follows from the others. It follows also if you have miscounted the
others: x.reshape(-1, 2) is three rows, not two, and nothing complains.

Changed: Reshape, reshape. New: stride.
Try: return g as it is from Reshape.backward. The gradient in the last line fails.
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


@tensor_method("stride")
def stride(self: Tensor) -> tuple[int, ...]:
    """How many elements of memory lie from one index to the next, for each dimension."""
    return tuple(step // self.array.itemsize for step in self.array.strides)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad
    from tinytorch.ops.softmax import softmax

    # Softmax of a matrix: each column sums to 1, or each row. All six together need one row.
    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    print("columns:", softmax(x, 0).sum().item())  # -> columns: 3.0
    print("all:", round(softmax(x.reshape(6), 0).sum().item(), 6))  # -> all: 1.0

    row = x.reshape(6)
    print(
        "strides:", x.stride(), "in bytes", x.array.strides
    )  # -> strides: (3, 1) in bytes (12, 4)
    print("of the row:", row.stride())  # -> of the row: (1,)
    print("same memory:", np.shares_memory(x.array, row.array))  # -> same memory: True
    memory, (down, right) = row.tolist(), x.stride()
    print("x[1, 2] is", memory[1 * down + 2 * right])  # -> x[1, 2] is 6.0
    print("three rows:", x.reshape((-1, 2)).tolist())
    # -> three rows: [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]

    # A write into a view is a write into its base, and y's gradient knows that it was doubled.
    y = x * 1.0
    y.reshape(6).mul_(2.0)
    print("y:", y.tolist())  # -> y: [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]
    print("gradient:", grad(y.sum(), x)[0].tolist())
    # -> gradient: [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]
