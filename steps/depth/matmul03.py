"""Step matmul03: Gradients of halves: matmul_arrays on Tensors

The gradients G B^T and A^T G are products of halves as well, and step matmul02 left them to NumPy's
slow loop. But matmul_arrays cannot simply stand in backward. Backward runs on arrays, or on Tensors
if the gradient is to be differentiated again (step 33). A Tensor has no astype; and converted to an
array, it would lose its history.

    arrays of halves      by way of float32, as in step matmul02
    Tensors of halves     `@`: the operation itself, which records a node

singledispatch chooses the function by the type of the first argument: matmul_tensors for a Tensor,
matmul_halves for anything else.

The trap: singledispatch looks at the first argument only. All products here have two Tensors or two
arrays, so the first one tells.

Changed: matmul_arrays, MatMul.backward. New: matmul_halves, matmul_tensors.
Try: leave matmul_tensors out. Which line of the demo fails?
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

    from tinytorch.autograd.backward import grad

    # The plain function cannot take Tensors.
    half = tensor(np.full((1, 1), 0.5, np.float16))
    try:
        matmul_halves.dispatch(np.ndarray)(half, half)
    except AttributeError as error:
        print(error)  # -> 'DType' object has no attribute 'kind'
    print("on Tensors:", matmul_arrays(half, half).item())  # -> on Tensors: 0.25

    # Forward and backward, for each case, and a second derivative.
    rng = np.random.default_rng(0)
    for pair in [((8, 64), (64, 8)), ((2, 8, 64), (64, 8)), ((2, 8, 64), (2, 64, 8))]:
        arrays = [rng.random(shape).astype(np.float16) for shape in pair]
        a, b = (tensor(array, requires_grad=True) for array in arrays)
        (ga,) = grad((a @ b).sum(), a, create_graph=True)
        (gb,) = grad((ga * ga).sum(), b)
        print(list((a @ b).shape), "gradients:", ga.dtype, gb.dtype)
    # -> [8, 8] gradients: tinytorch.float16 tinytorch.float16
    # -> [2, 8, 8] gradients: tinytorch.float16 tinytorch.float16
    # -> [2, 8, 8] gradients: tinytorch.float16 tinytorch.float16

    short = np.full((1, 3), 100, np.int16)
    print("integers:", matmul_arrays(short, short.T).item())  # -> integers: 30000

    a = tensor(rng.random((256, 256)).astype(np.float16), requires_grad=True)
    y = a @ a
    one = tensor(np.ones_like(y.array))
    backward = min(timeit.repeat(lambda: grad(y, a, one, retain_graph=True), number=1))
    loops = 2 * min(timeit.repeat(lambda: a.array @ a.array, number=1))
    print(f"backward takes {backward / loops:.3f} of the time of NumPy's two products")  # -> ...
