"""Step gather02: gather checks its indices

In many data sets a label of -1 means "unknown". gather of step gather01 accepts it silently: for
row 0 it counts from the end, for row 1 position 1 * 3 - 1 is an element of row 0. A label that is
too large reads from the next row. So both bounds have to be checked, and PyTorch's gather takes no
negative indices at all; its brackets do.

Comparing all indices with 0, and again with the size, would read them twice. check_index views them
as unsigned integers of the same width, for which -1 is the largest number of all. Then one
comparison finds both.

The shapes have to fit, too: the index may be smaller than x (it takes from the first rows), but not
larger, except along `dim`. And two smaller things: positions are computed in int64, since int32
ends at two billion elements; a 0-d tensor counts as one with a single element.

An empty index selects nothing and is allowed with any type: tensor([]) holds floats by default.
(`sparse_grad` is one of PyTorch's arguments; it has no effect here.)

Changed: flat_positions, gather. New: check_index.
Try: leave check_index out of `flat_positions`, and see what the score of class -1 is.
"""

import math
from operator import gt
from typing import Any

from tinytorch.core.dtype import int32, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison, reduction  # noqa: F401  (their methods)
from tinytorch.ops.conversion import cast
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.indexing import Index
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


def flat_positions(name: str, input: Tensor, dim: int, index: Tensor) -> Any:
    """The position of each element [i, index[i, j]] of `input` (for dim=1), counted as if it were
    flat.

    The position of [i, j] is i * steps[0] + j * steps[1]. A 0-d tensor counts as one with a single
    element.

    Raises:
        RuntimeError: the shapes of index and input do not fit together.
    """
    shape, sizes = index.array.shape or (1,), input.array.shape or (1,)
    dim = normalize_dim(dim, len(sizes))
    check_index(name, index, sizes[dim])
    limits = (*sizes[:dim], max(*shape, 1), *sizes[dim + 1 :])
    if index.array.size and (len(limits) != len(shape) or any(map(gt, shape, limits))):
        raise RuntimeError(
            f"{name}(): Expected index {list(shape)} to have the dimensions of {list(limits)} "
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


if __name__ == "__main__":
    import numpy as np

    scores = tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 1.0, 4.0]])

    # What the formula of step gather01 reads for class -1 of row 1, and for class 3 of row 0.
    row_1, row_0 = 1 * 3 + -1, 0 * 3 + 3
    print("as positions:", divmod(row_1, 3), divmod(row_0, 3))  # -> as positions: (0, 2) (1, 0)
    print("-1, unsigned:", np.array([-1]).view("u8"))  # -> -1, unsigned: [18446744073709551615]

    wrong = [tensor([[-1]]), tensor([[3]]), tensor([[0.0]]), tensor([0]), tensor([[0]] * 4)]
    for index in wrong:
        try:
            print(gather(scores, 1, index).tolist())
        except RuntimeError as error:
            print(error)
    # -> gather(): an index is out of bounds for a dimension of size 3
    # -> gather(): an index is out of bounds for a dimension of size 3
    # -> gather(): Expected dtype int32/int64 for index, got tinytorch.float32
    # -> gather(): Expected index [1] to have the dimensions of [3, 1] and to be no larger ...
    # -> gather(): Expected index [4, 1] to have the dimensions of [3, 4] and to be no larger ...

    print("smaller:", gather(scores, 1, tensor([[2, 1, 0, 1]])).tolist())
    # -> smaller: [[0.0, 1.0, 2.0, 1.0]]
    print("int32:", gather(scores, 0, tensor([[2, 1, 0]], dtype=int32)).tolist())
    # -> int32: [[1.0, 3.0, 0.0]]
    print("0-d:", gather(tensor(5.0), 0, tensor([0, 0])).tolist())  # -> 0-d: [5.0, 5.0]
    print("nothing:", gather(scores, 1, tensor([])).shape)  # -> nothing: tinytorch.Size([0])
