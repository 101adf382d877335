"""Step func12: An ensemble as one function: stack_module_state

An ensemble is several networks of one kind, whose answers are averaged. With their parameters
stacked, {"weight": [5, out, in], ...}, they are one function of a dict, which vmap calls for each:

    params, buffers = stack_module_state(models)
    vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), (0, 0, None))(params, buffers, x)

The stacked tensors are new leaves, which an optimizer can train; the models keep theirs. The trap:
models of two classes, or of two sizes, cannot be stacked.

New: stack_module_state.
Try: give every model a batch of its own, with in_dims=0.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from tinytorch.autograd.backward import grad as gradients
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
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


def vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", **options: Any
) -> Callable:
    """A function that calls func for each item of a batch, and stacks the results.

    Args:
        in_dims: where the batch is in the arguments, None for those that all items share; one for
            all arguments, or a tuple with one for each, or for each part of one.
        out_dims: where it is in the results; one for all, or one for each.

    PyTorch calls func once, with operations that know of the batch. Here it is called for each
    item: the same numbers, in more time. Random numbers differ from item to item.
    Raises:
        ValueError: no argument has a batch, or their sizes differ.
    """

    def batched(x: Any, dim: Any) -> list:
        """[(leaf, its dimension), ...]: a dimension counts for all leaves below it."""
        if isinstance(dim, (tuple, list)) and isinstance(x, (tuple, list)):
            return [pair for part, d in zip(x, dim, strict=True) for pair in batched(part, d)]
        if isinstance(dim, dict):
            return [pair for key in x for pair in batched(x[key], dim[key])]
        return [(leaf, dim) for leaf in tree_flatten(x)[0]]

    def call(*args: Any, **kwargs: Any) -> Any:
        dims = in_dims if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args)
        if len(dims) != len(args):
            raise ValueError(f"vmap: in_dims has {len(dims)} entries for {len(args)} arguments")
        pairs = batched(args, dims)
        pairs += [
            (leaf, 0 if isinstance(leaf, Tensor) else None) for leaf in tree_flatten(kwargs)[0]
        ]
        sizes = {x.shape[dim] for x, dim in pairs if dim is not None}
        if len(sizes) != 1:
            raise ValueError(f"vmap: expected one size of the batch, but got {sorted(sizes)}")
        spec, results = tree_flatten((args, kwargs))[1], []
        for number in range(sizes.pop()):
            item = [x if dim is None else x.select(dim, number) for x, dim in pairs]
            given, named = tree_unflatten(item, spec)
            results.append(tree_flatten(func(*given, **named)))
        spec = results[0][1]
        columns = list(zip(*[leaves for leaves, _ in results], strict=True))
        places = tree_flatten(out_dims)[0]
        places = places * len(columns) if len(places) == 1 else places
        return tree_unflatten(
            [stack(column, place) for column, place in zip(columns, places, strict=True)], spec
        )

    return call


def stack_module_state(models: Sequence[Module]) -> tuple[dict, dict]:
    """(parameters, buffers) of modules of one kind, stacked: what `vmap` of a functional_call
    takes for an ensemble. The parameters are new leaves.

    Raises:
        RuntimeError: there are no models, or they are of different classes.
    """
    if len({type(model) for model in models}) != 1:
        raise RuntimeError("stack_module_state: Expected models of one class, at least one")

    def stacked(members: list[dict]) -> dict:
        return {name: stack([each[name].detach() for each in members]) for name in members[0]}

    params = stacked([dict(model.named_parameters()) for model in models])
    for name, param in models[0].named_parameters():
        params[name].requires_grad_(param.requires_grad)
    return params, stacked([dict(model.named_buffers()) for model in models])


if __name__ == "__main__":
    from tinytorch.func.calls import functional_call
    from tinytorch.nn.modules.linear import Linear

    models = [Linear(3, 2) for _ in range(5)]
    params, buffers = stack_module_state(models)
    print(params["weight"].shape, params["bias"].requires_grad, params["bias"].is_leaf, buffers)
    # -> tinytorch.Size([5, 2, 3]) True True {}

    def call(params: dict, buffers: dict, x: Tensor) -> Tensor:
        return functional_call(models[0], (params, buffers), (x,))

    x = ones_like(models[0].weight)
    votes = vmap(call, (0, 0, None))(params, buffers, x)
    print(votes.shape, votes[3].equal(models[3](x)))  # -> tinytorch.Size([5, 2, 2]) True
    try:
        stack_module_state([])
    except RuntimeError as error:
        print(error)  # -> stack_module_state: Expected models of one class, at least one
