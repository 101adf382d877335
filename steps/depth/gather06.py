"""Step gather06: repeat_interleave: repetitions as indices

repeat (step parts02) writes a tensor several times one after the other: 1 2 1 2. Often each element
has to be repeated before the next one: 1 1 2 2, or, with a number for each, 1 1 1 2. A network that
draws three samples for each picture needs a batch like that.

This is Index with repeated indices, so the gradients of all repetitions are added up:

    2 times each       index = 0 0 1 1        arange(4) // 2
    3 times and once   index = 0 0 0 1        np.repeat(arange(2), [3, 1])

The trap: without `dim` the tensor is flattened first, and comes back with one dimension. `repeat`
takes a number for each dimension instead.

Looking back: everything in this module is Index, IndexPut or AddIndex with other numbers, or a
`where`. The one new derivative was that of masked_fill.

Changed: the module gather.py is finished. New: repeat_interleave.
Try: sizes = tensor([2, 0]). What is left of the second column, and of its gradient?
"""

import math
from operator import gt
from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_, int32, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison, reduction  # noqa: F401  (their methods)
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.arithmetic import add, mul
from tinytorch.ops.conversion import cast
from tinytorch.ops.creation import allocated
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


@tensor_method("repeat_interleave")
def repeat_interleave(
    input: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each slice along `dim` (each element, if None) `repeats` times: a number, or one for each.

    output_size: the number of slices of the result, if it is known; it is checked.

    Raises:
        RuntimeError: the number of repeats is not that of the slices, output_size is wrong, or
            there is not as much memory.
    """
    xp = input.device.xp
    input, dim = (flatten(input), 0) if dim is None or input.array.ndim == 0 else (input, dim)
    dim = normalize_dim(dim, input.array.ndim)
    n = input.array.shape[dim]
    times = repeats.array if isinstance(repeats, Tensor) else as_integer(repeats)
    if isinstance(repeats, Tensor) and repeats.array.size not in (1, n):
        raise RuntimeError(f"repeats must have size {n} as input along dim, got {repeats.shape}")
    whole = isinstance(times, int) and times > 0
    if whole:
        index = allocated(xp.arange, checked_number(n * times, int64)) // times
    else:
        index = xp.repeat(xp.arange(n), times)
    if output_size not in (None, index.size):
        raise RuntimeError(f"repeat_interleave: output_size is {output_size}, not {index.size}")
    return Index.apply(input, (dim,), index)


masked_fill_ = tensor_method("masked_fill_")(in_place(masked_fill))


scatter_ = tensor_method("scatter_")(in_place(scatter))


scatter_add_ = tensor_method("scatter_add_")(in_place(scatter_add))


index_add_ = tensor_method("index_add_")(in_place(index_add))


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad

    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    print("repeat:", x.repeat(2, 1).tolist())
    # -> repeat: [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    print("each row twice:", repeat_interleave(x, 2, 0).tolist())
    # -> each row twice: [[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [3.0, 4.0]]
    print("flat:", repeat_interleave(x, 2).tolist())
    # -> flat: [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
    sizes = tensor([3, 1])
    print("three times and once:", repeat_interleave(x, sizes, 1).tolist())
    # -> three times and once: [[1.0, 1.0, 1.0, 2.0], [3.0, 3.0, 3.0, 4.0]]
    print("gradient:", grad(repeat_interleave(x, sizes, 1).sum(), x)[0].tolist())
    # -> gradient: [[3.0, 1.0], [3.0, 1.0]]
    print("not at all:", repeat_interleave(x, 0, 0).shape)
    # -> not at all: tinytorch.Size([0, 2])
    for wrong in (
        lambda: repeat_interleave(x, tensor([1, 2, 3]), 0),
        lambda: repeat_interleave(x, 2, 0, output_size=3),
    ):
        try:
            wrong()
        except RuntimeError as error:
            print("RuntimeError:", error)
    # -> RuntimeError: repeats must have size 2 as input along dim, got tinytorch.Size([3])
    # -> RuntimeError: repeat_interleave: output_size is 3, not 4
