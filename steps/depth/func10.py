"""Step func10: jacrev, jacfwd and hessian

The Jacobian as a function of the point, as grad is: jacrev(f)(x) has the shape [*y.shape,
*x.shape]. It goes back once for each element of the output. hessian(f) is jacrev(jacrev(f)): the
inner one gives the gradient, and the outer one its derivatives.

PyTorch's jacfwd goes forward, once for each element of the input, which takes fewer passes where
the input is smaller than the output. There is no forward mode here: jacfwd computes the same matrix
as jacrev, in the same way.

The trap is the form: for a dict of parameters there is a matrix for each of them, and for several
outputs a dict for each output.

New: jacrev, jacfwd, hessian.
Try: hessian of a function with three outputs. What is the shape, and why?
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from tinytorch.autograd.backward import grad as gradients
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import eye, ones_like, zeros_like
from tinytorch.ops.joining import stack
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


def jacrev(func: Callable, argnums: Any = 0, has_aux: bool = False, **options: Any) -> Callable:
    """A function that returns the Jacobian, [*y.shape, *x.shape] for each output y and argument x,
    in the form of the output, with that of the argument inside. One backward pass for each element
    of the outputs. With has_aux, (Jacobian, more)."""

    @enable_grad()
    def call(*args: Any) -> Any:
        given = chosen(args, argnums)
        tree, own = on_leaves(given)
        output = func(*replaced(args, argnums, tree))
        output, *more = output if has_aux else (output,)

        def rows(y: Tensor) -> Any:
            n = y.numel()
            units = eye(n, dtype=y.dtype, device=y.device).reshape(n, *y.shape).unbind(0)
            parts = zip(*[backward_to(own, [y], [unit]) for unit in units], strict=True)
            found = [
                stack(part).reshape(y.shape + x.shape) for part, x in zip(parts, own, strict=True)
            ]
            return tree_unflatten(found, tree_flatten(given)[1])

        found = settled(tree_map(rows, output), own)
        return (found, settled(more[0], own)) if has_aux else found

    return call


def jacfwd(func: Callable, argnums: Any = 0, has_aux: bool = False, **options: Any) -> Callable:
    """The same Jacobian as `jacrev`'s, computed in the same way: there is no forward mode here."""
    return jacrev(func, argnums, has_aux)


def hessian(func: Callable, argnums: Any = 0) -> Callable:
    """A function that returns the second derivatives of func: the Jacobian of its gradient."""
    return jacrev(jacrev(func, argnums), argnums)


if __name__ == "__main__":
    x, w = Tensor([1.0, 2.0]), Tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    print(jacrev(lambda x: w @ x)(x).equal(w), jacfwd(lambda x: x**2)(x).tolist())
    # -> True [[2.0, 0.0], [0.0, 4.0]]
    print(hessian(lambda x: x[0] * x[1] ** 2)(x).tolist())  # -> [[0.0, 4.0], [4.0, 2.0]]
    found = jacrev(lambda p, x: p["w"] @ x, argnums=(0, 1))({"w": w}, x)
    print(found[0]["w"].shape, found[1].shape)
    # -> tinytorch.Size([3, 3, 2]) tinytorch.Size([3, 2])
    both, more = jacrev(lambda x: ((x.sum(), x * 2), "more"), has_aux=True)(x)
    print(both[0].tolist(), both[1].tolist(), more)  # -> [1.0, 1.0] [[2.0, 0.0], [0.0, 2.0]] more
