"""Step shape04: Permute and movedim in the package's dress

Step 50b built permute, and its gradient: the inverse permutation. Here it is a view, checks come
later in this run, and T reverses all dimensions, as PyTorch's does. (PyTorch warns if there are
more than two: for a batch of matrices mT is meant, step shape02, and permute says the rest.)

movedim says only what moves, and keeps the rest in order: x.movedim(-1, 0) puts the last dimension
first.

The trap: for one swap, such as (1, 0, 2), the inverse is the permutation itself. Code that forgets
to invert passes such a test; (2, 0, 1) finds it.

Changed: T reverses all dimensions. New: Permute, permute, movedim.
Try: let Permute.backward use ctx.dims itself. The swap still passes, and the cycle fails.
"""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, reduction  # noqa: F401  (their operators and methods)
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.conversion import Clone
from tinytorch.ops.dims import normalize_dims


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


class Permute(Function):
    """y = x, its dimensions in the order `dims`: a view. The gradient gets the old order back."""

    view = True

    def forward(ctx, x: Any, dims: tuple[int, ...]) -> Any:
        ctx.dims = dims
        return x.transpose(dims)

    def backward(ctx, g: Any) -> Any:
        back = sorted(range(len(ctx.dims)), key=ctx.dims.__getitem__)
        return ctx.call(Permute, g, tuple(back))


@tensor_method("permute")
def permute(input: Tensor, *sizes: Any) -> Tensor:
    """A view of `input` with its dimensions in another order: `x.permute(2, 0, 1)`."""
    return Permute.apply(input, normalize_dims(as_shape(sizes), input.array.ndim))


@tensor_method("T")
@property
def matrix_transpose(self: Tensor) -> Tensor:
    """The tensor with its dimensions in reverse order; for a matrix its transpose."""
    if self.array.ndim == 2:
        return Transpose.apply(self, 0, 1)
    return Permute.apply(self, tuple(reversed(range(self.array.ndim))))


@tensor_method("mT")
@property
def matrices_transpose(self: Tensor) -> Tensor:
    """A batch of matrices, each one transposed: the last two dimensions exchanged."""
    return Transpose.apply(self, -2, -1)


@tensor_method("movedim")
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """A view with the dimensions `source` moved to `destination`, the others in order."""
    ndim = input.array.ndim
    source, destination = normalize_dims(source, ndim), normalize_dims(destination, ndim)
    order = [dim for dim in range(ndim) if dim not in source]
    for place, dim in sorted(zip(destination, source, strict=True)):
        order.insert(place, dim)
    return Permute.apply(input, tuple(order))


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
    import numpy as np

    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64

    numbers = np.arange(24.0).reshape(2, 4, 3)  # 2 rows, 4 columns, 3 colours
    picture = tensor(numbers, dtype=float64, requires_grad=True)
    print("colours first:", picture.permute(2, 0, 1).shape, picture.permute(2, 0, 1).stride())
    # -> colours first: tinytorch.Size([3, 2, 4]) (1, 12, 3)
    same = picture.transpose(0, 2).transpose(1, 2)
    print("by two exchanges:", (same.array == picture.permute((2, 0, 1)).array).all())
    # -> by two exchanges: True
    print("moved:", picture.movedim(-1, 0).shape, picture.movedim((0, 1), (2, 1)).shape)
    # -> moved: tinytorch.Size([3, 2, 4]) tinytorch.Size([3, 4, 2])
    print("T reverses:", picture.T.shape, "of a matrix:", picture.permute(2, 1, 0).sum(2).T.shape)
    # -> T reverses: tinytorch.Size([3, 4, 2]) of a matrix: tinytorch.Size([4, 3])

    # The gradient of each element goes home.
    print("a swap:", gradcheck(lambda x: x.permute(1, 0, 2), picture))  # -> a swap: True
    print("a cycle:", gradcheck(lambda x: x.permute(2, 0, 1), picture))  # -> a cycle: True
    print(
        "to second order:", gradgradcheck(lambda x: x.permute(2, 0, 1) * x.movedim(2, 0), picture)
    )
    # -> to second order: True
