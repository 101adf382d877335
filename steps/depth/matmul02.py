"""Step matmul02: Vectors, and a batch of rows

Words of a text come as [sentences, words, features], and each word goes through the same layer: one
matrix [m, p] for all. NumPy's @ takes that, and returns [b, t, p]. But step matmul01's backward
turns the dimensions of the batch around with `.T`, and fails. With vectors it fails too.

NumPy computes b products for b sentences. But all rows of all sentences meet the same matrix:

    [b, t, m] @ [m, p]   =   [b t, m] @ [m, p],   with the shape [b, t, p]

The sentences are one below the other in memory already, so this is a reshape, and a single product
of b t rows. Short sentences gain by it. The gradient of the matrix gains most: dL/dB = A^T G with
all rows adds up what the sentences contribute, where b matrices [m, p] would be written, and then
summed.

A vector on the right is a matrix with one column; math.prod(()) is 1, so its shape (m,) gives
`columns` = 1. A vector on the left is a single row, by the same formula. Both lose that dimension
in the result, and get it back from their shapes in backward.

The trap: a product of two vectors is a number, [n] @ [n] -> []. It is not a column times a row,
which would be [n, n].

Changed: MatMul, matmul (its text). Two matrices keep their own lines: it is the usual case.
Try: let forward compute a @ b always. What changes? Then measure 2,048 sentences of one word.
"""

import math
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction, shape  # noqa: F401  (their methods)


class MatMul(Function):
    """C = A B;   dL/dA = G B^T,   dL/dB = A^T G, where G = dL/dC.

    c_ij = sum over k of a_ik b_kj: a_ik is in the whole row i of C, each time with another b_kj.
    So dL/da_ik = sum over j of g_ij b_kj, a matrix product again. The shapes confirm it:
    [n, m] [m, p] = [n, p], and the only product of G [n, p] and B of shape [n, m] is G B^T.

    A vector on the left is one row, on the right one column. A batch times one matrix is a single
    product with all rows of the batch, instead of one for each matrix of it.
    """

    saves = 0, 1

    def forward(ctx, a: Any, b: Any) -> Any:
        edge_a, edge_b = ctx.edges  # None where no gradient is needed
        ctx.save_for_backward(None if edge_b is None else a, None if edge_a is None else b)
        ctx.shapes = a.shape, b.shape
        if a.ndim > 2 and 1 <= b.ndim <= 2:
            rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
            return (rows @ b).reshape(a.shape[:-1] + b.shape[1:])
        return a @ b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        a_shape, b_shape = ctx.shapes
        ga = gb = None
        if len(a_shape) == len(b_shape) == 2:
            ga = None if b is None else g @ b.T
            gb = None if a is None else a.T @ g
        else:  # all rows of a, whatever its shape, with one matrix or column
            rows, inner, columns = math.prod(a_shape[:-1]), a_shape[-1], math.prod(b_shape[1:])
            g = g.reshape(rows, columns)
            if b is not None:
                ga = (g @ b.reshape(inner, columns).T).reshape(a_shape)
            if a is not None:
                gb = (a.reshape(rows, inner).T @ g).reshape(b_shape)
        return ga, gb


@tensor_method("matmul", "__matmul__")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product `input @ other`, by the number of dimensions:

        [n] @ [n]              the sum of products, 0-d      [n, m] @ [m]       [n]
        [n, m] @ [m, p]        [n, p]                        [m] @ [m, p]       [p]
        [b..., n, m] @ [m, p]  [b..., n, p]

    Raises:
        RuntimeError: the shapes do not fit.
    """
    return MatMul.apply(input, other)


if __name__ == "__main__":
    import timeit

    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    rng = np.random.default_rng(0)
    SHAPES = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((4, 2, 3), (3, 2)), ((4, 2, 3), (3,))]
    for pair in SHAPES:
        a, b = (tensor(rng.random(shape), requires_grad=True) for shape in pair)
        right = gradcheck(matmul, (a, b)) and gradgradcheck(matmul, (a, b))
        print(*map(list, pair), "->", list((a @ b).shape), right)
    # -> [3] [3] -> [] True
    # -> [2, 3] [3] -> [2] True
    # -> [3] [3, 2] -> [2] True
    # -> [4, 2, 3] [3, 2] -> [4, 2, 2] True
    # -> [4, 2, 3] [3] -> [4, 2] True

    # The result is the one of the loop over the sentences.
    batch, weight = (tensor(rng.random(shape, np.float32)) for shape in [(256, 8, 64), (64, 64)])
    last = batch.array[-1] @ weight.array
    print("as a loop:", np.allclose((batch @ weight).array[-1], last))  # -> as a loop: True
    rows, g = batch.array.reshape(2048, 64), rng.random((256, 8, 64), np.float32)
    one = min(timeit.repeat(lambda: rows.T @ g.reshape(2048, 64), number=1, repeat=30))
    many = min(timeit.repeat(lambda: (batch.array.swapaxes(1, 2) @ g).sum(0), number=1, repeat=30))
    print(
        f"gradient of the matrix: one product takes {one / many:.2f} of the time of 256 and a sum"
    )
    # -> ...
