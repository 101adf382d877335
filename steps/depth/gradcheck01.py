"""Step gradcheck01: gradgradcheck: the second derivative

A backward may leave the Tensors, and compute with NumPy:

    return from_numpy(-g.detach().numpy() * y.detach().numpy() ** 2)

Its first derivative is right, and gradcheck passes. But nothing was recorded, so with create_graph
the second derivative is 0, without an error. A gradient penalty would train on nothing.

The gradient is a function too: of the inputs, and of v. So the check of the second derivative is
the check of step 68b, applied to this function:

    gradgradcheck(f, x)  =  gradcheck of  (x, v) -> grad(f(x), x, v, create_graph=True)

A gradient need not depend on everything: the derivative of a sum is 1, whatever the inputs are.
materialize_grads=True makes zeros of the missing gradients.

A backward that cannot be differentiated should say so: @once_differentiable of step custom06 turns
the silent 0 into an error.

New: gradgradcheck.
Try: replace from_numpy(...) in Reciprocal by -g * y * y. Both checks pass then.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tinytorch.autograd.hooks  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.conversion  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.custom import CustomFunction, once_differentiable
from tinytorch.autograd.engine import grad
from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.core.tensor import Tensor, from_numpy, tensor, tensor_method


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


class GradcheckError(RuntimeError):
    """Backward and numerical gradient differ; the message says where and by how much."""


def as_tuple(value: Any) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def differentiable_outputs(function: Callable, inputs: tuple) -> list[Tensor]:
    outputs = [x for x in as_tuple(function(*inputs)) if isinstance(x, Tensor)]
    return [x for x in outputs if x.dtype.is_floating_point]


def numerical_product(
    function: Callable, inputs: tuple, x: Tensor, cotangents: list[np.ndarray], eps: float
) -> np.ndarray:
    """d(sum of cotangent * output)/dx by central differences, one element of x after the other."""
    to_numpy = x.device.backend.to_numpy
    start = to_numpy(x.array).copy()
    result = np.zeros(start.shape)

    def total() -> float:
        with no_grad():
            outputs = differentiable_outputs(function, inputs)
        pairs = zip(outputs, cotangents, strict=True)
        return sum(float((to_numpy(y.array) * c).sum()) for y, c in pairs)

    for index in np.ndindex(start.shape):
        values = []
        for step in (eps, -eps):
            moved = start.copy()
            moved[index] += step
            x.array[...] = x.device.backend.from_numpy(moved, x.device.index)
            values.append(total())
        result[index] = (values[0] - values[1]) / (2 * eps)
    x.array[...] = x.device.backend.from_numpy(start, x.device.index)
    return result


def gradcheck(
    func: Callable,
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    seed: int = 0,
) -> bool:
    """Compare backward with central differences for every element of every input.

    Both sides are the product of the Jacobian with one random cotangent v: v^T J. A wrong entry of
    J is missed only by chance of measure zero, and one backward pass is enough.

    Returns:
        True.

    Raises:
        GradcheckError: a gradient is wrong.
    """
    inputs = as_tuple(inputs)
    checked = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    rng = np.random.default_rng(seed)
    with enable_grad():
        outputs = differentiable_outputs(func, inputs)
    cotangents = [rng.uniform(-1.0, 1.0, y.array.shape) for y in outputs]
    pairs = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if pairs:
        found = grad(
            [y for y, _ in pairs],
            checked,
            [tensor(c, dtype=y.dtype, device=y.device) for y, c in pairs],
            allow_unused=True,
        )
    else:
        found = [None] * len(checked)
    for number, (x, analytical) in enumerate(zip(checked, found, strict=True)):
        numerical = numerical_product(func, inputs, x, cotangents, eps)
        if analytical is None:
            got = np.zeros(x.array.shape)
        else:
            got = x.device.backend.to_numpy(analytical.array).astype(np.float64)
        if not np.allclose(got, numerical, rtol=rtol, atol=atol, equal_nan=True):
            raise GradcheckError(
                f"Jacobian mismatch for input {number}, with a random cotangent:\n"
                f"numerical:{numerical}\nanalytical:{got}\n"
                f"largest difference {np.abs(got - numerical).max()}"
            )
    return True


def gradgradcheck(
    func: Callable,
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    seed: int = 1,
) -> bool:
    """gradcheck of the gradient: of (inputs, grad_outputs) -> gradients of func.

    grad_outputs are random where they are not given. Arguments and errors as in `gradcheck`.
    """
    inputs = as_tuple(inputs)
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    with enable_grad():
        outputs = [y for y in differentiable_outputs(func, inputs) if y.requires_grad]
    if grad_outputs is None:
        rng = np.random.default_rng(seed)
        grad_outputs = []
        for y in outputs:
            values = rng.uniform(-1.0, 1.0, y.array.shape)
            grad_outputs.append(tensor(values, dtype=y.dtype, device=y.device, requires_grad=True))
    grad_outputs = as_tuple(grad_outputs)

    def gradient(*args: Any) -> tuple:
        with enable_grad():
            outer = args[: len(inputs)]
            results = [y for y in differentiable_outputs(func, outer) if y.requires_grad]
            return grad(
                results,
                [outer[i] for i in checked],
                args[len(inputs) :],
                create_graph=True,
                materialize_grads=True,
            )

    return gradcheck(
        gradient,
        (*inputs, *grad_outputs),
        eps=eps,
        atol=atol,
        rtol=rtol,
    )


if __name__ == "__main__":

    class Reciprocal(CustomFunction):
        """1 / x with a backward that goes through NumPy."""

        @staticmethod
        def forward(ctx, x):
            y = 1.0 / x
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return from_numpy(-g.detach().numpy() * y.detach().numpy() ** 2)

    class Honest(Reciprocal):
        """Reciprocal, which says what it cannot do."""

        backward = staticmethod(once_differentiable(Reciprocal.backward))

    def first_line(function, *args):
        try:
            return function(*args)
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]

    a = tensor(np.array([0.5, 1.5]), requires_grad=True)
    b = tensor(np.array([[2.0], [3.0]]), requires_grad=True)
    print(gradgradcheck(lambda a, b: a * b / (a + b) - b, (a, b)))  # -> True
    v = tensor(np.array([1.0, -2.0]), requires_grad=True)  # a v of your own
    print(gradgradcheck(lambda a: a * a, a, v))  # -> True
    print(gradcheck(Reciprocal.apply, a), gradcheck(Honest.apply, a))  # -> True True
    print(first_line(gradgradcheck, Reciprocal.apply, a))
    # -> GradcheckError: Jacobian mismatch for input 0, with a random cotangent:
    (g,) = grad(Honest.apply(a), a, tensor(np.ones(2)), create_graph=True)
    print(first_line(g.backward, tensor(np.ones(2))).partition(" a function")[0])
    # -> RuntimeError: trying to differentiate twice
