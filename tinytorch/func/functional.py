"""Whole derivatives of a function: its Jacobian, its Hessian, and their products with vectors."""

from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import as_sequence, grad
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import eye, ones_like, zeros, zeros_like
from tinytorch.ops.joining import stack
from tinytorch.ops.shape import view_as


@enable_grad()
def call_on_leaves(func: Callable, inputs: Any, create_graph: bool) -> tuple[tuple, Any]:
    """(leaves, what func gives for them), recorded. With create_graph, inputs that require a
    gradient stay what they are, so that the result can be differentiated with respect to them.

    TypeError where an input or an output is not a tensor."""
    leaves = []
    for x in as_sequence(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"The inputs must be Tensors, but one is a {type(x).__name__}")
        keep = create_graph and x.requires_grad
        leaves.append(view_as(x, x) if keep else x.detach().requires_grad_())
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


@enable_grad()
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
        row = [stack(part).reshape(y.shape + x.shape) for part, x in zip(parts, xs, strict=True)]
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
