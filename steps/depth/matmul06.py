"""Step matmul06: Mixed types are allowed under autocast

Half the bytes, nearly twice the speed: large networks compute their products in float16 and keep
the rest in float32. To write a cast at each product is tedious, and a mode (step 65d) can do it:
it sees each call with its arguments, before the Function runs. The demo has such a mode in four
lines. But it never gets to see a product of mixed types. check_operands of step matmul04 has
refused it before.

    matmul(float32, float16)  ->  check_operands: refused       the mode would have cast both

So the check asks the open modes first: one that has `one_type` promises to make the types equal.
Only types are excused; what is not a tensor is refused in any case.

`getattr(mode, "one_type", False)` is False for all other modes, such as one that counts calls. And
it is asked only if the types differ, so a product that fits pays nothing.

The trap: the promise has to be kept. A mode that says one_type and casts nothing gives NumPy's
silent float64 back.

Step amp02 builds such a mode in full. PyTorch calls it autocast.

Changed: check_operands.
Try: take the line `one_type = True` out of the demo's mode.
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import with_out
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops import reduction, shape  # noqa: F401  (their methods)
from tinytorch.ops.arithmetic import mul
from tinytorch.ops.broadcast import SumTo
from tinytorch.ops.shape import reshape


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

    def name(ctx) -> str:
        """PyTorch's name: it has an operation for each of these pairs of dimensions."""
        names = {(1, 1): "Dot", (2, 1): "Mv", (2, 2): "Mm", (3, 3): "Bmm"}
        return f"{names.get(tuple(map(len, ctx.shapes)), 'UnsafeView')}Backward0"

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
    mixed = len({operand.array.dtype for operand in operands}) > 1
    # A mode may give them one type: autocast does.
    if mixed and not any(getattr(mode, "one_type", False) for mode in state.modes):
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


@with_out
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


def check_ndims(name: str, a: Tensor, b: Tensor, *wanted: int) -> None:
    """Checks the number of dimensions of both operands: vector (1), matrix (2) or batch (3).

    Raises:
        RuntimeError: an operand does not have the number of dimensions that is expected of it.
    """
    if not one_float_type(a, b):
        check_operands(name, a, b)
    found = a.array.ndim, b.array.ndim
    if found != wanted:
        wanted, found = (" and ".join(f"{n}D" for n in ndims) for ndims in (wanted, found))
        raise RuntimeError(f"{name}(): {wanted} tensors expected, but got {found} tensors")


@tensor_method("mm")
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """[n, m] times [m, p]: matrices only."""
    check_ndims("mm", input, mat2, 2, 2)
    return MatMul.apply(input, mat2)


@tensor_method("bmm")
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """[b, n, m] times [b, m, p]: as many matrices on both sides, no broadcasting."""
    check_ndims("bmm", input, mat2, 3, 3)
    a, b = input.array.shape, mat2.array.shape
    if (a[0], a[2]) != b[:2]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a[0]}, {a[2]}] but "
            f"got: {list(b[:2])}."
        )
    return MatMul.apply(input, mat2)


@tensor_method("mv")
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """[n, m] times [m]."""
    check_ndims("mv", input, vec, 2, 1)
    return MatMul.apply(input, vec)


@tensor_method("dot", "vdot")
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of products of two vectors."""
    check_ndims("dot", input, tensor, 1, 1)
    return MatMul.apply(input, tensor)


@tensor_method("outer", "ger")
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of two vectors: [n] and [m] give [n, m]."""
    if input.array.ndim != 1 or vec2.array.ndim != 1:
        found = f"{input.array.ndim}-D and {vec2.array.ndim}-D"
        raise RuntimeError(f"outer: Expected 1-D arguments, but got {found}")
    return mul(reshape(input, input.array.size, 1), vec2)


if __name__ == "__main__":
    from tinytorch.autograd.modes import FunctionMode

    class Halves(FunctionMode):
        one_type = True

        def call(self, function, args):
            return function.apply(*(arg.half() for arg in args))

    class Counter(FunctionMode):
        count = 0

        def call(self, function, args):
            self.count += 1
            return function.apply(*args)

    x, w = tensor([[1.0, 2.0]]).half(), tensor([[3.0], [4.0]])
    with Halves():
        print("one type:", (x @ w).dtype, (x @ w).item())  # -> one type: tinytorch.float16 11.0

    counter = Counter()
    for mode in (counter, Halves()):
        with mode:
            try:
                x @ (w if mode is counter else [3.0, 4.0])
            except (RuntimeError, TypeError) as error:
                print(f"{type(mode).__name__}: {error}")
    # -> Counter: expected m1 and m2 to have the same dtype, but got: float16 != float
    # -> Halves: matmul(): argument 2 must be Tensor, not list
    print("calls that it saw:", counter.count)  # -> calls that it saw: 0
