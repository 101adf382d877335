"""Step jacobian04: The Jacobian-vector product, by two backward passes

If the inputs move in the direction v, how do the results move? By J v, a column of the Jacobian or
a mixture of columns. A backward pass gives rows. With 1,000 results it takes 1,000 passes to have a
single column, as the demo counts.

A trick saves them. Let u be a vector that arrives at the results. The pass gives

    g(u) = u^T J                     as a function of u, a linear one

and the derivative of u^T J by u is J. So a second backward pass, through the first one and with v
arriving at g, gives v^T J^T, which is J v. Two passes, whatever the number of results. The value of
u does not matter, as g is linear: zeros will do. Only the first pass must be recorded
(create_graph), and u must require a gradient.

For the first time we differentiate by a vector that is passed to backward, and not by an input.
(There is a better way, which carries J v along during the forward pass: forward mode. PyTorch has
it under torch.func.jvp; a rule for each operation is its price.)

The trap is a shape. v has the shapes of the inputs for J v, and of the results for v^T J. For
square cases both fit, and the wrong one gives a plausible answer. vectors_for refuses the rest, and
puts in 1 for a v that is left out where there is a single number.

Changed: back (create_graph), vjp, jacobian. New: vectors_for, jvp.
Try: tensors of ones for `us`. Why is the result the same?
"""

import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import as_sequence, grad
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import eye, ones_like, zeros, zeros_like
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


def without_graph(outputs: Any) -> Any:
    return as_given(tuple(y.detach() for y in as_sequence(outputs)), outputs)


def vjp(func: Callable, inputs: Any, v: Any = None, strict: bool = False) -> tuple:
    """(outputs, v^T J): one backward pass, for vectors in the shapes of the outputs."""
    xs, outputs = call_on_leaves(func, inputs)
    vectors = vectors_for(as_sequence(outputs), v, "the output")
    found = back(as_sequence(outputs), xs, vectors, False, strict)
    return without_graph(outputs), as_given(found, inputs)


def jvp(func: Callable, inputs: Any, v: Any = None, strict: bool = False) -> tuple:
    """(outputs, J v), for vectors in the shapes of the inputs: how the outputs change on the way.

    Two backward passes: u^T J is linear in u, and its derivative in the direction v is J v."""
    xs, outputs = call_on_leaves(func, inputs)
    ys = as_sequence(outputs)
    us = tuple(zeros_like(y).requires_grad_() for y in ys)
    found = back(ys, xs, us, True, strict)
    found = back(found, us, vectors_for(xs, v, "the input"), False, strict)
    return without_graph(outputs), as_given(found, outputs)


def jacobian(func: Callable, inputs: Any, strict: bool = False) -> Any:
    """The matrix of all dy_i/dx_j, in the shape [*y.shape, *x.shape]: one backward pass for each
    element of y. For several outputs or inputs a tuple for each, the outputs outside."""
    xs, outputs = call_on_leaves(func, inputs)
    rows = []
    for y in as_sequence(outputs):
        n = y.numel()
        units = eye(n, dtype=y.dtype, device=y.device).reshape(n, *y.shape)
        found = [back((y,), xs, (unit,), False, strict) for unit in units.unbind(0)]
        parts = zip(*found, strict=True) if found else [[zeros(0, *x.shape)] for x in xs]
        row = [stack(part).reshape(y.shape + x.shape) for part, x in zip(parts, xs, strict=True)]
        rows.append(as_given(tuple(row), inputs))
    return as_given(tuple(rows), outputs)


if __name__ == "__main__":
    from tinytorch.autograd.modes import FunctionMode
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")

    # A rotation of the plane by half a radian.
    def rotated(p):
        angle = tensor(0.5)
        c, s = angle.cos(), angle.sin()
        return stack([c * p[0] - s * p[1], s * p[0] + c * p[1]])

    p, v = tensor([3.0, 4.0]), tensor([1.0, 2.0])
    J = jacobian(rotated, p)
    value, moved = jvp(rotated, p, v)
    off = [(each - moved).abs().max().item() for each in (J @ v, vjp(rotated, p, v)[1])]
    print("J v:", off[0] < 1e-6, "and v^T J:", off[1] < 1e-6)  # -> J v: True and v^T J: False
    _, column = jvp(rotated, p, tensor([1.0, 0.0]))
    print("a column:", (column == J[:, 0]).all().item())  # -> a column: True
    # How far is it, if p moves by a thousandth of v?
    step = (rotated(p + 0.001 * v) - rotated(p)) / 0.001
    print("as measured:", (step - moved).abs().max().item() < 0.01)  # -> as measured: True

    class Count(FunctionMode):
        calls = 0

        def call(self, function, args):
            self.calls += 1
            return function.apply(*args)

    x = tensor([[0.1 * i] for i in range(1000)])
    calls = []
    for way in (jacobian, jvp):
        with Count() as count:
            way(lambda t: x @ t, tensor([1.0]))
        calls.append(count.calls)
    print("1000 results, one column; calls by row and by jvp:", calls[0] > 1000, calls[1] < 20)
    # -> 1000 results, one column; calls by row and by jvp: True True

    two, slopes = jvp(lambda x, y: (x * y, x.sum()), (p, v), (v, p))
    print([s.tolist() for s in slopes])  # -> [[10.0, 20.0], 3.0]
    for wrong in (lambda: vjp(rotated, p), lambda: jvp(rotated, p, tensor([1.0, 2.0, 3.0]))):
        try:
            wrong()
        except RuntimeError as reason:
            print(reason)
            # -> The vector v can only be None if the output is a single number.
            # -> v has the shapes [(3,)], and the input [(2,)]
    print("of one number:", vjp(lambda x: (x * x).sum(), p)[1].tolist())
    # -> of one number: [6.0, 8.0]
