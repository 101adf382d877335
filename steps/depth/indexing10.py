"""Step indexing10: nonzero: the places of what is not zero

Which elements of x are larger than 2.5? x > 2.5 has the answer in the shape of x. To go through
them, or to take them out, a program needs their places. `nonzero` finds the elements that are not
0, or are True, and lists their indices: a row for each element, a column for each dimension.

    mask = F F F      nonzero = 1 0
           T T T                1 1
                                1 2

Brackets (step indexing09) take an index tensor for each dimension. These are the columns of the
list, and nonzero(as_tuple=True) returns them: x[nonzero(x > 2.5, as_tuple=True)].

No gradient flows: an index is an integer. It flows through x[...], to the elements taken.

Two rare cases: a tensor without dimensions has one element and no index. So the list has one row of
no columns if the element is not 0, else no row; as a tuple it counts as a tensor of shape [1].

The trap: the result has as many rows as there are elements to find. That number is known only after
the whole tensor has been read; on a GPU, Python has to wait for it.

PyTorch: nonzero; argwhere is a second name. where(mask) is nonzero(as_tuple=True), and since this
step the call in step compare06 works.

New: Nonzero, nonzero.
Try: x[nonzero(x > 9, as_tuple=True)]. Which shape does it have, and what is its sum?
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
from tinytorch.ops.joining import unbind
from tinytorch.ops.shape import flatten
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


class Nonzero(Function):
    """The indices of the elements that are not zero, one in each row. No gradient."""

    differentiable = False

    def forward(ctx, x: Any) -> Any:
        places = ctx.xp.stack(ctx.xp.nonzero(x.reshape(x.shape or (1,))), axis=1)
        return places[:, : x.ndim]


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


@tensor_method("nonzero", "argwhere")
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero: one row for each, or with as_tuple=True one
    tensor for each dimension, which can index x."""
    if as_tuple:
        return unbind(Nonzero.apply(input if input.array.ndim else flatten(input)), 1)
    return Nonzero.apply(input)


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.ops.comparison import where

    x = tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
    mask = x > 2.5
    print("places:", nonzero(mask).tolist())  # -> places: [[1, 0], [1, 1], [1, 2]]
    print("not 0:", nonzero(x)[0].tolist(), "and so on:", nonzero(x).shape)
    # -> not 0: [0, 1] and so on: tinytorch.Size([5, 2])
    rows, columns = nonzero(mask, as_tuple=True)
    print(rows.tolist(), columns.tolist())  # -> [1, 1, 1] [0, 1, 2]
    print("taken:", x[rows, columns].tolist(), x[where(mask)].tolist())
    # -> taken: [3.0, 4.0, 5.0] [3.0, 4.0, 5.0]
    print("gradient:", grad(x[rows, columns].sum(), x)[0].tolist())
    # -> gradient: [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]

    print("none:", nonzero(x > 9).shape, "requires grad:", nonzero(x).requires_grad)
    # -> none: tinytorch.Size([0, 2]) requires grad: False
    print("0-d:", nonzero(tensor(7)).shape, nonzero(tensor(7), as_tuple=True)[0].tolist())
    # -> 0-d: tinytorch.Size([1, 0]) [0]
