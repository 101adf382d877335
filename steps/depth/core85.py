"""Step core85: gradcheck

Now the check itself: for each input that requires a gradient, backward on one side,
numerical_product on the other. The question is which v to take.

v = 1 is the obvious choice, and a bad one. A backward that mixes up the places of its elements
still gets every *sum* right, and v = 1 only sees sums: the demo has such a function. To be sure,
one would take each unit vector in turn, which needs a backward pass for every element of the
output.

A single random v does nearly as well. A wrong entry of J can hide only if another error cancels it
for just this v, and for random numbers the chance of that is zero. (In the code v is called by its
name in mathematics, cotangent.)

A gradient need not depend on everything. Where an output is constant or an input is not used, grad
gives None, which is compared as zero.

Two numbers are compared as np.allclose does, |a - b| <= atol + rtol |b|, because neither side is
exact. PyTorch's defaults are used.

New: GradcheckError, gradcheck.
Try: forget the factor 3 in Cube.backward and read what gradcheck says.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.custom import CustomFunction
from tinytorch.autograd.engine import grad
from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.core.tensor import Tensor, from_numpy, tensor, tensor_method


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


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


if __name__ == "__main__":

    class Cube(CustomFunction):
        """x^3, with the three steps in one."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3.0 * x * x

    class Turned(CustomFunction):
        """Turns a vector around. Its backward forgets to do so."""

        @staticmethod
        def forward(ctx, x):
            return from_numpy(x.detach().numpy()[::-1].copy())

        @staticmethod
        def backward(ctx, g):
            return g

    def first_line(function, *args):
        try:
            return function(*args)
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]

    a = tensor(np.array([0.5, 1.5]), requires_grad=True)
    b = tensor(np.array([[2.0], [3.0]]), requires_grad=True)
    print(gradcheck(Cube.apply, a))  # -> True
    print(gradcheck(lambda a, b: a * b / (a + b) - b, (a, b)))  # -> True
    print(gradcheck(lambda a, b: a * a, (a, b)), "with b unused")  # -> True with b unused
    print(gradcheck(lambda a: a.detach() * 0.0, a), "of a constant")  # -> True of a constant

    (g,) = grad(Turned.apply(a), a, tensor(np.ones(2)))
    by_differences = numerical_product(Turned.apply, (a,), a, [np.ones(2)], 1e-6)
    print("v = 1 sees nothing:", np.allclose(g.numpy(), by_differences))
    # -> v = 1 sees nothing: True
    print(first_line(gradcheck, Turned.apply, a))
    # -> GradcheckError: Jacobian mismatch for input 0, with a random cotangent:
