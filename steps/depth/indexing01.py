"""Step indexing01: Index and AddIndex in the package's dress

Step 39b built the pair: a gather takes elements, and its gradient has to be added (np.add.at),
since an element may be taken twice. Here it begins again for one tensor of integers, on every
device. The run ends with all that brackets take.

    y = P x,      dL/dx = P^T g                Index and AddIndex

(P is the matrix with a single 1 in each row: choosing rows is a product with it.)

PyTorch: x[rows] has IndexBackward0, and the scatter-add in it is index_put with accumulate=True.

`saves = (1,)` declares that argument 1, the index, is kept; in AddIndex it is 2 (step node02).

Changed: Index, AddIndex.
Try: write `out[index] += x` in AddIndex, and see which lines notice.
"""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import tensor


class Index(Function):
    """y = x[index]: rows of x, in any order.

    A row that is chosen twice gets both gradients: they are added up.
    """

    saves = (1,)

    def forward(ctx, x: Any, index: Any) -> Any:
        ctx.shape = x.shape
        ctx.save_for_backward(index)
        return x[index]

    def backward(ctx, g: Any) -> Any:
        return ctx.call(AddIndex, g, ctx.shape, *ctx.saved)


class AddIndex(Function):
    """y = zeros of a shape, with x added at y[index]: the adjoint of `Index`, a scatter-add."""

    saves = (2,)

    def forward(ctx, x: Any, shape: tuple, index: Any) -> Any:
        ctx.save_for_backward(index)
        out = ctx.xp.zeros(shape, x.dtype)
        ctx.xp.add.at(out, index, x)
        return out

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Index, g, *ctx.saved)


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64

    # Six words of a language with four, each word a row of two numbers.
    table = tensor([[0.0, 1.0], [10.0, 11.0], [20.0, 21.0], [30.0, 31.0]], requires_grad=True)
    text = tensor([3, 0, 3, 1, 3, 0])
    words = Index.apply(table, text)
    print("first three:", words.tolist()[:3])
    # -> first three: [[30.0, 31.0], [0.0, 1.0], [30.0, 31.0]]

    # A gradient of 1 for each word: a row gets 1 each time it was chosen.
    g = np.ones((6, 2), np.float32)
    wrong = np.zeros((4, 2), np.float32)
    wrong[text.array] += g
    print("grad[rows] += g says", wrong[:, 0])  # -> grad[rows] += g says [1. 1. 0. 1.]
    print("the right gradient is", grad(words, table, tensor(g))[0].array[:, 0])
    # -> the right gradient is [2. 1. 0. 3.]

    # The same as products with a matrix that has a single 1 in each row.
    P = np.zeros((6, 4), np.float32)
    P[np.arange(6), text.array] = 1.0
    print("P x is Index:", np.array_equal(P @ table.array, words.array))  # -> P x is Index: True
    print("P^T g is AddIndex:", (P.T @ g)[:, 0])  # -> P^T g is AddIndex: [2. 1. 0. 3.]

    # Rows in any shape: two sentences of two words.
    z = tensor(np.random.default_rng(0).standard_normal((3, 4)), dtype=float64, requires_grad=True)
    sentences = tensor([[2, 2], [0, -1]])
    print("shape:", Index.apply(z, sentences).shape)  # -> shape: tinytorch.Size([2, 2, 4])
    print(gradcheck(lambda z: Index.apply(z, sentences), z))  # -> True
    print(gradgradcheck(lambda z: Index.apply(z, sentences), z))  # -> True
