"""Step distribution11: The Cholesky decomposition: the root of a covariance

A normal number with variance v is sqrt(v) times a standard normal one. For vectors the variance is
a matrix A, the covariance, and the root that is needed is a matrix L with

    L L^T = A            since L eps has the covariance L E[eps eps^T] L^T = L L^T

There are many such L. One is lower triangular with a positive diagonal, and it can be written down
row by row: this is the Cholesky decomposition. It exists where A is symmetric and positive
definite; LAPACK stops at the first negative number under a root.

Its derivative follows from dA = dL L^T + L dL^T, with L^-1 on the left and L^-T on the right:

    L^-1 dA L^-T = P + P^T,   P = L^-1 dL: lower triangular, so it is the lower triangle of the
                              left side, with half of the diagonal

In backward, with G for the gradient of L, the same steps in reverse:

    gradient of A = L^-T S L^-1, made symmetric;   S: lower triangle of L^T G, half its diagonal

The trap: only the lower triangle of A is read, but the gradient is symmetric: A[i, j] and A[j, i]
get half each, so a step of an optimizer leaves A symmetric. PyTorch does the same.

`saves = ~0, None`: the result is kept, and a constant (step node02).

New: Cholesky, cholesky. linalg.py (step jacobian08) is resumed.
Try: leave the halves out of `backward`, and compare with the numbers of the demo.
"""

import importlib
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.broadcast import broadcast_shapes
from tinytorch.ops.creation import eye

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul slicing reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class LinAlgError(RuntimeError):
    """The matrix is singular."""


class LinalgFunction(Function):
    """An operation on matrices: the last two dimensions. Those before them are a batch."""

    @classmethod
    def translate_error(cls, error: Exception, arrays: list) -> Exception:
        if isinstance(error, np.linalg.LinAlgError):
            return LinAlgError(f"linalg.{cls.__name__.lower()}: {error}")
        return super().translate_error(error, arrays)


class Solve(LinalgFunction):
    """X with A X = B;   dL/dB = A^-T G,   dL/dA = -(dL/dB) X^T."""

    saves = 0, ~0

    def forward(ctx, a: Any, b: Any) -> Any:
        x = ctx.xp.linalg.solve(a, b)
        ctx.save_for_backward(a, x)
        return x

    def backward(ctx, g: Any) -> Any:
        a, x = ctx.saved
        gb = ctx.call(Solve, a.swapaxes(-1, -2), g)
        return -(gb @ x.swapaxes(-1, -2)), gb


def check_square(name: str, A: Tensor) -> Tensor:
    """Returns A if it holds square matrices.

    Raises:
        RuntimeError: A is not made of square matrices of float32 or float64.
    """
    if A.array.ndim < 2 or A.array.shape[-1] != A.array.shape[-2]:
        raise RuntimeError(f"linalg.{name}: A must be square matrices, not of shape {A.shape}")
    if A.array.dtype.kind != "f" or A.array.itemsize < 4:
        raise RuntimeError(f"linalg.{name}: Expected float32 or float64. Got {A.dtype!r}")
    return A


@checked
def solve(A: Tensor, B: Tensor) -> Tensor:
    """X with A X = B: A [..., n, n], B [..., n, k] or one vector for each A.

    Raises:
        LinAlgError: a matrix of A is singular.
        RuntimeError: the shapes do not fit, or the types differ.
    """
    if check_square("solve", A).dtype is not B.dtype:
        raise RuntimeError(f"linalg.solve: A and B differ in type: {A.dtype!r} and {B.dtype!r}")
    vector = B.array.ndim == 1 or B.array.shape == A.array.shape[:-1]
    B = B.unsqueeze(-1) if vector else B
    if B.array.shape[-2:-1] != A.array.shape[-1:]:
        raise RuntimeError(
            f"linalg.solve: Incompatible shapes of A and B for the equation AX = B: "
            f"{tuple(A.shape)} and {tuple(B.shape)}"
        )
    many = broadcast_shapes(A.shape[:-2], B.shape[:-2])
    X = Solve.apply(*(M.expand(*many, *M.shape[-2:]) for M in (A, B)))
    return X.squeeze(-1) if vector else X


@tensor_method("inverse")
def inv(A: Tensor) -> Tensor:
    """The inverse: X with A X = 1. To solve equations, `solve` is faster and more exact.

    Raises:
        LinAlgError: a matrix of A is singular.
        RuntimeError: A is not made of square matrices of float32 or float64.
    """
    unit = eye(check_square("inv", A).array.shape[-1], dtype=A.dtype, device=A.device)
    return Solve.apply(A, unit.expand(A.shape))


class Cholesky(LinalgFunction):
    """L, lower triangular, with L L^T = A.   dL/dA = L^-T S L^-1, made symmetric, where S is the
    lower triangle of L^T G with half of its diagonal.

    Source: Murray, Differentiation of the Cholesky decomposition, 2016.
    """

    saves = ~0, None

    def forward(ctx, a: Any) -> Any:
        lower = ctx.xp.linalg.cholesky(a)
        if not ctx.xp.isfinite(lower).all():
            raise np.linalg.LinAlgError("Matrix holds nan or inf")
        halves = ctx.xp.tri(a.shape[-1], dtype=a.dtype)
        halves -= 0.5 * ctx.xp.eye(a.shape[-1], dtype=a.dtype)
        ctx.save_for_backward(lower, halves)
        return lower

    def backward(ctx, g: Any) -> Any:
        lower, halves = ctx.saved
        upper = lower.swapaxes(-1, -2)
        s = (upper @ g) * halves
        half = ctx.call(Solve, upper, s)  # L^-T S, and then (L^-T (L^-T S)^T)^T
        a = ctx.call(Solve, upper, half.swapaxes(-1, -2))
        return (a + a.swapaxes(-1, -2)) * 0.5


@tensor_method("cholesky")
@checked
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """L, lower triangular and with a positive diagonal, with L L^T = A; or L^T, where `upper`.

    A is symmetric: only its lower triangle is read; its upper one, where `upper`.
    Raises:
        LinAlgError: A is not positive definite, or holds nan or inf.
        RuntimeError: A is not made of square matrices of float32 or float64.
    """
    check_square("cholesky", A)
    return Cholesky.apply(A.mT).mT if upper else Cholesky.apply(A)


if __name__ == "__main__":
    importlib.import_module("tinytorch.autograd.backward")
    from tinytorch.core.tensor import tensor

    A = tensor([[4.0, 2.0], [2.0, 10.0]], requires_grad=True)
    L = cholesky(A)
    print(L.tolist(), (L @ L.T).tolist())  # -> [[2.0, 0.0], [1.0, 3.0]] [[4.0, 2.0], [2.0, 10.0]]
    print((cholesky(A, upper=True) == L.T).all().item(), (A.cholesky() == L).all().item())
    # -> True True

    # The gradient of L[1, 1] = sqrt(A11 - A10 A01 / A00), by hand and by Cholesky.
    L[1, 1].backward()
    by_hand = [[0.25 / 6, -0.5 / 6], [-0.5 / 6, 1 / 6]]
    print([[round(x, 6) for x in row] for row in by_hand])
    # -> [[0.041667, -0.083333], [-0.083333, 0.166667]]
    print([[round(x, 6) for x in row] for row in A.grad.tolist()])
    # -> [[0.041667, -0.083333], [-0.083333, 0.166667]]
    print(cholesky(tensor([[4.0, 2.0], [0.0, 10.0]]), upper=True).tolist())
    # -> [[2.0, 1.0], [0.0, 3.0]]
    for wrong in (2.0, float("nan")):
        try:
            cholesky(tensor([[1.0, 2.0], [wrong, 1.0]]))
        except LinAlgError as error:
            print(error)
    # -> linalg.cholesky: Matrix is not positive definite
    # -> linalg.cholesky: Matrix holds nan or inf
