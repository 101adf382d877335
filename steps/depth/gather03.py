"""Step gather03: scatter and scatter_add in the package's dress

Step 72d built scatter_add, the way back of gather. At the same places one can also write:

    scatter(x, 1, index, s):       out[i, index[i, j]] = s[i, j]        write
    scatter_add(x, 1, index, s):   out[i, index[i, j]] += s[i, j]       add

The positions are those of gather, so no new operation is needed: scatter is IndexPut (step
indexing14), scatter_add is x + AddIndex. These bring their gradients: that of scatter_add is a
gather, just as the gradient of gather is a scatter_add.

src may be larger than the index; crop_to_index cuts off what no index belongs to.

The trap: where scatter writes to a place twice, one of the values remains, and which one is
undefined. If both matter, use scatter_add.

Each has an in-place form, with an underscore, made by `in_place` as in step 66c.

Changed: flat_positions compares with the shape of src, too. New: crop_to_index, scatter,
scatter_add, scatter_, scatter_add_.
Try: call scatter in place of scatter_add for the votes.
"""

import math
from operator import gt
from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.core.dtype import int32, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison, reduction  # noqa: F401  (their methods)
from tinytorch.ops.arithmetic import add
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.indexing import AddIndex, Index, IndexPut, check_same_dtype
from tinytorch.ops.scalar import checked_number
from tinytorch.ops.slicing import Slice


def check_index(name: str, index: Tensor, size: int) -> None:
    """Checks that the elements of `index` are valid places in a dimension of this size.

    Raises:
        RuntimeError: the index does not hold integers, or one is outside of 0..size-1.
    """
    if index.dtype not in (int64, int32):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index, got {index.dtype!r}")
    # Viewed as unsigned, negative numbers are the largest: one comparison checks both bounds.
    if index.array.size and index.array.view(f"u{index.array.itemsize}").max() >= size:
        raise RuntimeError(f"{name}(): an index is out of bounds for a dimension of size {size}")


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


scatter_ = tensor_method("scatter_")(in_place(scatter))


scatter_add_ = tensor_method("scatter_add_")(in_place(scatter_add))


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad
    from tinytorch.ops.softmax import softmax

    labels = tensor([[0], [1], [0]])
    one_hot = scatter(tensor(np.zeros((3, 3), np.float32)), 1, labels, 1.0)
    print("one hot:", one_hot.tolist())
    # -> one hot: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]

    zeros, ones = tensor([0.0, 0.0, 0.0]), tensor([1.0, 1.0, 1.0, 1.0, 1.0])
    print("votes:", scatter_add(zeros, 0, tensor([0, 2, 2, 0, 2]), ones).tolist())
    # -> votes: [2.0, 0.0, 3.0]

    # Gradients: what scatter replaces gets none; each source gets that of its place.
    x = tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    s = tensor([[10.0, 20.0, 30.0, 40.0]], requires_grad=True)
    g, index = tensor([[1.0, 2.0, 3.0]]), tensor([[2, 0]])
    written, added = scatter(x, 1, index, s), scatter_add(x, 1, index, s)
    print(written.tolist(), [each.tolist() for each in grad(written, [x, s], g)])
    # -> [[20.0, 2.0, 10.0]] [[[0.0, 2.0, 0.0]], [[3.0, 1.0, 0.0, 0.0]]]
    print(added.tolist(), [each.tolist() for each in grad(added, [x, s], g)])
    # -> [[21.0, 2.0, 13.0]] [[[1.0, 2.0, 3.0]], [[3.0, 1.0, 0.0, 0.0]]]

    # The gradient of a classifier's loss: softmax - one hot (step 40b).
    scores = tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 1.0, 4.0]], requires_grad=True)
    p = softmax(scores, 1)
    by_graph = grad(-gather(p.log(), 1, labels).sum(), scores)[0]
    print(np.allclose(by_graph.array, (p.detach() - one_hot).array, atol=1e-6))  # -> True

    zeros.scatter_(0, tensor([1]), 5.0).scatter_add_(0, tensor([1, 1]), ones)
    print("in place:", zeros.tolist())  # -> in place: [0.0, 7.0, 0.0]
    try:
        scatter_add(zeros, 0, tensor([0, 1, 2]), ones[:2])
    except RuntimeError as error:
        print(error)
        # -> scatter_add(): Expected index [3] to have the dimensions of [2] and to be no larger ...
