"""Step gather01: gather in the package's dress

Step 72d built gather: in each row another column. NumPy needed a tensor of indices for each
dimension there. Here gather is Index of flat positions (step indexing05), and has its gradient. In
the flattened x, element x[i, j] is number i * steps[0] + j * steps[1]. So flat_positions computes
one number for each element of the index: the index itself times steps[dim], and for each other
dimension a line 0, 1, 2, ... times its step. The lines are broadcast:

    index = 2 0      * 1   +   0 * 3      =  2 0         x = a b c      gather = c a
            1 1                1 * 3         4 4             d e f               e e

PyTorch: torch.gather. (Processors have an instruction of that name, which reads from a list of
addresses.)

Changed: gather. New: flat_positions.
Try: leave out the loop over the other dimensions. Which rows are still right?
"""

import math
from typing import Any

from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import comparison, reduction  # noqa: F401  (their methods)
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.indexing import Index


def flat_positions(input: Tensor, dim: int, index: Tensor) -> Any:
    """The position of each element [i, index[i, j]] of `input` (for dim=1), counted as if it were
    flat.

    The position of [i, j] is i * steps[0] + j * steps[1].
    """
    shape, sizes = index.array.shape, input.array.shape
    dim = normalize_dim(dim, len(sizes))
    steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    flat = index.array * steps[dim]
    for i, n in enumerate(shape):
        if i != dim:
            line = index.device.xp.arange(n) * steps[i]
            flat += line.reshape((n,) + (1,) * (len(shape) - 1 - i))
    return flat


@tensor_method("gather")
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """out[i, j] = input[i, index[i, j]] for dim=1, input[index[i, j], j] for dim=0, and so on.

    The result has the shape of `index`, whose other sizes are at most those of `input`.
    """
    return Index.apply(input, (), flat_positions(input, dim, index))


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad
    from tinytorch.ops.softmax import log_softmax

    scores = tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 1.0, 4.0]], requires_grad=True)
    labels = tensor([0, 1, 0])
    print("not this:", scores[:, labels].shape)  # -> not this: tinytorch.Size([3, 3])
    column = labels.reshape(3, 1)
    print("positions:", flat_positions(scores, 1, column).tolist())  # -> positions: [[0], [4], [6]]
    print("one of each row:", gather(scores, 1, column).tolist())
    # -> one of each row: [[2.0], [3.0], [1.0]]
    loss = -gather(log_softmax(scores, 1), -1, column).mean()
    print("the loss of a classifier:", loss.item())  # -> the loss of a classifier: 1.19915

    # Rows in an order given by another tensor, and along dimension 0.
    x = tensor([[30.0, 10.0, 20.0], [4.0, 6.0, 5.0]], requires_grad=True)
    order = tensor([[1, 2, 0], [0, 2, 1]])
    print("sorted:", gather(x, 1, order).tolist())
    # -> sorted: [[10.0, 20.0, 30.0], [4.0, 5.0, 6.0]]
    print("one of each column:", gather(x, 0, tensor([[1, 0, 1]])).tolist())
    # -> one of each column: [[4.0, 10.0, 5.0]]
    twice = gather(x, 1, tensor([[2, 2], [0, 1]]))
    print("gradient:", grad(twice, x, tensor(np.ones((2, 2), np.float32)))[0].tolist())
    # -> gradient: [[0.0, 0.0, 2.0], [1.0, 1.0, 0.0]]
