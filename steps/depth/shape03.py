"""Step shape03: view and contiguous

Steps 69c and 69e have shown where a view is not possible, and PyTorch's two answers: `view` raises
an error, `reshape` copies.

`view` here need not work out from the strides what is possible. It lets reshape do its work and
asks whether the result shows x's memory: only then it has a base (step 67a).

`contiguous()` is x itself if its elements lie row by row without gaps, else a copy.

The trap: contiguity comes and goes with the data. x.T.view(6) fails; but if x has one row only, the
transpose is contiguous, and the same line works. Code that calls view passes on small examples.

New: view, is_contiguous, contiguous.
Try: let contiguous return a clone always. Which line of the demo notices?
"""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their operators and methods)
from tinytorch.ops.conversion import Clone


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


@tensor_method("view")
def view(self: Tensor, *sizes: Any) -> Tensor:
    """`reshape` that never copies.

    Raises:
        RuntimeError: the new shape does not fit the memory.
    """
    out = reshape(self, *sizes)
    if out._base is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return out


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


@tensor_method("is_contiguous")
def is_contiguous(self: Tensor) -> bool:
    """Whether the elements lie in memory row by row, without gaps."""
    return self.array.flags.c_contiguous


@tensor_method("contiguous")
def contiguous(input: Tensor) -> Tensor:
    """The tensor itself if it is contiguous, else a copy that is."""
    return input if is_contiguous(input) else Clone.apply(input, "C")


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad

    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    x.T.reshape(6).mul_(2.0)
    print("not doubled:", x.tolist())  # -> not doubled: [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    try:
        x.T.view(6)
    except RuntimeError as error:
        print(str(error).partition(" (")[0])
        # -> view size is not compatible with input tensor's size and stride
    x.view(6).mul_(2.0)
    print("doubled:", x.tolist())  # -> doubled: [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]

    print("contiguous:", x.is_contiguous(), x.T.is_contiguous())  # -> contiguous: True False
    copy = x.T.contiguous()
    print("strides:", x.T.stride(), "of the copy:", copy.stride())
    # -> strides: (1, 3) of the copy: (2, 1)
    print("read in order:", copy.view(6).tolist())
    # -> read in order: [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]
    print("no copy where none is needed:", x.contiguous() is x)
    # -> no copy where none is needed: True

    # A single row: here the transpose is contiguous.
    print("of one row:", tensor([[1.0, 2.0]]).T.view(2).tolist())  # -> of one row: [1.0, 2.0]

    # Copied or not, the gradient goes back to where its element stands in x.
    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    g = tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    print("gradient:", grad(x.T.contiguous().view(6), x, g)[0].tolist())
    # -> gradient: [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
