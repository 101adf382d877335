"""Step jacobian07: solve, and the gradient of a solution

What is a whole Hessian good for? Near a place x, a function is about a parabola with the slope g
and the curvature H, and the parabola has its minimum at x - d, where H d = g. So Newton's method
has to solve equations. To divide by a matrix is to use its inverse, but there is no need to compute
it: `solve` finds the d in a third of the time, and more exactly.

A solution can be differentiated like any other result. From A X = B follows

    dA X + A dX = dB,     so     dX = A^-1 (dB - dA X)

and for the gradient G that arrives at X:   dL/dB = A^-T G,   dL/dA = -(dL/dB) X^T.

The gradient of a solution is the solution for the gradient, with A transposed. The formula for
dL/dA uses dL/dB, so it is computed once. And as backward calls Solve again, it can be
differentiated, too.

The trap is a matrix without a solution. If one row is a multiple of another, elimination divides by
zero, and NumPy raises an error of its own, numpy.linalg.LinAlgError, which a program for PyTorch
does not catch. translate_error (step errors01) makes ours of it: LinAlgError, with the operation's
name. A matrix that is nearly singular raises nothing, and gives numbers without meaning.

In PyTorch these are torch.linalg.solve and torch.linalg.LinAlgError.

`saves = 0, ~0` declares what is kept: A, and the result (step node02).

New: LinAlgError, LinalgFunction, Solve, solve.
Try: solve(A, eye(2)). What is the result, times A?
"""

import importlib
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
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


@checked
def solve(A: Tensor, B: Tensor) -> Tensor:
    """X with A X = B: A (n, n), B (n, k).

    Raises:
        LinAlgError: A is singular.
        RuntimeError: the shapes do not fit.
    """
    if B.array.shape[-2:-1] != A.array.shape[-1:]:
        raise RuntimeError(
            f"linalg.solve: Incompatible shapes of A and B for the equation AX = B: "
            f"{tuple(A.shape)} and {tuple(B.shape)}"
        )
    return Solve.apply(A, B)


if __name__ == "__main__":
    from tinytorch.autograd.functional import hessian, vjp
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    def rosenbrock(x):  # step 25 went down this valley
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    # Down this valley, step 25 took thousands of steps. Newton's method:
    x = tensor([0.0, 2.0], dtype=float64)
    for _ in range(6):
        x = x - solve(hessian(rosenbrock, x), vjp(rosenbrock, x)[1].unsqueeze(1)).squeeze(1)
    print(f"after 6 steps: {x[0].item():.6f} {x[1].item():.6f}")
    # -> after 6 steps: 1.000000 1.000000

    A = tensor([[2.0, 1.0], [0.0, 4.0]], requires_grad=True)
    B = tensor([[3.0], [4.0]], requires_grad=True)
    X = solve(A, B)
    print("X:", X.tolist(), "A X:", (A @ X).tolist())  # -> X: [[1.0], [1.0]] A X: [[3.0], [4.0]]
    X.sum().backward()
    print("dL/dB:", B.grad.tolist(), "dL/dA:", A.grad.tolist())
    # -> dL/dB: [[0.5], [0.125]] dL/dA: [[-0.5, -0.5], [-0.125, -0.125]]

    # As measured: one element of A moves a little.
    moved = solve(tensor([[2.0, 1.001], [0.0, 4.0]]), B.detach()).sum().item()
    print("by element (0, 1):", round((moved - 2) / 0.001, 2))  # -> by element (0, 1): -0.5

    try:
        solve(tensor([[1.0, 2.0], [2.0, 4.0]]), B)
    except LinAlgError as reason:
        print(reason)  # -> linalg.solve: Singular matrix
    try:
        solve(tensor([[1.0, 2.0], [2.0, 5.0]]), tensor([[1.0], [2.0], [3.0]]))
    except RuntimeError as reason:
        print(reason)
        # -> linalg.solve: Incompatible shapes of A and B for the equation AX = B: (2, 2) and (3, 1)
    try:
        solve(A.expand(2, 2, 2), B.expand(3, 2, 1))  # NumPy's other errors are translated as before
    except RuntimeError as reason:
        print(reason)
        # -> The size of tensor a (2) must match the size of tensor b (3) at ...
