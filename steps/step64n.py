"""Step 64n: Indexing: x[key], read and written

Parts of a tensor so far have to be asked for by name: select, split, take. People write x[2],
x[:, 1:], x[..., None], x[[0, 2]], x[x > 0], x[0, :, mask] = 1. Python hands whatever stands between
the brackets to one method: __getitem__ or, for an assignment, __setitem__. There are six kinds of
items, in any mixture. Two operations that we already have are enough:

    integers, slices, None, ...      a part of the memory with other strides: Slice, a view
    lists, tensors of integers       any elements in any order: Index, a copy
    masks                            the places where they are true, as tensors of integers: Index

So `parse_key` takes a key apart: first a view by the basic items, then a choice by tensors from
that view. `...` becomes as many `:` as are missing, and a mask becomes its `nonzero` places. Most
keys have basic items only; `basic_key` finds them, and NumPy reads them as they are. The order
matters, and here PyTorch and NumPy differ: for x of shape [2, 3, 4], x[0, :, [1, 2]] is x[0][:, [1,
2]] with shape [3, 2] here, while NumPy treats the 0 as a list of one and puts the chosen dimension
in front: [2, 3].

An assignment is a write in place. With basic items only it is a write into a view, which the graph
already understands. With tensors, IndexPut replaces the chosen elements: the old values get no
gradient any more, the new ones get theirs. Where no gradient is recorded, NumPy writes directly.

Traps, each in the demo:

- x[1] is a view and x[[1]] is a copy. A write into the view changes x, a write into the copy does
  not.
- x[[0, 0]] += 1 adds 1 once: Python reads, adds, and assigns. `index_add_` of the next step adds 2.
- x[::-1] raises: tensors have no negative strides. Write x.flip(0).
- A mask must have the shape of the dimensions that it stands for. It is not broadcast.

Changed: nothing; the brackets are added. New: getitem, setitem, parse_key, IndexPut, nonzero,
masked_select, and `in`, for which Python calls __contains__.
Try: let IndexPut.backward return `kept, None`, and see who loses a gradient.
"""

import functools
import math
import operator
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import assign, check_writable
from tinytorch.autograd.node import Function
from tinytorch.core.device import device_of
from tinytorch.core.dtype import bool_, int32, int64
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import bump_version
from tinytorch.ops import arithmetic, comparison, reduction  # noqa: F401  (their methods)
from tinytorch.ops.broadcast import SumTo, broadcast_tensors, expand
from tinytorch.ops.joining import unbind
from tinytorch.ops.parts import Slice, select
from tinytorch.ops.shape import Reshape, flatten


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
    if not dims:
        return indices
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


def write_at(array: Any, key: tuple, values: Any) -> None:
    """array[key] = values, broadcast, with PyTorch's errors for a wrong index or shape."""
    try:
        array[key] = values
    except IndexError as error:
        raise IndexError(str(error).replace("axis", "dimension")) from None
    except ValueError as error:
        raise RuntimeError(f"shape mismatch: {error}") from None


class IndexPut(Function):
    """y = a copy of x with y[key] = values. What is replaced gets no gradient."""

    def forward(ctx, x: Any, values: Any, dims: tuple[int, ...], *indices: Any) -> Any:
        ctx.dims, ctx.shape = dims, getattr(values, "shape", ())
        ctx.save_for_backward(*indices)
        out = x.copy()
        write_at(out if dims else out.reshape(-1), key_at(dims, indices), values)
        return out

    def backward(ctx, g: Any) -> Any:
        kept = ctx.call(IndexPut, g, 0.0, ctx.dims, *ctx.saved)
        return kept, ctx.call(SumTo, ctx.call(Index, g, ctx.dims, *ctx.saved), ctx.shape)


class Nonzero(Function):
    """The indices of the elements that are not zero, one in each row. No gradient."""

    differentiable = False

    def forward(ctx, x: Any) -> Any:
        places = ctx.xp.stack(ctx.xp.nonzero(x.reshape(x.shape or (1,))), axis=1)
        return places[:, : x.ndim]


@tensor_method("masked_select")
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask, broadcast against `input`, is true: a 1-d copy."""
    if mask.dtype is not bool_:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype!r}")
    input, mask = broadcast_tensors(input, mask)
    return Index.apply(input, (), select(Nonzero.apply(flatten(mask)), 1, 0))


PLAIN = {int, type(None)}


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


def basic_key(key: Any) -> tuple | None:
    """The key in NumPy's form if it holds only integers, slices without a step, None and ..., as
    most keys do; else None."""
    items = key if key.__class__ is tuple else (key,)
    for item in items:
        if item.__class__ is slice:
            if item.step is not None or not PLAIN.issuperset(map(type, (item.start, item.stop))):
                return None
        elif item is not ... and item.__class__ not in PLAIN:
            return None
    return items if ... in items else (*items, ...)


def parse_key(x: Tensor, key: Any) -> tuple[tuple, tuple[int, ...], list[Tensor]]:
    """x[key] as two steps: a basic key, which makes a view, and tensors at dimensions of the view.

    An integer belongs to the first step: x[0, :, [1, 2]] is x[0][:, [1, 2]]. A mask becomes the
    indices where it is true.
    """
    if (basic := basic_key(key)) is not None:
        return basic, (), []
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


def is_mask(key: Any, x: Tensor) -> bool:
    """Whether a key is a single mask of the shape of x."""
    return isinstance(key, Tensor) and key.dtype is bool_ and key.array.shape == x.array.shape


@tensor_method("__getitem__")
def getitem(self: Tensor, key: Any) -> Tensor:
    """x[key] for integers, slices, None, ..., lists, tensors of integers or booleans, and tuples.

    Without lists and tensors the result is a view.

    Raises:
        IndexError: there is no such element, or the key cannot index.
    """
    if key.__class__ is int:
        return Slice.apply(self, (key, ...))
    if is_mask(key, self):
        return masked_select(self, key)
    basic, dims, indices = parse_key(self, key)
    whole = dims and basic.count(slice(None)) == len(basic) - 1
    view = self if whole else Slice.apply(self, basic)
    return Index.apply(view, dims, *indices) if dims else view


def check_same_dtype(name: str, input: Tensor, src: Tensor) -> None:
    if input.dtype is not src.dtype:
        raise RuntimeError(f"{name}(): expected src of type {input.dtype!r}, got {src.dtype!r}")


@tensor_method("__setitem__")
def setitem(self: Tensor, key: Any, value: Any) -> None:
    """x[key] = value, in place: a number or a tensor, broadcast to the shape of x[key].

    Raises:
        RuntimeError: the shapes or types do not fit.
        TypeError: the value is neither a number nor a tensor.
    """
    if not isinstance(value, Tensor):
        if isinstance(value, (list, tuple, str, np.ndarray)):
            raise TypeError(f"can't assign a {type(value).__name__} to a {self.dtype!r} tensor")
        value = tensor(value, dtype=self.dtype)
    recorded = state.grad_enabled and (self.requires_grad or value.requires_grad)
    if not recorded and self.array.ndim and is_mask(key, self):
        basic, dims, indices = (...,), (0,), [key]  # NumPy writes by a mask ten times as fast
    else:
        basic, dims, indices = parse_key(self, key)
    if dims and value.array.ndim:
        check_same_dtype("index_put", self, value)
    value, view = value.to(self.device, self.dtype), Slice.apply(self, basic)
    check_writable(view)
    if recorded:
        while value.array.shape[:1] == (1,):
            value = Reshape.apply(value, value.array.shape[1:])
        if dims:
            assign(view, IndexPut.apply(view, value, dims, *indices))
        else:
            assign(view, expand(value, view.array.shape))
    else:
        write_at(view.array, key_at(dims, [x.array for x in indices]) if dims else ..., value.array)
        bump_version(view.array)


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
    from tinytorch.autograd.engine import grad

    x = tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    print("row:", x[1].tolist(), "column:", x[:, -1].tolist(), "element:", x[1, 2].item())
    # -> row: [3.0, 4.0, 5.0] column: [2.0, 5.0] element: 5.0
    print("every other:", x[:, ::2].tolist(), "new dimension:", x[..., None].shape)
    # -> every other: [[0.0, 2.0], [3.0, 5.0]] new dimension: tinytorch.Size([2, 3, 1])
    print("list:", x[[1, 0, 1], [2, 0, 2]].tolist(), "mask:", x[x > 2.5].tolist())
    # -> list: [5.0, 0.0, 5.0] mask: [3.0, 4.0, 5.0]
    print("places of the mask:", nonzero(x > 2.5).tolist())
    # -> places of the mask: [[1, 0], [1, 1], [1, 2]]

    # A key in two steps.
    cube = tensor(np.arange(24.0).reshape(2, 3, 4))
    print("here:", cube[0, :, [1, 2]].shape, "NumPy:", cube.array[0, :, [1, 2]].shape)
    # -> here: tinytorch.Size([3, 2]) NumPy: (2, 3)
    print("apart:", parse_key(cube, (0, ..., [1, 2]))[:2])
    # -> apart: ((0, slice(None, None, None), slice(None, None, None), Ellipsis), (1,))

    # A view and a copy: only the first write changes y.
    y = tensor([[1.0, 2.0], [3.0, 4.0]])
    y[1].mul_(10.0)
    y[[0]].mul_(10.0)
    print("through the view only:", y.tolist())
    # -> through the view only: [[1.0, 2.0], [30.0, 40.0]]

    # Assignment: by a slice, a list, a mask; values are broadcast and take the type of the tensor.
    y = tensor([[1, 2, 3], [4, 5, 6]])
    y[:, 0] = 7.9
    y[[0, 1], [1, 2]] = tensor([-1, -2])
    y[y == 3] = 0
    print("assigned:", y.tolist())  # -> assigned: [[7, -1, 0], [7, 5, -2]]
    y = tensor([0.0, 0.0])
    y[[0, 0]] += 1.0
    print("a place twice:", y.tolist())  # -> a place twice: [1.0, 0.0]

    # The gradient of an assignment: what was replaced loses it, the new value gets it.
    a = tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = tensor(5.0, requires_grad=True)
    y = a * 10.0
    y[[0, 2]] = b
    y[1:2] += b
    print("y:", y.tolist(), "gradients:", [each.tolist() for each in grad(y.sum(), [a, b])])
    # -> y: [5.0, 25.0, 5.0] gradients: [[0.0, 10.0, 0.0], 3.0]

    print("in:", 4 in x, 9 in x)  # -> in: True False

    for wrong in ("x[2]", "x[0, 0, 0]", "x[::-1]", "x[tensor([True, False, True])]", "x[1.0]"):
        try:
            eval(wrong)
        except (IndexError, ValueError) as error:
            print(f"{wrong}: {type(error).__name__}: {error}")
    # -> x[2]: IndexError: index 2 is out of bounds for dimension 0 with size 2
    # -> x[0, 0, 0]: IndexError: too many indices for tensor: tensor is 2-dimensional, but 3 ...
    # -> x[::-1]: ValueError: step must be greater than zero
    # -> x[tensor([True, False, True])]: IndexError: The shape of the mask [3] at index 0 does ...
    # -> x[1.0]: IndexError: only int, slice, ..., None, list or tensor can index, not 1.0
    try:
        a[0] = 1.0
    except RuntimeError as error:
        print("RuntimeError:", error)
        # -> RuntimeError: a view of a leaf Variable that requires grad is being used in an ...
