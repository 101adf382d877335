"""Step func09: vjp and jvp of trees

Step jacobian01 has v^T J, for tensors and tuples. The functions of torch.func take any tree, and
their results can be differentiated again.

    output, back = vjp(f, x)          back(v) is v^T J, for as many v as wanted
    output, ahead = jvp(f, (x,), (v,))     J v

`vjp` returns a function, since v may depend on the output: the graph stays until `back` is gone.
`jvp` goes back twice, as in step jacobian04. (PyTorch computes it on the way forward, and gets the
same numbers.)

The trap: with one argument, `back` returns the gradient and not a tuple of one.

New: vjp, jvp.
Try: call `back` twice, with v and 2 v. Why does the graph still exist?
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


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """(output, function): function(v) is v^T J, for v in the form of the output; of one argument,
    and of several a tuple. With has_aux, func returns (output, more), and more comes third."""
    with enable_grad():
        tree, own = on_leaves(primals)
        output = func(*tree)
    output, *more = output if has_aux else (output,)
    leaves = tree_flatten(output)[0]

    @enable_grad()
    def back(cotangents: Any) -> Any:
        vectors = tree_flatten(cotangents)[0]
        found = settled(backward_to(own, leaves, vectors), own)
        found = tree_unflatten(found, tree_flatten(primals)[1])
        return found if len(primals) > 1 else found[0]

    return settled(output, own), back, *settled(more, own)


@enable_grad()
def jvp(func: Callable, primals: tuple, tangents: tuple, *, has_aux: bool = False) -> tuple:
    """(output, J v): how the output changes in the direction of `tangents`. Two backward passes:
    u^T J is linear in u, and its derivative in the direction v is J v."""
    tree, own = on_leaves(primals)
    output = func(*tree)
    output, *more = output if has_aux else (output,)
    leaves, spec = tree_flatten(output)
    us = [zeros_like(y).requires_grad_() for y in leaves]
    found = backward_to(us, backward_to(own, leaves, us), tree_flatten(tangents)[0])
    result = tree_unflatten(found, spec)
    return settled((output, result, *more), own + us)


if __name__ == "__main__":
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    output, back = vjp(lambda x: x * x, x)
    print(output.tolist(), back(Tensor([1.0, 10.0])).tolist())  # -> [1.0, 4.0] [2.0, 40.0]
    print(output.requires_grad, back(Tensor([0.0, 1.0])).tolist())  # -> False [0.0, 4.0]
    output, back, more = vjp(lambda d, y: ({"p": d["x"] * y}, y + 1), {"x": x}, y, has_aux=True)
    print(more.tolist(), back({"p": Tensor([1.0, 1.0])}))
    # -> [4.0, 5.0] ({'x': tensor([3., 4.])}, tensor([1., 2.]))
    print(jvp(lambda x, y: x * y, (x, y), (Tensor([1.0, 0.0]), Tensor([0.0, 1.0]))))
    # -> (tensor([3., 8.]), tensor([3., 2.]))
    print(jvp(lambda x: (x.sin(), 7), (x,), (Tensor([0.0, 0.0]),), has_aux=True)[1:])
    # -> (tensor([0., 0.]), 7)
