"""Step jacobian02: Jacobians of several inputs and results

A layer is a function of its input, its weight and its bias, and has a derivative by each. A
function of two tensors has a Jacobian for each of them; with two results, two for each. vjp and
jacobian of step jacobian01 take one tensor and give one.

    jacobian(f, (x, w))        a pair: dy/dx, dy/dw
    two results as well        a pair of pairs, the results outside

Inside, everything is a tuple: as_sequence makes one of a single tensor, and `as_given` undoes it. A
single tensor goes in, and a single tensor comes out. What is not a tensor is refused, as it has no
derivative.

The trap: a result that does not depend on one of the inputs. grad raises an error then (step
65a), and the demo ends with it. Step jacobian03 decides what is right.

Changed: call_on_leaves, vjp, jacobian. New: as_given, without_graph.
Try: give jacobian a list of two tensors instead of a tuple. What comes back?
"""

import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import as_sequence, grad
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import eye
from tinytorch.ops.joining import stack

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@enable_grad()
def call_on_leaves(func: Callable, inputs: Any) -> tuple[tuple, Any]:
    """(leaves, what func gives for them), recorded.

    TypeError where an input or an output is not a tensor."""
    leaves = []
    for x in as_sequence(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"The inputs must be Tensors, but one is a {type(x).__name__}")
        leaves.append(x.detach().requires_grad_())
    outputs = func(*leaves)
    for y in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        if not isinstance(y, Tensor):
            raise TypeError(f"The function must return Tensors, but gave a {type(y).__name__}")
    return tuple(leaves), outputs


def as_given(results: tuple, like: Any) -> Any:
    """One result where there was one tensor, not in a tuple; else all."""
    return results[0] if isinstance(like, Tensor) else tuple(results)


def without_graph(outputs: Any) -> Any:
    return as_given(tuple(y.detach() for y in as_sequence(outputs)), outputs)


def vjp(func: Callable, inputs: Any, v: Any) -> tuple:
    """(outputs, v^T J): one backward pass, for vectors in the shapes of the outputs."""
    xs, outputs = call_on_leaves(func, inputs)
    found = grad(as_sequence(outputs), xs, as_sequence(v))
    return without_graph(outputs), as_given(found, inputs)


def jacobian(func: Callable, inputs: Any) -> Any:
    """The matrix of all dy_i/dx_j, in the shape [*y.shape, *x.shape]: one backward pass for each
    element of y. For several outputs or inputs a tuple for each, the outputs outside."""
    xs, outputs = call_on_leaves(func, inputs)
    rows = []
    for y in as_sequence(outputs):
        n = y.numel()
        units = eye(n, dtype=y.dtype, device=y.device).reshape(n, *y.shape)
        found = [grad((y,), xs, (unit,), True) for unit in units.unbind(0)]
        parts = zip(xs, zip(*found, strict=True), strict=True)
        row = [stack(part).reshape(y.shape + x.shape) for x, part in parts]
        rows.append(as_given(tuple(row), inputs))
    return as_given(tuple(rows), outputs)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")

    def attempt(action):
        try:
            return action()
        except (RuntimeError, TypeError) as reason:
            return reason

    def layer(x, w, b):
        return w @ x + b

    x, w, b = (
        tensor([1.0, 2.0]),
        tensor([[3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]),
        tensor([0.0, 0.0, 0.0]),
    )
    dx, dw, db = jacobian(layer, (x, w, b))
    print("dy/dx is w:", (dx == w).all().item(), "and dy/dw has the shape", tuple(dw.shape))
    # -> dy/dx is w: True and dy/dw has the shape (3, 3, 2)
    _, gradients = vjp(layer, (x, w, b), tensor([1.0, 0.0, 0.0]))
    print([g.tolist() for g in gradients])
    # -> [[3.0, 4.0], [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]], [1.0, 0.0, 0.0]]

    both = jacobian(lambda x, y: (x * y, x + y), (x, tensor([5.0, 7.0])))
    print([[tuple(part.shape) for part in row] for row in both])
    # -> [[(2, 2), (2, 2)], [(2, 2), (2, 2)]]
    print("d(xy)/dx:", both[0][0].tolist())  # -> d(xy)/dx: [[5.0, 0.0], [0.0, 7.0]]

    print(attempt(lambda: vjp(layer, (x, w, 0.0), x)))
    # -> The inputs must be Tensors, but one is a float
    print(attempt(lambda: jacobian(lambda x: x.tolist(), x)))
    # -> The function must return Tensors, but gave a float

    print(attempt(lambda: jacobian(lambda x, y: x.sum(), (x, x))))
    # -> The differentiated Tensor at index 1 appears to not have been used in the graph. ...
