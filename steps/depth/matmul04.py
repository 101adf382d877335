"""Step matmul04: matmul: checks of types and shapes

NumPy multiplies float32 by float64 and returns float64 without a warning. After one such constant
the rest of a network computes in float64, which is slower and is not seen. An addition promotes,
and PyTorch's product does not: mixed types are an error there, and here from now on.

A product of true and false is refused too, and of what is not a tensor. And shapes that do not fit
get an answer with the two numbers that should be equal:

    mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)

NumPy finds the shapes that do not fit, and translate_error finds out what is wrong: no dimension at
all, the inner sizes, or the batches. So a product that fits pays nothing for this. b[-2:][0] is the
inner size of a matrix and of a vector; in `rows` a batch counts all its rows, and a vector has one
number only.

The types are looked at before each product. Two tensors of one float type, the usual case, get by
with three comparisons, in one_float_type. Only what fails them goes to check_operands.

The trap: for float types NumPy has one dtype object each, so `is` may compare them, which is
quicker than `==`. A dtype of another byte order is another object; then the slower check decides.

Changed: matmul. New: MatMul.translate_error, check_operands, one_float_type.
Try: run the WRONG calls of the demo in step matmul03. Which of them get no error there?
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_
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

    @classmethod
    def translate_error(cls, error: Exception, arrays: list) -> Exception:
        a, b = (array.shape for array in arrays)
        if not a or not b:
            found = f"{len(a)}D and {len(b)}D"
            return RuntimeError(f"both arguments to matmul must be at least 1D, they are {found}")
        if a[-1] == b[-2:][0]:
            return RuntimeError(f"the batch dimensions of {list(a)} and {list(b)} do not match")
        rows = "x".join(map(str, (math.prod(a[:-1]), a[-1])[2 - len(a[:2]) :]))
        columns = "x".join(map(str, b if len(b) < 3 else b[-2:]))
        return RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows} and {columns}), of tensors with "
            f"the shapes {list(a)} and {list(b)}"
        )


def check_operands(name: str, *operands: Any) -> None:
    """Checks the operands of a product.

    Raises:
        TypeError: an operand is not a tensor.
        RuntimeError: the types differ: a product never promotes.
        NotImplementedError: the type is bool, as in PyTorch.
    """
    for number, operand in enumerate(operands, 1):
        if not isinstance(operand, Tensor):
            kind = type(operand).__name__
            raise TypeError(f"{name}(): argument {number} must be Tensor, not {kind}")
    if len({operand.array.dtype for operand in operands}) > 1:
        names = [operand.dtype.name for operand in operands]
        names = [{"float32": "float", "float64": "double"}.get(name, name) for name in names]
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {' != '.join(names)}"
        )
    if operands[0].dtype is bool_:
        raise NotImplementedError(f"{name}() is not implemented for {bool_!r}")


def one_float_type(a: Any, b: Any) -> bool:
    """Whether both are tensors of one float type: the most common case, which needs no check."""
    tensors = isinstance(a, Tensor) and isinstance(b, Tensor)
    return tensors and a.array.dtype is b.array.dtype and a.array.dtype.kind == "f"


@tensor_method("matmul", "__matmul__")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product `input @ other`, by the number of dimensions:

        [n] @ [n]              the sum of products, 0-d      [n, m] @ [m]       [n]
        [n, m] @ [m, p]        [n, p]                        [m] @ [m, p]       [p]
        [b..., n, m] @ [c..., m, p]    a batch of products; b... and c... are broadcast

    Raises:
        RuntimeError: the shapes do not fit, or the types differ.
    """
    if not one_float_type(input, other):
        check_operands("matmul", input, other)
    return MatMul.apply(input, other)


if __name__ == "__main__":
    A, double = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), tensor(np.ones((3, 2)))
    batch = tensor(np.ones((4, 3, 2), np.float32))
    print("NumPy:", (A.array @ double.array).dtype)  # -> NumPy: float64
    WRONG = {
        "types": lambda: A @ double,
        "a list": lambda: A @ [1.0, 2.0, 3.0],
        "true and false": lambda: tensor([True]) @ tensor([True]),
        "shapes": lambda: A @ A,
        "a vector": lambda: tensor([1.0, 2.0]) @ tensor([1.0]),
        "a number": lambda: A @ tensor(2.0),
        "batches": lambda: batch.reshape(2, 2, 2, 3) @ batch,
    }
    for what, wrong in WRONG.items():
        try:
            wrong()
        except (RuntimeError, TypeError) as error:
            print(f"{what}: {str(error).partition(', of tensors')[0]}")
    # -> types: expected m1 and m2 to have the same dtype, but got: float != double
    # -> a list: matmul(): argument 2 must be Tensor, not list
    # -> true and false: matmul() is not implemented for tinytorch.bool
    # -> shapes: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)
    # -> a vector: mat1 and mat2 shapes cannot be multiplied (2 and 1)
    # -> a number: both arguments to matmul must be at least 1D, they are 2D and 0D
    # -> batches: the batch dimensions of [2, 2, 2, 3] and [4, 3, 2] do not match

    print("integers:", (tensor([1, 2]) @ tensor([3, 4])).item())  # -> integers: 11
