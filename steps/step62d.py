"""Step 62d: Products of halves, summed in float32

float16 has 11 bits. A sum that has reached 2,048 does not grow by adding ones: 2,049 is between two
numbers and is rounded back. A product adds up m numbers, so halves that are added as halves go
wrong for a large m: the demo finds 512 in place of 1,024. Graphics cards add the products of halves
up in float32, and round once at the end. So do we:

    (a as float32 @ b as float32), rounded to float16        exact sums, one rounding

NumPy's own @ of halves is no help. It has no BLAS (the library of fast products) for them and is a
plain loop: to convert, multiply and convert back is many times faster, as the demo measures.

The gradients are products of halves as well, so all products go through one function,
matmul_arrays. Backward runs on arrays or on Tensors (step 33), and a Tensor of halves must become
the operation again, not an array. singledispatch chooses the function by the type of the first
argument: for a Tensor `@`, for anything else the detour. (A GPU has its own form, later.)

Integers of two bytes stay integers: float32 could not hold all their sums.

The trap: the result is still float16, and 65,504 is its largest number. The sum may be exact in
between and inf at the end.

Changed: MatMul. New: matmul_arrays, matmul_halves, matmul_tensors.
Try: leave matmul_tensors out, and ask for the second derivative of a product of halves.
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction, shape  # noqa: F401  (their methods)
from tinytorch.ops.broadcast import SumTo


@functools.singledispatch
def matmul_halves(a: Any, b: Any) -> Any:
    """a @ b of arrays with 2 bytes an element: floats are summed in float32 and rounded once."""
    if a.dtype.kind in "iu":
        return a @ b
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


@matmul_halves.register(Tensor)
def matmul_tensors(a: Tensor, b: Tensor) -> Tensor:
    """On Tensors, `@` is the operation itself."""
    return a @ b


def matmul_arrays(a: Any, b: Any) -> Any:
    """a @ b, of arrays or of Tensors."""
    return a @ b if a.dtype.itemsize != 2 else matmul_halves(a, b)


class MatMul(Function):
    """C = A B;   dL/dA = G B^T,   dL/dB = A^T G, where G = dL/dC.

    c_ij = sum over k of a_ik b_kj: a_ik is in the whole row i of C, each time with another b_kj.
    So dL/da_ik = sum over j of g_ij b_kj, a matrix product again. The shapes confirm it:
    [n, m] [m, p] = [n, p], and the only product of G [n, p] and B of shape [n, m] is G B^T.

    A vector on the left is one row, on the right one column. Further dimensions in front are a
    batch of matrices, which are broadcast: what was repeated is summed in backward. A batch times
    one matrix is a single product with all rows of the batch, many times as fast as a loop.
    """

    def forward(ctx, a: Any, b: Any) -> Any:
        need_a, need_b = ctx.needs_input_grad
        ctx.save_for_backward(a if need_b else None, b if need_a else None)
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
            ga = None if b is None else matmul_arrays(g, b.T)
            gb = None if a is None else matmul_arrays(a.T, g)
        elif len(b_shape) <= 2:  # all rows of a, whatever its shape, with one matrix or column
            rows, inner, columns = math.prod(a_shape[:-1]), a_shape[-1], math.prod(b_shape[1:])
            g = g.reshape(rows, columns)
            if b is not None:
                ga = matmul_arrays(g, b.reshape(inner, columns).T).reshape(a_shape)
            if a is not None:
                gb = matmul_arrays(a.reshape(rows, inner).T, g).reshape(b_shape)
        else:
            matrices = a_shape if len(a_shape) > 1 else (1, *a_shape)
            g = g if len(a_shape) > 1 else g.reshape(*g.shape[:-1], 1, g.shape[-1])
            if b is not None:
                ga = matmul_arrays(g, b.swapaxes(-1, -2))
                ga = ctx.call(SumTo, ga, matrices).reshape(a_shape)
            if a is not None:
                gb = matmul_arrays(a.reshape(matrices).swapaxes(-1, -2), g)
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

    from tinytorch.autograd.engine import grad

    half = np.full(4096, 0.5, np.float16)
    one_by_one = np.float16(0)
    for product in half * half:
        one_by_one += product
    print("4,096 quarters:", float(one_by_one), "ours:", (tensor(half) @ tensor(half)).item())
    # -> 4,096 quarters: 512.0 ours: 1024.0

    # Forward and backward, for each case, and a second derivative.
    rng = np.random.default_rng(0)
    for pair in [((8, 64), (64, 8)), ((2, 8, 64), (64, 8)), ((2, 8, 64), (2, 64, 8))]:
        arrays = [rng.random(shape).astype(np.float16) for shape in pair]
        a, b = (tensor(array, requires_grad=True) for array in arrays)
        (ga,) = grad((a @ b).sum(), a, create_graph=True)
        (gb,) = grad((ga * ga).sum(), b)
        exact = np.matmul(*(array.astype(np.float64) for array in arrays))
        right = ((a @ b).array == exact.astype(np.float16)).mean()
        print(list(exact.shape), "rounded once:", right > 0.99, "gradients:", ga.dtype, gb.dtype)
    # -> [8, 8] rounded once: True gradients: tinytorch.float16 tinytorch.float16
    # -> [2, 8, 8] rounded once: True gradients: tinytorch.float16 tinytorch.float16
    # -> [2, 8, 8] rounded once: True gradients: tinytorch.float16 tinytorch.float16

    short = tensor(np.full(3, 100, np.int16))
    print("integers:", (short @ short).item(), (short @ short).dtype)
    # -> integers: 30000 tinytorch.int16
    a = rng.random((128, 128)).astype(np.float16)
    numpy = min(timeit.repeat(lambda: a @ a, number=1))
    ours = min(timeit.repeat(lambda: matmul_halves(a, a), number=1))
    print(f"with float32 in between: {ours / numpy:.3f} of the time of NumPy")  # -> ...
