"""Indexing: x[key], read and written."""

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
from tinytorch.ops.broadcast import SumTo, broadcast_tensors, expand
from tinytorch.ops.joining import unbind
from tinytorch.ops.shape import Reshape, flatten
from tinytorch.ops.slicing import Slice, select


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
        ctx.saves = range(3, 3 + len(indices))
        out = ctx.xp.asarray(x).copy()  # the gradient of a 0-d tensor may be a number
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
