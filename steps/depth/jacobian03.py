"""Step jacobian03: Jacobians: results that do not depend on an input

If a result does not depend on an input, step jacobian02 ends with an error, but the derivative
exists: it is zero. Which of the two is right? Zero, for mathematics. In a program it is often a
mistake: a superfluous detach(), a tensor made from numbers. So zero is the answer, and with
`strict=True` it is an error.

There are three kinds of nothing, and `back` knows them:

    an input that no gradient reached      grad gives None with allow_unused=True: zeros
    a result that has no graph at all      it cannot even be passed to grad: left out
    an empty result                        no rows to stack: an empty Jacobian

The trap: zeros_like(x), and not the number 0. The caller adds them to others, and expects the shape
and dtype of x.

Changed: vjp, jacobian. New: back.
Try: without `allow_unused=True` in back, which line of the demo fails, and what does it say?
"""

import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import as_sequence, grad
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import eye, zeros, zeros_like
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


def back(ys: tuple, xs: tuple, vectors: tuple, strict: bool = False) -> tuple:
    """v^T J: for each of xs the gradient of all ys, at which `vectors` arrive. Where none of them
    depends on x it is zero, or, if `strict`, a RuntimeError."""
    pairs = [(y, v) for y, v in zip(ys, vectors, strict=True) if y.requires_grad]
    found: Any = [None] * len(xs)
    if pairs:
        outputs, arriving = zip(*pairs, strict=True)
        found = grad(outputs, xs, arriving, True, allow_unused=True)
    if strict and None in found:
        raise RuntimeError(f"The outputs do not depend on input {found.index(None)}: strict=True")
    return tuple(zeros_like(x) if g is None else g for x, g in zip(xs, found, strict=True))


def as_given(results: tuple, like: Any) -> Any:
    """One result where there was one tensor, not in a tuple; else all."""
    return results[0] if isinstance(like, Tensor) else tuple(results)


def without_graph(outputs: Any) -> Any:
    return as_given(tuple(y.detach() for y in as_sequence(outputs)), outputs)


def vjp(func: Callable, inputs: Any, v: Any, strict: bool = False) -> tuple:
    """(outputs, v^T J): one backward pass, for vectors in the shapes of the outputs."""
    xs, outputs = call_on_leaves(func, inputs)
    found = back(as_sequence(outputs), xs, as_sequence(v), strict)
    return without_graph(outputs), as_given(found, inputs)


def jacobian(func: Callable, inputs: Any, strict: bool = False) -> Any:
    """The matrix of all dy_i/dx_j, in the shape [*y.shape, *x.shape]: one backward pass for each
    element of y. For several outputs or inputs a tuple for each, the outputs outside."""
    xs, outputs = call_on_leaves(func, inputs)
    rows = []
    for y in as_sequence(outputs):
        n = y.numel()
        units = eye(n, dtype=y.dtype, device=y.device).reshape(n, *y.shape)
        found = [back((y,), xs, (unit,), strict) for unit in units.unbind(0)]
        parts = zip(*found, strict=True) if found else [[zeros(0, *x.shape)] for x in xs]
        row = [stack(part).reshape(y.shape + x.shape) for part, x in zip(parts, xs, strict=True)]
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

    x = tensor([1.0, 2.0])
    both = jacobian(lambda x, y: (x * y, x.sum()), (x, tensor([5.0, 7.0])))
    print([[tuple(part.shape) for part in row] for row in both])
    # -> [[(2, 2), (2, 2)], [(2,), (2,)]]
    print("x.sum() does not depend on y:", both[1][1].tolist())
    # -> x.sum() does not depend on y: [0.0, 0.0]

    def detached(x):
        return tensor(x.tolist()) * 2

    (value, nothing), loud = (
        vjp(detached, x, x),
        attempt(lambda: jacobian(detached, x, strict=True)),
    )
    print(value.tolist(), nothing.tolist(), "strict:", loud)
    # -> [2.0, 4.0] [0.0, 0.0] strict: The outputs do not depend on input 0: strict=True
    print("an empty result:", jacobian(lambda x: x[:0], x).shape)
    # -> an empty result: tinytorch.Size([0, 2])
