"""Step core84: A Jacobian by differences

A rule that you wrote runs, and returns numbers of the right shape. Is the formula right? Step 10
compared backward with differences for functions of one number, and warned: it moves all elements at
once. A function of many elements has a table of derivatives, the Jacobian:

    J[i][j] = dy_i / dx_j

Backward never computes this table. It is given a gradient v (in mathematics, a cotangent), and
computes v^T J, which has the element v_1 J[1][j] + v_2 J[2][j] + ... for each x_j. So the
differences should compute the same product. Move one element x_j by e, both ways, and see how much
the number v . f(x) = v_1 y_1 + v_2 y_2 + ... changes:

    (v^T J)_j  =  (v . f(x + e_j) - v . f(x - e_j)) / (2 e)          e_j: e at place j, else 0

That is two calls of f for each element of x: far too slow to train with, and good enough to check
with.

The trap is e. The formula is exact only for small e, but the difference of two almost equal numbers
loses digits: with e = 1e-6 float64 keeps about ten of its sixteen, float32 hardly one of its seven.
The inputs of a check have to be float64. (The elements are moved in x's own memory. These writes
are not counted, since x has its old elements again before any backward looks.)

exp and sum, which these steps do not need, are laid aside until step elementwise06 brings them,
finished.

New: as_tuple, differentiable_outputs, numerical_product.
Try: eps=1e-12 in the demo's loop is worse than 1e-6. At which eps is the error smallest?
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.custom import CustomFunction
from tinytorch.autograd.engine import grad
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, tensor, tensor_method


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

    x = tensor(np.array([0.5, 1.5]), requires_grad=True)
    v = np.array([1.0, 10.0])
    (by_backward,) = grad(Cube.apply(x), x, tensor(v))
    by_differences = numerical_product(Cube.apply, (x,), x, [v], 1e-6)
    print(by_backward.tolist())  # -> [0.75, 67.5]
    print(by_differences.round(6).tolist())  # -> [0.75, 67.5]
    print("x is as before:", x.tolist())  # -> x is as before: [0.5, 1.5]

    for eps in (1e-3, 1e-6, 1e-12):
        found = numerical_product(Cube.apply, (x,), x, [np.ones(2)], eps)
        print(f"e = {eps:.0e}: off by {abs(found[1] - 3 * 1.5**2):.0e}")  # -> ...

    # Several outputs count together; one without a derivative does not count.
    pair = numerical_product(lambda x: [x * 2.0, x.long(), x * 3.0], (x,), x, [v, v], 1e-6)
    print(pair.round(6).tolist())  # -> [5.0, 50.0]
