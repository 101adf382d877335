"""Step matmul02: Products of halves, through float32

BLAS, the library of fast products, has no product of float16. NumPy's own @ of halves is a plain
loop: in the demo the product of two float16 matrices takes several times as long as the product of
the same matrices in float32. So matmul_arrays converts, multiplies, and converts back:

    (a as float32 @ b as float32), rounded to float16        one rounding, at the end

The conversions cost little: a product of two [n, n] matrices converts 3 n^2 numbers and makes n^3
products. The sums of products must be in float32 anyway. float16 has 11 bits, so a sum that has
reached 2,048 does not grow by adding ones. The demo adds 4,096 quarters one by one, and finds 512
in place of 1,024. NumPy's loop sums halves in float32, too, and so do graphics cards.

Integers of two bytes stay integers: float32 could not hold all their sums.

The trap: the result is still float16, and 65,504 is its largest number. The sum may be exact in
between and inf at the end.

Changed: MatMul.forward. New: matmul_arrays.
Try: multiply a row of seven 100s in float16 by itself; then a row of seven 90s.
"""

import math
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction, shape  # noqa: F401  (their methods)
from tinytorch.ops.broadcast import SumTo


def matmul_arrays(a: Any, b: Any) -> Any:
    """a @ b; floats with 2 bytes an element are summed in float32, and rounded once."""
    if a.dtype.itemsize != 2 or a.dtype.kind in "iu":
        return a @ b
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


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
            return matmul_arrays(rows, b).reshape(a.shape[:-1] + b.shape[1:])
        return matmul_arrays(a, b)

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
    import timeit

    half = np.full(4096, 0.5, np.float16)
    one_by_one = np.float16(0)
    for product in half * half:
        one_by_one += product
    print("4,096 quarters:", float(one_by_one), "ours:", (tensor(half) @ tensor(half)).item())
    # -> 4,096 quarters: 512.0 ours: 1024.0

    rng = np.random.default_rng(0)
    for pair in [((8, 64), (64, 8)), ((2, 8, 64), (64, 8)), ((2, 8, 64), (2, 64, 8))]:
        a, b = (tensor(rng.random(shape).astype(np.float16)) for shape in pair)
        exact = a.array.astype(np.float64) @ b.array.astype(np.float64)
        right = ((a @ b).array == exact.astype(np.float16)).mean()
        print(list(exact.shape), (a @ b).dtype, "rounded once:", right > 0.99)
    # -> [8, 8] tinytorch.float16 rounded once: True
    # -> [2, 8, 8] tinytorch.float16 rounded once: True
    # -> [2, 8, 8] tinytorch.float16 rounded once: True

    short = tensor(np.full(3, 100, np.int16))
    print("integers:", (short @ short).item(), (short @ short).dtype)
    # -> integers: 30000 tinytorch.int16

    a = rng.random((256, 256)).astype(np.float16)
    wide = a.astype(np.float32)

    def seconds(product, x):
        return min(timeit.repeat(lambda: product(x, x), number=1))

    fast, loop, ours = seconds(np.matmul, wide), seconds(np.matmul, a), seconds(matmul_arrays, a)
    print(f"float32 takes {fast / loop:.3f} of the time of NumPy's float16, ours {ours / loop:.3f}")
    # -> ...
