"""Step jacobian08: solve for batches and vectors; the inverse

The solve of step jacobian07 wants matrices. Newton's method had a vector, and wrapped and unwrapped
it; and a thousand small systems would be a thousand calls. NumPy solves a batch of them in one
call, if both sides have the same dimensions in front. So `solve` brings them into that form: a
vector becomes a column, one A for many B is expanded (a view), and the column is taken away at the
end. Function calls that are themselves differentiable do all of it.

When is B a vector? (n,) is, or a batch of vectors, (many, n) for A of (many, n, n). The trap is a B
of (n, n) beside an A of (n, n, n): both readings fit, and PyTorch's rule decides: B is a batch of
vectors if its shape is that of A without the last dimension.

The inverse is the solution for the unit matrix. With inv(A) @ b instead of solve(A, b) a program is
slower, and less exact: the demo compares on a matrix whose rows are nearly multiples of another.

Operands that cannot be right are refused before NumPy tries: matrices that are not square, integers
(NumPy would give float64), halves, and two types.

The package gets a version number with this step: __version__.

Changed: solve. New: check_square, inv; __version__. Finished: linalg.py, version.py.
Try: a batch of 1,000 systems of 3 x 3, by one call and by a loop. How much faster is one call?
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
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# As programs print it, beside their results. pyproject.toml has the same.
__version__ = "0.1.0"


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


if __name__ == "__main__":
    from tinytorch.autograd.functional import hessian, vjp
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")

    def attempt(action):
        try:
            return action()
        except RuntimeError as reason:
            return reason

    def rosenbrock(x):  # step 25 went down this valley
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    # Newton's method in two dimensions, x - H^-1 g, and no derivative by hand.
    x = tensor([0.0, 2.0], dtype=float64)
    for _ in range(6):
        x = x - solve(hessian(rosenbrock, x), vjp(rosenbrock, x)[1])
    print(f"after 6 steps: {x[0].item():.6f} {x[1].item():.6f}")
    # -> after 6 steps: 1.000000 1.000000

    A = tensor([[2.0, 1.0], [0.0, 4.0]], requires_grad=True)
    many = solve(A, tensor([[[3.0], [4.0]], [[5.0], [8.0]]]))
    print("one A, two B:", many.tolist())  # -> one A, two B: [[[1.0], [1.0]], [[1.5], [2.0]]]
    each = solve(A.detach().expand(2, 2, 2), tensor([[3.0, 4.0], [5.0, 8.0]]))
    print("two A, a vector for each:", each.tolist())
    # -> two A, a vector for each: [[1.0, 1.0], [1.5, 2.0]]
    solve(A, tensor([3.0, 4.0])).sum().backward()
    print("through all of that:", A.grad.tolist())
    # -> through all of that: [[-0.5, -0.5], [-0.125, -0.125]]
    print(inv(A).tolist())  # -> [[0.5, -0.125], [0.0, 0.25]]

    # 1 / (i + j + 1). The solution is all ones.
    hard = tensor([[1 / (i + j + 1) for j in range(10)] for i in range(10)], dtype=float64)
    b = hard.sum(1)
    off = [(found - 1).abs().max().item() for found in (solve(hard, b), inv(hard) @ b)]
    print(
        f"off by {off[0]:.0e} or, by the inverse, {off[1]:.0e}; solve is closer: {off[0] < off[1]}"
    )  # -> ...

    print(
        attempt(lambda: inv(tensor([[1.0, 2.0], [2.0, 4.0]])))
    )  # -> linalg.solve: Singular matrix
    print(attempt(lambda: solve(tensor([1.0, 2.0]), b)))
    # -> linalg.solve: A must be square matrices, not of shape tinytorch.Size([2])
    print(attempt(lambda: inv(tensor([[1, 0], [0, 1]]))))
    # -> linalg.inv: Expected float32 or float64. Got tinytorch.int64
    print(attempt(lambda: solve(A, b)))
    # -> linalg.solve: A and B differ in type: tinytorch.float32 and tinytorch.float64
