"""Step indexing11: Masks as items of a key

Step 70c: a mask is a list of indices. So a mask of n dimensions stands for n tensors of integers,
those of `nonzero` (step indexing10), and parse_key puts them in its place. The rest is step
indexing09, gradients included. Only the count of dimensions changes: an item may stand for several
dimensions (its width), or for none, as True does.

(What step indexing09 does with x[True] is wrong: for Python True is the number 1, so it is x[1],
without an error.)

The trap: a mask must have the shape of the dimensions that it stands for. It is not broadcast. And
x[mask] has as many elements as the mask has true ones, a number that is known late (step
indexing10). The shape of masked_fill, step gather05, is known.

Changed: as_item, parse_key. New: mask_to_indices.
Try: let mask_to_indices return the places of a mask without `unbind`, as one index. Which line of
the demo fails first?
"""

import functools
import math
import operator
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.device import device_of
from tinytorch.core.dtype import bool_, int32, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import arithmetic, comparison, reduction  # noqa: F401  (their methods)
from tinytorch.ops.joining import unbind
from tinytorch.ops.shape import Reshape, flatten
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


def as_item(item: Any, x: Tensor) -> tuple[Any, int]:
    """One item of a key as an int, slice, None, ..., or a tensor of integers or booleans; and the
    number of dimensions that it takes.

    Raises:
        IndexError: the item cannot index.
        ValueError: a step is below 1, which would need a copy.
    """
    if item is None or item is ...:
        return item, 0
    if isinstance(item, slice):
        parts = [p if p is None else operator.index(p) for p in (item.start, item.stop, item.step)]
        if parts[2] is not None and parts[2] < 1:
            raise ValueError("step must be greater than zero")
        return slice(*parts), 1
    if isinstance(item, (bool, np.bool_, list, tuple, range, np.ndarray, str)):
        item = tensor(item, dtype=int64 if np.size(item) == 0 else None)
    if isinstance(item, Tensor):
        if item.dtype not in (int64, int32, bool_):
            raise IndexError(f"tensors used as indices must be long, int or bool, not {item.dtype}")
        if item.array.ndim or item.dtype is bool_:
            item = item if item.device is x.device else item.to(x.device)
            return item, item.array.ndim if item.dtype is bool_ else 1
    if hasattr(item, "__index__"):
        return operator.index(item), 1
    raise IndexError(f"only int, slice, ..., None, list or tensor can index, not {item!r}")


def mask_to_indices(mask: Tensor, x: Tensor, dim: int) -> tuple[Tensor, ...]:
    """Where the mask is true, as one tensor of integers for each of its dimensions.

    Raises:
        IndexError: the mask does not have the shape of x from dimension `dim` on.
    """
    shape, expected = mask.array.shape, x.array.shape[dim : dim + mask.array.ndim]
    if shape != expected:
        raise IndexError(
            f"The shape of the mask {list(shape)} at index {dim} does not match the shape of the "
            f"indexed tensor {list(x.array.shape)} at index {dim}"
        )
    return unbind(Nonzero.apply(mask if shape else Reshape.apply(mask, (1,))), 1)


def parse_key(x: Tensor, key: Any) -> tuple[tuple, tuple[int, ...], list[Tensor]]:
    """x[key] as two steps: a basic key, which makes a view, and tensors at dimensions of the view.

    An integer belongs to the first step: x[0, :, [1, 2]] is x[0][:, [1, 2]]. A mask becomes the
    indices where it is true.
    """
    if isinstance(key, list) and not all(map(np.isscalar, key)):
        key = tuple(key)  # PyTorch reads a list as a tuple if it holds more than numbers
    items = [as_item(item, x) for item in (key if isinstance(key, tuple) else (key,))]
    rest = x.array.ndim - sum(width for _, width in items)
    if rest < 0:
        raise IndexError(f"too many indices for tensor of dimension {x.array.ndim}")
    dim, basic, dims, indices = 0, [], [], []
    for item, width in items:
        if item is ...:
            basic += [slice(None)] * rest
            dim, rest = dim + rest, 0
        elif isinstance(item, Tensor):
            place = sum(part.__class__ is not int for part in basic)  # where it stands in the view
            found = mask_to_indices(item, x, dim) if item.dtype is bool_ else (item,)
            dims += range(place, place + len(found))
            indices += found
            basic += [slice(None)] * width or [None]
        else:
            basic.append(item)
        dim += width
    return (*basic, ...), tuple(dims), indices


@tensor_method("__getitem__")
def getitem(self: Tensor, key: Any) -> Tensor:
    """x[key] for integers, slices, None, ..., lists, tensors of integers or booleans, and tuples.

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

    x = tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
    mask = x > 2.5
    print("elements:", x[mask].tolist())  # -> elements: [3.0, 4.0, 5.0]
    print("the same:", x[nonzero(mask, as_tuple=True)].tolist())  # -> the same: [3.0, 4.0, 5.0]
    print("gradient:", grad(x[mask].sum(), x)[0].tolist())
    # -> gradient: [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]

    # A mask for one dimension, or for none.
    print("columns:", x[:, tensor([True, False, True])].tolist())
    # -> columns: [[0.0, 2.0], [3.0, 5.0]]
    print("rows and a column:", x[[False, True], 1:].tolist())  # -> rows and a column: [[4.0, 5.0]]
    print("True:", x[True].shape, "False:", x[False].shape)
    # -> True: tinytorch.Size([1, 2, 3]) False: tinytorch.Size([0, 2, 3])
    cube = tensor(np.arange(24.0).reshape(2, 3, 4))
    print("two dimensions of three:", cube[mask, ..., 0].tolist())
    # -> two dimensions of three: [12.0, 16.0, 20.0]

    for wrong in ("x[tensor([True, False, True])]", "x[[0], 0, 0]", "x[[0.5]]"):
        try:
            eval(wrong)
        except IndexError as error:
            print(f"{wrong}: {error}")
    # -> x[tensor([True, False, True])]: The shape of the mask [3] at index 0 does not match the ...
    # -> x[[0], 0, 0]: too many indices for tensor of dimension 2
    # -> x[[0.5]]: tensors used as indices must be long, int or bool, not tinytorch.float32
