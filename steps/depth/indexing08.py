"""Step indexing08: Brackets of integers, slices, None and ... are views

Step 70a has shown what these keys mean: another start and other strides, so the result is a view.
Slice of step parts01 makes it. What is new is as_item, which checks and converts each item of the
key.

Two traps. x[1, 2] of an array is a number in NumPy, a copy; with `...` at the end of the key it is
an array of no dimensions, a view. And x[::-1] would need a negative stride, which tensors do not
have, as in PyTorch: write x.flip(0).

With __getitem__ Python can also answer `4 in x`: it compares 4 with x[0], x[1], ... Those are rows,
not elements, and a row of answers is neither true nor false. So __contains__ is defined, too.

New: as_item, getitem, contains. (Index returns in step indexing09.)
Try: leave the `...` out of getitem, and write into x[1, 2].
"""

import functools
import math
import operator
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.device import device_of
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, comparison, reduction  # noqa: F401  (their methods)
from tinytorch.ops.slicing import Slice


@functools.singledispatch
def add_at(array: Any, rows: Any, values: Any) -> None:
    """array[rows[i]] += values[i] for every i, in place; a row that occurs twice gets both.

    array is contiguous, (n, width); rows are integers, (m,), in 0..n-1; values are (m, width).
    `array[rows] += values` would keep only the last of several values for one row.
    """
    xp, width = device_of(array).xp, array.shape[1]
    if width != 1:  # in one dimension ufunc.at is fastest
        rows = (rows[:, None] * width + xp.arange(width)).reshape(-1)
    xp.add.at(array.reshape(-1), rows, values.reshape(-1))


def key_at(dims: tuple[int, ...], indices: tuple) -> tuple:
    """The key with indices[i] at dimension dims[i], and `:` at the others."""
    key = [slice(None)] * (dims[-1] + 1)
    for dim, index in zip(dims, indices, strict=True):
        key[dim] = index
    return tuple(key)


class Index(Function):
    """y = x[key] with arrays of integers in the key, at the dimensions `dims` (in rising order).

    Without `dims` there is one array, of positions in the flattened x. An element that is chosen
    twice gets both gradients: they are added up.
    """

    def forward(ctx, x: Any, dims: tuple[int, ...], *indices: Any) -> Any:
        ctx.shape, ctx.dims = x.shape, dims
        ctx.save_for_backward(*indices)
        ctx.saves = range(2, 2 + len(indices))
        try:
            if not dims or (len(dims) == 1 and x.flags.c_contiguous):
                axis = dims[0] if dims else None
                return x.take(indices[0], axis=axis)  # three times as fast as x[key]
            return ctx.xp.asarray(x[key_at(dims, indices)], order="C")
        except IndexError as error:
            raise IndexError(str(error).replace("axis", "dimension")) from None

    def backward(ctx, g: Any) -> Any:
        return ctx.call(AddIndex, g, ctx.shape, ctx.dims, *ctx.saved)


class AddIndex(Function):
    """y = zeros of a shape, with x added at y[key]: the adjoint of `Index`, a scatter-add."""

    def forward(ctx, x: Any, shape: tuple, dims: tuple[int, ...], *indices: Any) -> Any:
        xp, ctx.dims = ctx.xp, dims
        ctx.save_for_backward(*indices)
        ctx.saves = range(3, 3 + len(indices))
        whole = shape
        if not dims:
            shape, dims = (math.prod(shape),), (0,)
        # To the form out[rows] += x: the indexed dimensions come to the front and become one.
        n, last = len(dims), dims[-1]
        rows = xp.ravel_multi_index(indices, tuple(shape[dim] for dim in dims), mode="wrap")
        if last >= n > last - dims[0]:  # side by side; else NumPy has put them in front already
            places = range(rows.ndim)
            x = xp.moveaxis(x, [dims[0] + place for place in places], list(places))
        order = (*dims, *(dim for dim in range(len(shape)) if dim not in dims))
        sizes = [shape[dim] for dim in order]
        out = xp.zeros((math.prod(sizes[:n]), math.prod(sizes[n:])), x.dtype)
        add_at(out, rows.reshape(-1), x.reshape(rows.size, out.shape[1]))
        if last < n:  # in front in y too
            return out.reshape(whole)
        return xp.transpose(out.reshape(sizes), [order.index(dim) for dim in range(len(shape))])

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Index, g, ctx.dims, *ctx.saved)


def as_item(item: Any) -> Any:
    """One item of a key as an int, slice, None or ...

    Raises:
        IndexError: the item cannot index.
        ValueError: a step is below 1, which would need a copy.
    """
    if item is None or item is ...:
        return item
    if isinstance(item, slice):
        parts = [p if p is None else operator.index(p) for p in (item.start, item.stop, item.step)]
        if parts[2] is not None and parts[2] < 1:
            raise ValueError("step must be greater than zero")
        return slice(*parts)
    if hasattr(item, "__index__"):
        return operator.index(item)
    raise IndexError(f"only int, slice, ... or None can index, not {item!r}")


@tensor_method("__getitem__")
def getitem(self: Tensor, key: Any) -> Tensor:
    """x[key] for integers, slices, None, ..., and tuples of them: a view.

    Raises:
        IndexError: there is no such element, or the key cannot index.
    """
    items = [as_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    return Slice.apply(self, tuple(items) if ... in items else (*items, ...))


@tensor_method("__contains__")
def contains(self: Tensor, element: Any) -> bool:
    """Whether an element of the tensor equals `element`, a number or a tensor."""
    if not isinstance(element, (Tensor, int, float, np.generic)):
        raise RuntimeError(f"in: a tensor contains only numbers, not a {type(element).__name__}")
    return bool((self.array == getattr(element, "array", element)).any())


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad

    x = tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
    print("row:", x[1].tolist(), "column:", x[:, -1].tolist(), "element:", x[1, 2].item())
    # -> row: [3.0, 4.0, 5.0] column: [2.0, 5.0] element: 5.0
    print("every other:", x[:, ::2].tolist(), "new dimension:", x[..., None].shape)
    # -> every other: [[0.0, 2.0], [3.0, 5.0]] new dimension: tinytorch.Size([2, 3, 1])
    print("by a tensor without dimensions:", x[tensor(0), tensor(1) :].tolist())
    # -> by a tensor without dimensions: [1.0, 2.0]
    print("gradient:", grad(x[1, 1:].sum(), x)[0].tolist())
    # -> gradient: [[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]

    # Views: what is written into one shows in y.
    y = tensor([[1.0, 2.0], [3.0, 4.0]])
    y[1].mul_(10.0)
    y[0, 1].add_(0.5)
    print("through the views:", y.tolist())  # -> through the views: [[1.0, 2.5], [30.0, 40.0]]
    print("NumPy's y[0, 1]:", type(y.array[0, 1]).__name__, "with ...:", y.array[0, 1, ...].shape)
    # -> NumPy's y[0, 1]: float32 with ...: ()

    for wrong in ("x[2]", "x[0, 0, 0]", "x[::-1]", "x[1.0]"):
        try:
            eval(wrong)
        except (IndexError, ValueError) as error:
            print(f"{wrong}: {type(error).__name__}: {error}")
    # -> x[2]: IndexError: index 2 is out of bounds for dimension 0 with size 2
    # -> x[0, 0, 0]: IndexError: too many indices for tensor: tensor is 2-dimensional, but 3 ...
    # -> x[::-1]: ValueError: step must be greater than zero
    # -> x[1.0]: IndexError: only int, slice, ... or None can index, not 1.0

    print("in:", 4 in x, 9 in x)  # -> in: True False
    try:
        any(row == 4 for row in x)  # what Python would do
    except RuntimeError as error:
        print("by rows:", error)
        # -> by rows: Boolean value of Tensor with more than one value is ambiguous
    try:
        print("4" in x)
    except RuntimeError as error:
        print(error)  # -> in: a tensor contains only numbers, not a str
