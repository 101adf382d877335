"""Step gather05: masked_fill

In a language model a word may look at the words before it, not at those after it. A softmax over
scores gives every word a weight; a score of minus infinity makes it 0. So the scores have to be
replaced where a mask is true:

    masked_fill(x, mask, value):      out[i] = value if mask[i] else x[i]

x[mask] = value does it in place, and has to find the places first. masked_fill does not search: the
result has the shape of x, and `where` reads each element once. The gradient of x is g, filled with
0 where the mask is true; the value gets the rest of g.

The trap: do not compute it as x * (1 - mask) + value * mask. Where the mask is 0, 0 * inf is nan.

The value is a number or a tensor with one element and no dimensions; it must fit the type of x
(step compare08): 2^40 written into int32 would be another number.

PyTorch: masked_fill, masked_fill_ (in place).

`saves = (1,)` declares that the mask, argument 1, is kept (step node02).

New: MaskedFill, masked_fill, masked_fill_.
Try: let backward return g for x, and read the gradient in the demo.
"""

import math
from operator import gt
from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_, int32, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison, reduction  # noqa: F401  (their methods)
from tinytorch.ops.arithmetic import add, mul
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.indexing import AddIndex, Index, IndexPut, check_same_dtype
from tinytorch.ops.scalar import checked_number
from tinytorch.ops.shape import Reshape, flatten
from tinytorch.ops.slicing import Slice


class MaskedFill(Function):
    """y = value where the mask is true, else x."""

    saves = (1,)
    elementwise = True

    def forward(ctx, x: Any, mask: Any, value: Any) -> Any:
        ctx.save_for_backward(mask)
        return ctx.xp.where(mask, ctx.xp.asarray(value, x.dtype), x)

    def backward(ctx, g: Any) -> Any:
        gx = ctx.call(MaskedFill, g, ctx.saved[0], 0.0)
        return gx, None, g - gx if ctx.needs_input_grad[2] else None


@tensor_method("masked_fill")
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A copy with `value`, a number or a 0-d tensor, where the mask is true; broadcast.

    Raises:
        RuntimeError: the mask is not boolean, or the value does not fit the type.
    """
    if mask.dtype is not bool_:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, got {mask.dtype!r}")
    if isinstance(value, Tensor) and value.array.ndim:
        raise RuntimeError(f"masked_fill_ only supports a 0-d value, got {value.ndim} dimensions")
    if isinstance(value, Tensor) and not input.dtype.is_floating_point:
        value = value.item()
    as_type = cast if isinstance(value, Tensor) else checked_number
    return MaskedFill.apply(input, mask, as_type(value, input.dtype))


def check_index(name: str, index: Tensor, size: int, error: type = RuntimeError) -> None:
    """Checks that the elements of `index` are valid places in a dimension of this size.

    Raises:
        RuntimeError: the index does not hold integers.
        error: an index is outside of 0..size-1.
    """
    if index.dtype not in (int64, int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index, got {index.dtype!r}")
    # Viewed as unsigned, negative numbers are the largest: one comparison checks both bounds.
    if index.array.size and index.array.view(f"u{index.array.itemsize}").max() >= size:
        raise error(f"{name}(): an index is out of bounds for a dimension of size {size}")


def flat_positions(
    name: str, input: Tensor, dim: int, index: Tensor, src: Tensor | None = None
) -> Any:
    """The position of each element [i, index[i, j]] of `input` (for dim=1), counted as if it were
    flat.

    The position of [i, j] is i * steps[0] + j * steps[1]. A 0-d tensor counts as one with a single
    element.

    Raises:
        RuntimeError: the shapes of index, input and src do not fit together.
    """
    shape, sizes = index.array.shape or (1,), input.array.shape or (1,)
    dim = normalize_dim(dim, len(sizes))
    check_index(name, index, sizes[dim])
    limits = (*sizes[:dim], max(*shape, 1), *sizes[dim + 1 :])
    for other in (limits, shape if src is None else src.array.shape or (1,)):
        if index.array.size and (len(other) != len(shape) or any(map(gt, shape, other))):
            raise RuntimeError(
                f"{name}(): Expected index {list(shape)} to have the dimensions of {list(other)} "
                f"and to be no larger (of self, dimension {dim} has no limit)"
            )
    steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    flat = cast(index, int64).array.reshape(shape) * steps[dim]
    for i, n in enumerate(shape):
        if i != dim and n > 1:
            line = index.device.xp.arange(n) * steps[i]
            flat += line.reshape((n,) + (1,) * (len(shape) - 1 - i))
    return flat.reshape(index.array.shape)


@tensor_method("gather")
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i, j] = input[i, index[i, j]] for dim=1, input[index[i, j], j] for dim=0, and so on.

    The result has the shape of `index`, whose other sizes are at most those of `input`.
    """
    if index.array.size == 0:
        return Index.apply(Slice.apply(input, (slice(0), ...)), (), cast(index, int64))
    return Index.apply(input, (), flat_positions("gather", input, dim, index))


def crop_to_index(src: Tensor, index: Tensor) -> Tensor:
    """The part of `src` in the shape of `index`, which may be smaller."""
    if src.array.shape == index.array.shape:
        return src
    return Slice.apply(src, tuple(slice(n) for n in index.array.shape))


@tensor_method("scatter")
def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value=None) -> Tensor:
    """A copy of `input` with out[i, index[i, j]] = src[i, j] for dim=1, and so on.

    src: a tensor at least as large as `index`, or a number, which can be given as `value` too.
    Where an index occurs twice, one of the values stays.

    Raises:
        RuntimeError: the shapes or types do not fit, or the number does not fit the type.
    """
    src = value if src is None else src
    if not isinstance(src, Tensor):
        key = flat_positions("scatter", input, dim, index)
        return IndexPut.apply(input, checked_number(src, input.dtype), (), key)
    check_same_dtype("scatter", input, src)
    key = flat_positions("scatter", input, dim, index, src)
    return IndexPut.apply(input, crop_to_index(src, index), (), key)


@tensor_method("scatter_add")
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of `input` with src[i, j] added to out[i, index[i, j]] for dim=1, and so on."""
    check_same_dtype("scatter_add", input, src)
    key = flat_positions("scatter_add", input, dim, index, src)
    return add(input, AddIndex.apply(crop_to_index(src, index), input.array.shape, (), key))


def index_along_dim(name: str, input: Tensor, dim: int, index: Tensor) -> tuple[tuple, Tensor]:
    """The dimension and the 1-d indices in it, as arguments for `Index`."""
    dim, size = normalize_dim(dim, input.array.ndim), input.array.shape or (1,)
    if index.array.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, it has {index.ndim} dims")
    check_index(name, index, size[dim], IndexError)
    return ((dim,), flatten(index)) if input.array.ndim else ((), Reshape.apply(index, ()))


@tensor_method("index_select")
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """A copy of the slices `index` (1-d) of dimension `dim`, in that order."""
    return Index.apply(input, *index_along_dim("index_select", input, dim, index))


@tensor_method("index_add")
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """A copy of `input` with alpha * source added to the slices `index` of dimension `dim`.

    Raises:
        RuntimeError: `source` does not have a slice for each index, or has another type; or alpha
            does not fit the type.
    """
    dims, index = index_along_dim("index_add", input, dim, index)
    check_same_dtype("index_add", input, source)
    shape, found = list(input.array.shape), list(source.array.shape)
    for place in dims:
        shape[place] = index.array.size
    if shape != found:
        raise RuntimeError(f"index_add(): the shape of source is {found}, and should be {shape}")
    source = source if alpha == 1 else mul(source, checked_number(alpha, source.dtype))
    return add(input, AddIndex.apply(source, input.array.shape, dims, index))


masked_fill_ = tensor_method("masked_fill_")(in_place(masked_fill))


scatter_ = tensor_method("scatter_")(in_place(scatter))


scatter_add_ = tensor_method("scatter_add_")(in_place(scatter_add))


index_add_ = tensor_method("index_add_")(in_place(index_add))


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad
    from tinytorch.ops.slicing import triu
    from tinytorch.ops.softmax import softmax

    # Attention that may not look ahead.
    future = triu(tensor([[True] * 3] * 3), 1)
    print("mask:", future.tolist())
    # -> mask: [[False, True, True], [False, False, True], [False, False, False]]
    print("weights:", softmax(masked_fill(tensor(np.zeros((3, 3))), future, -math.inf), 1).tolist())
    # -> weights: [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.333333, 0.333333, 0.333333]]
    with np.errstate(invalid="ignore"):
        product = (0.0 * (1 - future.array) + -math.inf * future.array)[0]
    print("with products:", product.tolist())  # -> with products: [nan, -inf, -inf]

    x = tensor([1.0, 2.0, 3.0], requires_grad=True)
    value, mask = tensor(9.0, requires_grad=True), tensor([True, False, True])
    y = masked_fill(x, mask, value)
    print(y.tolist(), [each.tolist() for each in grad((y * y).sum(), [x, value])])
    # -> [9.0, 2.0, 9.0] [[0.0, 4.0, 0.0], 36.0]
    z = tensor([1, 2, 3])
    z.masked_fill_(mask, tensor(0))
    print("in place:", z.tolist())  # -> in place: [0, 2, 0]

    for call in (
        lambda: masked_fill(x, tensor([1, 0, 1]), 0.0),
        lambda: masked_fill(x, mask, tensor([1.0, 2.0, 3.0])),
        lambda: masked_fill(tensor([1, 2, 3], dtype=int32), mask, 2**40),
    ):
        try:
            call()
        except RuntimeError as error:
            print(f"{type(error).__name__}: {error}")
    # -> RuntimeError: masked_fill_ only supports boolean masks, got tinytorch.int64
    # -> RuntimeError: masked_fill_ only supports a 0-d value, got 1 dimensions
    # -> RuntimeError: value cannot be converted to tinytorch.int32 without overflow: 1099511627776
