"""Step indexing09: Brackets: lists and tensors of integers

x[[1, 0, 1]] fails: step indexing08 knows only items that make a view. A list of rows in any order
is a choice, a copy; Index of step indexing04 makes it. A key may mix both kinds, x[0, :, [1, 2]],
so it is taken apart:

    1. a view by integers, slices, None, ...      x[0]            Slice
    2. a choice from this view                    [:, [1, 2]]     Index at dimension 1

parse_key returns the key of the view, in which a list is a `:`, and the lists as tensors, with the
dimensions where they stand in the view. In x[0, :, [1, 2]] the 0 is taken first, and its dimension
is gone: in the view x[0] the list stands at dimension 1, not at 2.

The order matters, and here PyTorch and NumPy differ: for x of shape [2, 3, 4], x[0, :, [1, 2]] is
x[0][:, [1, 2]] of shape [3, 2] here. NumPy treats the 0 as a list of one index. A `:` stands
between the two lists, so NumPy puts the chosen dimension in front (step indexing04): [2, 3].

The trap: x[1] is a view and x[[1]] is a copy. A write into the view changes x, a write into the
copy does not.

A list that holds more than numbers is read as a tuple: x[[[1, 0], [2, 0]]] is x[[1, 0], [2, 0]].
PyTorch does so too, but warns that this will change: write the tuple.

Changed: as_item, getitem. New: parse_key.
Try: count all items of `basic` for the place of a list. At which line does the demo fail?
"""

import functools
import math
import operator
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.device import device_of
from tinytorch.core.dtype import int32, int64
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


def as_item(item: Any, x: Tensor) -> Any:
    """One item of a key as an int, slice, None, ..., or a tensor of integers.

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
    if isinstance(item, (list, tuple, range, np.ndarray, str)):
        item = tensor(item, dtype=int64 if np.size(item) == 0 else None)
    if isinstance(item, Tensor):
        if item.dtype not in (int64, int32):
            raise IndexError(f"tensors used as indices must be long or int, not {item.dtype}")
        if item.array.ndim:
            return item if item.device is x.device else item.to(x.device)
    if hasattr(item, "__index__"):
        return operator.index(item)
    raise IndexError(f"only int, slice, ..., None, list or tensor can index, not {item!r}")


def parse_key(x: Tensor, key: Any) -> tuple[tuple, tuple[int, ...], list[Tensor]]:
    """x[key] as two steps: a basic key, which makes a view, and tensors at dimensions of the view.

    An integer belongs to the first step: x[0, :, [1, 2]] is x[0][:, [1, 2]].
    """
    if isinstance(key, list) and not all(map(np.isscalar, key)):
        key = tuple(key)  # PyTorch reads a list as a tuple if it holds more than numbers
    items = [as_item(item, x) for item in (key if isinstance(key, tuple) else (key,))]
    rest = x.array.ndim - sum(item is not ... and item is not None for item in items)
    if rest < 0:
        raise IndexError(f"too many indices for tensor of dimension {x.array.ndim}")
    basic, dims, indices = [], [], []
    for item in items:
        if item is ...:
            basic += [slice(None)] * rest
            rest = 0
        elif isinstance(item, Tensor):
            dims.append(sum(part.__class__ is not int for part in basic))  # its place in the view
            indices.append(item)
            basic.append(slice(None))
        else:
            basic.append(item)
    return (*basic, ...), tuple(dims), indices


@tensor_method("__getitem__")
def getitem(self: Tensor, key: Any) -> Tensor:
    """x[key] for integers, slices, None, ..., lists, tensors of integers, and tuples.

    Without lists and tensors the result is a view.

    Raises:
        IndexError: there is no such element, or the key cannot index.
    """
    basic, dims, indices = parse_key(self, key)
    view = Slice.apply(self, basic)
    return Index.apply(view, dims, *indices) if dims else view


@tensor_method("__contains__")
def contains(self: Tensor, element: Any) -> bool:
    """Whether an element of the tensor equals `element`, a number or a tensor."""
    if not isinstance(element, (Tensor, int, float, np.generic)):
        raise RuntimeError(f"in: a tensor contains only numbers, not a {type(element).__name__}")
    return bool((self.array == getattr(element, "array", element)).any())


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad

    x = tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
    print("rows:", x[[1, 0, 1]].tolist())
    # -> rows: [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    print("columns:", x[:, [2, 0]].tolist(), "elements:", x[[1, 0, 1], tensor([2, 0, 2])].tolist())
    # -> columns: [[2.0, 0.0], [5.0, 3.0]] elements: [5.0, 0.0, 5.0]
    print("gradient:", grad(x[[1, 0, 1], 1:].sum(), x)[0].tolist())
    # -> gradient: [[0.0, 1.0, 1.0], [0.0, 2.0, 2.0]]
    print("a list of lists:", x[[[1, 0], [2, 0]]].tolist())  # -> a list of lists: [5.0, 0.0]
    print("views as before:", x[..., -1, None].tolist())  # -> views as before: [[2.0], [5.0]]
    print("no rows:", x[[]].shape)  # -> no rows: tinytorch.Size([0, 3])

    # A key in two steps.
    cube = tensor(np.arange(24.0).reshape(2, 3, 4))
    print("here:", cube[0, :, [1, 2]].shape, "NumPy:", cube.array[0, :, [1, 2]].shape)
    # -> here: tinytorch.Size([3, 2]) NumPy: (2, 3)
    basic, dims, indices = parse_key(cube, (0, ..., [1, 2]))
    print("view:", basic)
    # -> view: (0, slice(None, None, None), slice(None, None, None), Ellipsis)
    print("then:", dims, [index.tolist() for index in indices])  # -> then: (1,) [[1, 2]]

    # A view and a copy: only the first write changes y.
    y = tensor([[1.0, 2.0], [3.0, 4.0]])
    y[1].mul_(10.0)
    y[[0]].mul_(10.0)
    print("through the view only:", y.tolist())
    # -> through the view only: [[1.0, 2.0], [30.0, 40.0]]

    for wrong in ("x[[0], 0, 0]", "x[[2]]", "x[[0.5]]", "x[1.0]"):
        try:
            eval(wrong)
        except IndexError as error:
            print(f"{wrong}: {error}")
    # -> x[[0], 0, 0]: too many indices for tensor of dimension 2
    # -> x[[2]]: index 2 is out of bounds for dimension 0 with size 2
    # -> x[[0.5]]: tensors used as indices must be long or int, not tinytorch.float32
    # -> x[1.0]: only int, slice, ..., None, list or tensor can index, not 1.0
