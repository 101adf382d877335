"""Step func07: func.grad: a gradient as a function

loss.backward() writes into the .grad of all tensors that took part. Mathematics puts it in another
way: f' is a function, as f is, and f'' is the derivative of f'.

    slope = grad(f)          slope(x)          grad(grad(f))(x)

`grad` returns a function that makes a new tensor of its argument, calls f, and goes back to this
tensor alone: no .grad is changed, and the argument need not require a gradient. It may be a dict of
parameters (step func01), so it is taken apart as a tree (step func06).

The backward pass is recorded (create_graph), so that the result can be differentiated again. If the
argument is itself a tensor of an outer grad, the new tensor is a view of it, and the graph of the
outer one goes through the inner one.

The trap: the value must be one number, without dimensions. For a vector there would be a gradient
for each element, which is a Jacobian (step func10).

New: on_leaves, backward_to, grad_and_value, grad.
Try: detach `x` in `on_leaves` in any case. What is the second derivative then?
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from tinytorch.autograd.backward import grad as gradients
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import ones_like, zeros_like
from tinytorch.ops.shape import view_as
from tinytorch.utils._pytree import tree_flatten, tree_unflatten

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")
importlib.import_module("tinytorch.core.printing")


def on_leaves(tree: Any) -> tuple[Any, list[Tensor]]:
    """(the tree with tensors of this call in the place of its tensors, a list of them). What is
    differentiated outside stays connected."""

    def own(x: Any) -> Any:
        return view_as(x, x) if x.requires_grad else x.detach().requires_grad_()

    leaves, spec = tree_flatten(tree)
    leaves = [own(x) if isinstance(x, Tensor) and x.is_floating_point() else x for x in leaves]
    inputs = [x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()]
    return tree_unflatten(leaves, spec), inputs


def backward_to(inputs: list, outputs: list, vectors: list) -> list:
    """The gradients of the outputs, at which `vectors` arrive, to the inputs; 0 where there is
    none. They can be differentiated again."""
    pairs = [(y, v) for y, v in zip(outputs, vectors, strict=True) if y.requires_grad]
    found: Sequence = [None] * len(inputs)
    if pairs:
        ys, arriving = zip(*pairs, strict=True)
        found = gradients(ys, inputs, arriving, True, True, allow_unused=True)
    return [zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def grad_and_value(func: Callable) -> Callable:
    """A function that returns (gradient, value) of func, which returns one number. The gradient has
    the form of the argument, which may be a dict of tensors.

    Raises:
        RuntimeError: func does not return a tensor with one element and no dimension.
    """

    @enable_grad()
    def call(given: Any, *args: Any, **kwargs: Any) -> tuple:
        tree, own = on_leaves(given)
        value = func(tree, *args, **kwargs)
        if not isinstance(value, Tensor) or value.array.ndim:
            raise RuntimeError(f"grad: expected func to return a 0-d tensor, but got {value}")
        found = backward_to(own, [value], [ones_like(value)])
        return tree_unflatten(found, tree_flatten(given)[1]), value

    return call


def grad(func: Callable) -> Callable:
    """A function that returns the gradient of func."""
    both = grad_and_value(func)

    def call(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[0]

    return call


if __name__ == "__main__":
    square = grad(lambda x: x**3)
    x = Tensor([2.0])[0]
    print(square(x).item(), grad(square)(x).item(), x.grad)  # -> 12.0 12.0 None
    print(grad(grad(grad(lambda x: x.exp())))(x).item() == x.exp().item())  # -> True

    def loss(params: dict) -> Tensor:
        return (params["w"] * x + params["b"]) ** 2

    params = {"w": Tensor([3.0])[0], "b": Tensor([1.0])[0], "unused": x}
    found, value = grad_and_value(loss)(params)
    print({name: g.item() for name, g in found.items()}, value.item())
    # -> {'w': 28.0, 'b': 14.0, 'unused': 0.0} 49.0
    print(grad(lambda x: Tensor([1.0])[0])(x).item())  # -> 0.0
    try:
        grad(lambda x: x.view(1))(x)
    except RuntimeError as error:
        print(str(error).split(",")[0])  # -> grad: expected func to return a 0-d tensor
