"""Step func08: func.grad: results without a graph, and other arguments

The result of grad(f)(x) in step func07 requires a gradient, since the backward pass was recorded.
But its graph ends at the tensor that grad made for itself, which the caller does not have. So it is
of no use; it keeps all memory of the pass alive, and `.numpy()` of the result is refused.

It cannot always be detached, either. In grad(grad(f)) the graph of the inner result must lead to
the tensor of the outer one, and f may use a weight that requires a gradient:

    grad(lambda x: w * x)(x)       may be differentiated with respect to w

So `settled` walks through the graph of each result. If it ends only at tensors of this call, the
result is detached. PyTorch's results behave in the same way.

argnums names the arguments to differentiate, as a number or a tuple, and has_aux lets f return
something beside its value: the logits, say. The trap: with has_aux the second part has a graph as
well, and is settled too.

New: settled, chosen, replaced. Changed: grad_and_value, grad.
Try: return `x.detach()` from `settle` in any case, and read the second derivative.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from tinytorch.autograd.backward import grad as gradients
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import ones_like, zeros_like
from tinytorch.ops.shape import view_as
from tinytorch.utils._pytree import tree_flatten, tree_map, tree_unflatten

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


def settled(results: Any, own: list[Tensor]) -> Any:
    """The results of a derivative. A graph that leads to nothing but the tensors of this call has
    no use outside: such a result is detached."""

    def leads_outside(x: Tensor) -> bool:
        nodes, seen = [x._edge[0]], set()
        while nodes:
            node = nodes.pop()
            if isinstance(node, Tensor):
                if not any(node is leaf for leaf in own):
                    return True
            elif node not in seen:
                seen.add(node)
                nodes += [edge[0] for edge in node.edges if edge is not None]
        return False

    def settle(x: Any) -> Any:
        if not isinstance(x, Tensor) or x._edge is None:
            return x.detach() if any(x is leaf for leaf in own) else x
        return x if leads_outside(x) else x.detach()

    return tree_map(settle, results)


def backward_to(inputs: list, outputs: list, vectors: list) -> list:
    """The gradients of the outputs, at which `vectors` arrive, to the inputs; 0 where there is
    none. They can be differentiated again."""
    pairs = [(y, v) for y, v in zip(outputs, vectors, strict=True) if y.requires_grad]
    found: Sequence = [None] * len(inputs)
    if pairs:
        ys, arriving = zip(*pairs, strict=True)
        found = gradients(ys, inputs, arriving, True, True, allow_unused=True)
    return [zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def chosen(args: tuple, argnums: Any) -> Any:
    """The argument, or the tuple of arguments, that `argnums` names."""
    if isinstance(argnums, int):
        return args[argnums]
    return tuple(args[number] for number in argnums)


def replaced(args: tuple, argnums: Any, new: Any) -> list:
    """The arguments with those that `argnums` names replaced."""
    args, numbers = list(args), [argnums] if isinstance(argnums, int) else argnums
    for number, value in zip(numbers, [new] if isinstance(argnums, int) else new, strict=True):
        args[number] = value
    return args


def grad_and_value(func: Callable, argnums: Any = 0, has_aux: bool = False) -> Callable:
    """A function that returns (gradient, value) of func, which returns one number. The gradient has
    the form of the argument, which may be a dict of tensors; of several argnums, a tuple.

    With has_aux, func returns (number, more), and the value is this pair.
    Raises:
        RuntimeError: func does not return a tensor with one element and no dimension.
    """

    @enable_grad()
    def call(*args: Any, **kwargs: Any) -> tuple:
        given = chosen(args, argnums)
        tree, own = on_leaves(given)
        output = func(*replaced(args, argnums, tree), **kwargs)
        value = output[0] if has_aux else output
        if not isinstance(value, Tensor) or value.array.ndim:
            raise RuntimeError(f"grad: expected func to return a 0-d tensor, but got {value}")
        found = backward_to(own, [value], [ones_like(value)])
        found, output = settled((found, output), own)
        return tree_unflatten(found, tree_flatten(given)[1]), output

    return call


def grad(func: Callable, argnums: Any = 0, has_aux: bool = False) -> Callable:
    """A function that returns the gradient of func; with has_aux, (gradient, more)."""
    both = grad_and_value(func, argnums, has_aux)

    def call(*args: Any, **kwargs: Any) -> Any:
        found, output = both(*args, **kwargs)
        return (found, output[1]) if has_aux else found

    return call


if __name__ == "__main__":
    x, y = Tensor([2.0])[0], Tensor([5.0])[0]
    slope = grad(lambda x: x**3)
    print(slope(x).requires_grad, grad(slope)(x).item())  # -> False 12.0
    w = Tensor([3.0]).requires_grad_()
    found = grad(lambda x: (w * x).sum())(x)
    print(found.item(), found.requires_grad)  # -> 3.0 True

    print([g.item() for g in grad(lambda x, y: x * y, argnums=(0, 1))(x, y)])  # -> [5.0, 2.0]
    print(grad(lambda x, y: x * y, argnums=1)(x, y).item())  # -> 2.0
    found, logits = grad(lambda x: (x * x, x + 1), has_aux=True)(x)
    print(found.item(), logits.item(), logits.requires_grad)  # -> 4.0 3.0 False
    print(grad_and_value(lambda x: x)(x)[1].requires_grad, grad(lambda x: y * y)(x).item())
    # -> False 0.0
