"""Step gather04: Whole rows: index_select and index_add

y[[0, 0]] += 1 adds 1 once (step indexing13), and scatter_add needs an index as large as what it
adds. For whole rows one number for each row is enough:

    index_select(x, 0, index):     out[j] = x[index[j]]              as x[index]
    index_add(x, 0, index, s):     out[index[j]] += s[j]

The first is Index along one dimension, the second x + AddIndex. So each is the gradient of the
other. index_add_ is the += that brackets cannot do.

Brackets can do the first as well. The functions take the dimension as a number, which a program can
compute, and check more: the index has one dimension, negative indices are refused, the shapes must
agree without broadcasting.

PyTorch raises IndexError where index_select's index is out of bounds, and RuntimeError in gather.
So check_index takes the class of the error as an argument.

The trap is speed on a GPU: a scatter-add in which a million threads add to the same row makes them
wait for each other.

Changed: check_index. New: index_along_dim, index_select, index_add, index_add_.
Try: add the samples of the demo up with brackets, zeros[labels] += samples. What are the means?
"""

import math
from operator import gt
from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.core.dtype import int32, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison, reduction  # noqa: F401  (their methods)
from tinytorch.ops.arithmetic import add, mul
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.indexing import AddIndex, Index, IndexPut, check_same_dtype
from tinytorch.ops.scalar import checked_number
from tinytorch.ops.shape import Reshape, flatten
from tinytorch.ops.slicing import Slice


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


scatter_ = tensor_method("scatter_")(in_place(scatter))


scatter_add_ = tensor_method("scatter_add_")(in_place(scatter_add))


index_add_ = tensor_method("index_add_")(in_place(index_add))


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad

    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    print("columns:", index_select(x, 1, tensor([2, 0, 2])).tolist())
    # -> columns: [[3.0, 1.0, 3.0], [6.0, 4.0, 6.0]]
    print("gradient:", grad(index_select(x, 1, tensor([2, 0, 2])).sum(), x)[0].tolist())
    # -> gradient: [[1.0, 0.0, 2.0], [1.0, 0.0, 2.0]]
    print("of a number:", index_select(tensor(7.0), 0, tensor([0])).tolist())  # -> of a number: 7.0

    # The mean of the samples of each class: add up by label, divide by how many there are.
    samples, labels = tensor([[1.0, 1.0], [5.0, 7.0], [3.0, 3.0]]), tensor([0, 1, 0])
    sums = index_add(tensor(np.zeros((2, 2), np.float32)), 0, labels, samples)
    counts = index_add(tensor([0.0, 0.0]), 0, labels, tensor([1.0, 1.0, 1.0]))
    print("means:", (sums / counts.reshape(2, 1)).tolist())  # -> means: [[2.0, 2.0], [5.0, 7.0]]

    zeros, ones = tensor([0.0, 0.0, 0.0]), tensor([1.0, 1.0])
    zeros[[1, 1]] += ones
    print("by brackets:", zeros.tolist())  # -> by brackets: [0.0, 1.0, 0.0]
    zeros.index_add_(0, tensor([1, 1]), ones, alpha=10)
    print("a place twice:", zeros.tolist())  # -> a place twice: [0.0, 21.0, 0.0]

    for call in (
        lambda: index_select(x, 0, tensor([-1])),
        lambda: index_select(x, 0, tensor([[0]])),
        lambda: index_add(x, 0, tensor([0]), x),
    ):
        try:
            call()
        except (IndexError, RuntimeError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> IndexError: index_select(): an index is out of bounds for a dimension of size 2
    # -> IndexError: index_select(): Index is supposed to be a vector, it has 2 dims
    # -> RuntimeError: index_add(): the shape of source is [2, 3], and should be [1, 3]
