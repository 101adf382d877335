"""Step indexing12: One mask for all elements

The most frequent mask, as in x[x > 0], has the shape of x. Step indexing11 makes an index for each
of its dimensions, and finds each element by two numbers, or three. Step indexing05 is shorter: in
the flattened x, each place is one number. The mask is flattened, nonzero finds its places, and
Index reads the positions in the flattened x:

    mask = F F F T T T       nonzero = 3 4 5       x.take([3, 4, 5])

That is masked_select, and brackets with a single mask of the whole shape call it. The demo measures
the difference.

Under its own name the mask may be broadcast: masked_select(x, column_mask) takes a mask of shape
[3] for x of shape [2, 3]. Brackets would read the same mask as one for dimension 0, and refuse it.

The trap: two paths to one result must agree, now and after each change. The demo compares them.

Changed: getitem. New: masked_select, is_mask.
Try: leave out `broadcast_tensors` in masked_select. Which elements does the column mask take?
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
from tinytorch.ops.broadcast import broadcast_tensors
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


@tensor_method("masked_select")
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask, broadcast against `input`, is true: a 1-d copy."""
    if mask.dtype is not bool_:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype!r}")
    input, mask = broadcast_tensors(input, mask)
    return Index.apply(input, (), select(Nonzero.apply(flatten(mask)), 1, 0))


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
    if is_mask(key, self):
        return masked_select(self, key)
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
    import timeit

    from tinytorch.autograd.backward import grad

    x = tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], requires_grad=True)
    print("elements:", x[x > 2.5].tolist())  # -> elements: [3.0, 4.0, 5.0]
    print("gradient:", grad(x[x > 2.5].sum(), x)[0].tolist())
    # -> gradient: [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    print("broadcast:", masked_select(x, tensor([True, False, True])).tolist())
    # -> broadcast: [0.0, 2.0, 3.0, 5.0]
    try:
        masked_select(x, tensor([1, 0, 1]))
    except RuntimeError as error:
        print("RuntimeError:", error)
        # -> RuntimeError: masked_select: expected BoolTensor for mask, got tinytorch.int64

    table = tensor(np.random.default_rng(0).standard_normal((300, 300)))
    positive = table > 0

    def by_dimensions():  # step indexing11
        basic, dims, indices = parse_key(table, positive)
        return Index.apply(Slice.apply(table, basic), dims, *indices)

    print("is a mask of all:", is_mask(positive, table), is_mask(positive[0], table))
    # -> is a mask of all: True False
    print("the same:", np.array_equal(table[positive].array, by_dimensions().array))
    # -> the same: True
    long = min(timeit.repeat(by_dimensions, number=5))
    short = min(timeit.repeat(lambda: table[positive], number=5))
    print(f"one number for each place takes {short / long:.2f} of the time of two")  # -> ...
