"""Step matmul01: The matrix product in the package's dress: vectors, and what is not needed

Step 37a derived dL/dA = G B^T and dL/dB = A^T G, and step 56a took them to batches. Here both get
annotations, and two things that were missing.

Vectors. A vector on the right is a matrix with one column; math.prod(()) is 1, so its shape (m,)
gives `columns` = 1. A vector on the left is a single row. Both lose that dimension in the result,
and get it back from their shapes in backward. A product of two vectors is a number, [n] @ [n] ->
[]: it is not a column times a row.

Only what is needed. Each gradient needs the other factor. So forward keeps A only if B needs a
gradient, and B only if A does: the data that enters the first layer of a network needs none, and
dL/dA is not computed there. (ctx.edges has None for an input that needs no gradient.)

What was broadcast is summed by SumTo, for each operand by itself: [4, 1, n, m] times [5, m, p] is
[4, 5, n, p], and the shortcut for many rows and one matrix is inside of the node now.

The trap: broadcasting by mistake. Two batches of different meaning, [8, n, m] and [8, m, p], one of
sentences and one of weights, fit each other, and each sentence meets other weights.

`saves = 0, 1` declares which arguments are kept, so no call has to look for them (step node02).

Changed: MatMul, matmul, and the operator @.
Try: leave the SumTo out for B. Which pair of the demo fails?
"""

import math
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction, shape  # noqa: F401  (their methods)
from tinytorch.ops.broadcast import SumTo


class MatMul(Function):
    """C = A B;   dL/dA = G B^T,   dL/dB = A^T G, where G = dL/dC.

    c_ij = sum over k of a_ik b_kj: a_ik is in the whole row i of C, each time with another b_kj.
    So dL/da_ik = sum over j of g_ij b_kj, a matrix product again. The shapes confirm it:
    [n, m] [m, p] = [n, p], and the only product of G [n, p] and B of shape [n, m] is G B^T.

    A vector on the left is one row, on the right one column. Further dimensions in front are a
    batch of matrices, which are broadcast: what was repeated is summed in backward. A batch times
    one matrix is a single product with all rows of the batch, instead of one for each matrix.
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
        elif len(b_shape) <= 2:  # all rows of a, whatever its shape, with one matrix or column
            rows, inner, columns = math.prod(a_shape[:-1]), a_shape[-1], math.prod(b_shape[1:])
            g = g.reshape(rows, columns)
            if b is not None:
                ga = (g @ b.reshape(inner, columns).T).reshape(a_shape)
            if a is not None:
                gb = (a.reshape(rows, inner).T @ g).reshape(b_shape)
        else:
            matrices = a_shape if len(a_shape) > 1 else (1, *a_shape)
            g = g if len(a_shape) > 1 else g.reshape(*g.shape[:-1], 1, g.shape[-1])
            if b is not None:
                ga = g @ b.swapaxes(-1, -2)
                ga = ctx.call(SumTo, ga, matrices).reshape(a_shape)
            if a is not None:
                gb = a.reshape(matrices).swapaxes(-1, -2) @ g
                gb = ctx.call(SumTo, gb, b_shape)
        return ga, gb


@tensor_method("matmul", "__matmul__")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product `input @ other`, by the number of dimensions:

        [n] @ [n]              the sum of products, 0-d      [n, m] @ [m]       [n]
        [n, m] @ [m, p]        [n, p]                        [m] @ [m, p]       [p]
        [b..., n, m] @ [c..., m, p]    a batch of products; b... and c... are broadcast

    Raises:
        RuntimeError: the shapes do not fit.
    """
    return MatMul.apply(input, other)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    rng = np.random.default_rng(0)
    SHAPES = [
        ((4, 3), (3, 2)),
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((4, 2, 3), (3, 2)),
        ((4, 2, 3), (3,)),
        ((4, 2, 3), (4, 3, 2)),
        ((4, 1, 2, 3), (5, 3, 2)),
        ((3,), (4, 3, 2)),
        ((2, 3), (4, 3, 2)),
    ]
    for pair in SHAPES:
        a, b = (tensor(rng.random(shape), requires_grad=True) for shape in pair)
        right = gradcheck(matmul, (a, b)) and gradgradcheck(matmul, (a, b))
        print(*map(list, pair), "->", list((a @ b).shape), right)
    # -> [4, 3] [3, 2] -> [4, 2] True
    # -> [3] [3] -> [] True
    # -> [3] [3, 2] -> [2] True
    # -> [2, 3] [3] -> [2] True
    # -> [4, 2, 3] [3, 2] -> [4, 2, 2] True
    # -> [4, 2, 3] [3] -> [4, 2] True
    # -> [4, 2, 3] [4, 3, 2] -> [4, 2, 2] True
    # -> [4, 1, 2, 3] [5, 3, 2] -> [4, 5, 2, 2] True
    # -> [3] [4, 3, 2] -> [4, 2] True
    # -> [2, 3] [4, 3, 2] -> [4, 2, 2] True

    # A frozen weight: the data that enters a layer is not kept.
    layer = tensor(rng.random((3, 2)), requires_grad=False)
    data = tensor(rng.random((4, 3)), requires_grad=True)
    print("kept:", [each is not None for each in (data @ layer).grad_fn.saved])
    # -> kept: [False, True]
