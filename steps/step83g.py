"""Step 83g: Whole derivatives

backward() goes from one number to all inputs: one row of the Jacobian J, the table of all
dy_i/dx_j. autograd.functional has the rest, and all of it is made of grad:

    v^T J   one backward pass (vjp): what every layer of a network does with what arrives
    J       one row after the other (jacobian): as many passes as there are outputs
    J v     two passes (jvp): v^T J is linear in v, and its derivative in direction u is J u
    H       the Jacobian of the gradient (hessian): n passes for n numbers
    H v     two passes (hvp): the curvature in one direction, and the n x n table is never there

The trap is the size: the Hessian of the network of step 65o, with 17,226 numbers, has 297 million
entries. Where a product with a vector is all that you need, never make the matrix.

What is a whole matrix good for? Newton's method goes to the place where a parabola with this slope
and this curvature has its minimum, x - H^-1 g. There is no need to invert H: `solve` finds the d
with H d = g in a third of the time, and more exactly.

A solution can be differentiated. From A X = B follows dA X + A dX = dB, so dX = A^-1 (dB - dA X):
the gradient of a solution is the solution for the gradient, with A transposed.

(In PyTorch, torch.func is the younger way to these products; autograd.functional came first. The
functions on matrices are in torch.linalg.)

New: vjp, jvp, jacobian, hessian, vhp, hvp; solve, inv; __version__. Modules
finished: autograd/functional.py, linalg.py, version.py.
Try: a hessian of a function that returns its input. What does the error ask for?
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.engine import as_sequence, grad
from tinytorch.autograd.modes import enable_grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.broadcast import broadcast_shapes
from tinytorch.ops.creation import eye, ones_like, zeros, zeros_like
from tinytorch.ops.joining import stack
from tinytorch.ops.shape import view_as

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def call_on_leaves(func: Callable, inputs: Any, create_graph: bool) -> tuple[tuple, Any]:
    """(leaves, what func gives for them), recorded. With create_graph, inputs that require a
    gradient stay what they are, so that the result can be differentiated with respect to them.

    TypeError where an input or an output is no tensor."""
    leaves = []
    for x in as_sequence(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"The inputs must be Tensors, but one is a {type(x).__name__}")
        keep = create_graph and x.requires_grad
        leaves.append(view_as(x, x) if keep else x.detach().requires_grad_())
    with enable_grad():
        outputs = func(*leaves)
    for y in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        if not isinstance(y, Tensor):
            raise TypeError(f"The function must return Tensors, but gave a {type(y).__name__}")
    return tuple(leaves), outputs


def back(ys: tuple, xs: tuple, vectors: tuple, create_graph: bool, strict: bool = False) -> tuple:
    """v^T J: for each of xs the gradient of all ys, at which `vectors` arrive. Where none of them
    depends on x it is zero, or, if `strict`, a RuntimeError."""
    pairs = [(y, v) for y, v in zip(ys, vectors, strict=True) if y.requires_grad]
    found: Any = [None] * len(xs)
    if pairs:
        outputs, arriving = zip(*pairs, strict=True)
        found = grad(outputs, xs, arriving, True, create_graph, allow_unused=True)
    if strict and None in found:
        raise RuntimeError(f"The outputs do not depend on input {found.index(None)}: strict=True")
    return tuple(zeros_like(x) if g is None else g for x, g in zip(xs, found, strict=True))


def vectors_for(tensors: tuple, v: Any, what: str) -> tuple:
    """The vectors of a product; 1 where none is given for a single number. RuntimeError where they
    do not fit."""
    if v is None:
        if len(tensors) > 1 or tensors[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {what} is a single number.")
        return (ones_like(tensors[0]),)
    vectors = as_sequence(v)
    shapes = [[tuple(x.shape) for x in group] for group in (vectors, tensors)]
    if shapes[0] != shapes[1]:
        raise RuntimeError(f"v has the shapes {shapes[0]}, and {what} {shapes[1]}")
    return vectors


def as_given(results: tuple, like: Any) -> Any:
    """One result where there was one tensor, not in a tuple; else all."""
    return results[0] if isinstance(like, Tensor) else tuple(results)


def without_graph(outputs: Any, create_graph: bool) -> Any:
    if create_graph:
        return outputs
    return as_given(tuple(y.detach() for y in as_sequence(outputs)), outputs)


def vjp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """(outputs, v^T J): one backward pass, for vectors in the shapes of the outputs."""
    xs, outputs = call_on_leaves(func, inputs, create_graph)
    vectors = vectors_for(as_sequence(outputs), v, "the output")
    found = back(as_sequence(outputs), xs, vectors, create_graph, strict)
    return without_graph(outputs, create_graph), as_given(found, inputs)


def jvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """(outputs, J v), for vectors in the shapes of the inputs: how the outputs change on the way.

    Two backward passes: u^T J is linear in u, and its derivative in the direction v is J v."""
    xs, outputs = call_on_leaves(func, inputs, create_graph)
    ys = as_sequence(outputs)
    us = tuple(zeros_like(y).requires_grad_() for y in ys)
    found = back(ys, xs, us, True, strict)
    found = back(found, us, vectors_for(xs, v, "the input"), create_graph, strict)
    return without_graph(outputs, create_graph), as_given(found, outputs)


def jacobian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False) -> Any:
    """The matrix of all dy_i/dx_j, in the shape [*y.shape, *x.shape]: one backward pass for each
    element of y. For several outputs or inputs a tuple for each, the outputs outside."""
    xs, outputs = call_on_leaves(func, inputs, create_graph)
    rows = []
    for y in as_sequence(outputs):
        n = y.numel()
        units = eye(n, dtype=y.dtype, device=y.device).reshape(n, *y.shape)
        found = [back((y,), xs, (unit,), create_graph, strict) for unit in units.unbind(0)]
        parts = zip(*found, strict=True) if found else [[zeros(0, *x.shape)] for x in xs]
        row = [stack(part).reshape(*y.shape, *x.shape) for part, x in zip(parts, xs, strict=True)]
        rows.append(as_given(tuple(row), inputs))
    return as_given(tuple(rows), outputs)


def slope_of(func: Callable, strict: bool) -> Callable:
    """The gradient of a function with one number as its result, as a function. RuntimeError for
    another result."""

    def slope(*xs: Tensor) -> tuple:
        y = func(*xs)
        if not isinstance(y, Tensor) or y.numel() != 1:
            raise RuntimeError("The function must return one Tensor with a single element")
        return back((y,), xs, (ones_like(y),), True, strict)

    return slope


def hessian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False) -> Any:
    """The matrix of all second derivatives, d2y/dx_i dx_j: the Jacobian of the gradient."""
    found = jacobian(slope_of(func, strict), inputs, create_graph, strict)
    return found[0] if isinstance(inputs, Tensor) else found


def vhp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """(output, v^T H) at the price of two backward passes: H itself is never there. A Hessian is
    symmetric, so this is H v as well."""
    xs, output = call_on_leaves(func, inputs, create_graph)
    with enable_grad():
        slopes = slope_of(lambda *_: output, strict)(*xs)
    vectors = vectors_for(xs, v, "the input")
    found = back(slopes, xs, vectors, create_graph, strict)
    return without_graph(output, create_graph), as_given(found, inputs)


hvp = vhp


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
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")

    def rosenbrock(x):  # step 25 went down this valley
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    start = tensor([0.0, 2.0])
    print(hessian(rosenbrock, start).tolist())  # -> [[-798.0, 0.0], [0.0, 200.0]]
    value, product = hvp(rosenbrock, start, tensor([1.0, 1.0]))
    print(value.item(), product.tolist())  # -> 401.0 [-798.0, 200.0]

    # Newton's method in two dimensions, x - H^-1 g, and no derivative by hand.
    x = tensor([0.0, 2.0], dtype=float64)
    for _ in range(6):
        x = x - solve(hessian(rosenbrock, x), vjp(rosenbrock, x)[1])
    print(f"after 6 steps: {x[0].item():.6f} {x[1].item():.6f}")
    # -> after 6 steps: 1.000000 1.000000

    # A rotation of the plane keeps lengths and areas: J^T J is the identity.
    def rotated(p):
        angle = tensor(0.5)
        c, s = angle.cos(), angle.sin()
        return stack([c * p[0] - s * p[1], s * p[0] + c * p[1]])

    p = tensor([3.0, 4.0])
    J = jacobian(rotated, p)
    print(J.shape, (J.T @ J - eye(2)).abs().max().item() < 1e-6)  # -> tinytorch.Size([2, 2]) True
    _, row = vjp(rotated, p, tensor([1.0, 0.0]))
    _, column = jvp(rotated, p, tensor([1.0, 0.0]))
    print((row == J[0]).all().item(), (column == J[:, 0]).all().item())  # -> True True
    try:
        hessian(rotated, p)
    except RuntimeError as reason:
        print(reason)  # -> The function must return one Tensor with a single element

    # The gradient of a solution.
    A = tensor([[2.0, 1.0], [0.0, 4.0]], requires_grad=True)
    print(inv(A).tolist())  # -> [[0.5, -0.125], [0.0, 0.25]]
    solve(A, tensor([3.0, 4.0])).sum().backward()
    print(A.grad.tolist())  # -> [[-0.5, -0.5], [-0.125, -0.125]]
    try:
        inv(tensor([[1.0, 2.0], [2.0, 4.0]]))
    except LinAlgError as reason:
        print(reason)  # -> linalg.solve: Singular matrix
