"""Step 45: Hooks, and who owns a gradient

On its way between two nodes a gradient cannot be seen from outside. To log it, clip it or stop it
you need a place to stand. PyTorch calls it a hook.

- x.register_hook(f) calls f with each gradient of x; what f returns takes its place. The hooks of a
  result belong to its node: they are called once, when all parts of the gradient have arrived.
- register_post_accumulate_grad_hook(f) calls f with a leaf, when its .grad is complete.
- retain_grad() lets a tensor that is no leaf keep its gradient. It is a hook, too, and it holds the
  tensor by a weak reference only: a strong one would be the cycle of step 17.

Each registration returns a handle, and handle.remove() takes the hook away. A node that has hooks
is not `plain`, and only such nodes are asked for them: if there are no hooks, they cost nothing.

Who owns a gradient? Since step 33 each leaf has owned its array, because accumulate made a copy.
Usually the copy was not needed: the rule had just made the array, and nobody else held it. The
reference count tells. Python keeps one for each object, and an array that only accumulate holds is
taken as it is. What a hook returns may have other owners, a view never owns its memory, and a
gradient with a graph may stand in a formula: these are still copied.

In the other direction, somebody may hold leaf.grad when the next gradient is added to it in place:
a graph may have saved it. So this write is counted, if anybody else holds the array.

Nothing here is recursive. The demo goes through a chain of 100,000 calls, and drops it: without a
cycle the graph is gone the moment nobody holds it, collector or not.

Changed: backward_pass, accumulate, grad. New: register_hook, register_post_accumulate_grad_hook,
retain_grad, RemovableHandle. Module finished: autograd/engine.py.
Try: replace `tensor = weakref.ref(self)` in retain_grad by `tensor = lambda: self`. What breaks?
"""

import sys
import weakref
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.modes import thread
from tinytorch.autograd.node import NOTHING, Function, edge_of
from tinytorch.core.tensor import Tensor, tensor, tensor_method, wrap
from tinytorch.core.version import Writes, count_write


class Freed:
    """Stands in the place of saved values that a backward pass has used and dropped. RuntimeError
    for who asks for one."""

    def __getitem__(self, number: Any) -> Any:
        raise RuntimeError(
            "Trying to backward through the graph a second time: the first pass has freed what was "
            "saved for it. Specify retain_graph=True in the first call of backward() or grad()."
        )


FREED = Freed()


def node_of(edge: Any) -> Any:
    """The node or leaf of an edge, without the output number."""
    return edge[0] if edge.__class__ is tuple else edge


def backward_pass(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor],
    keep_graph: bool,
    create_graph: bool,
    targets: Sequence[Tensor] | None = None,
) -> dict:
    """Carries the gradients `grads` of `roots` to the leaves.

    A heap gives the youngest node that has a gradient. Whoever used its result is younger still,
    so by then all parts of its gradient have arrived.

    On their way gradients are plain arrays. They are Tensors if they are to be differentiated
    (create_graph), or if a mode on this thread wants to see each operation.

    Returns {leaf: gradient}, or, where `targets` are given, {edge of a target: gradient}.
    """
    as_tensors = create_graph or bool(thread.modes)
    wanted = None if targets is None else {edge_of(target) for target in targets}
    useful = None if targets is None else nodes_that_reach(roots, {node_of(e) for e in wanted})
    arrived: dict = {}  # node or leaf -> its gradient (of a node with several outputs: a list)
    ours: set = set()  # those whose gradient is a sum that was made here: it may be added to
    found: dict = {}
    heap: list = []
    edges = [edge_of(root) for root in roots]
    grads = list(grads) if as_tensors else [grad.array for grad in grads]
    while True:
        for edge, grad in zip(edges, grads):  # noqa: B905 (a keyword takes longer than the rest)
            if edge is None or grad is None:
                continue
            if useful is not None and node_of(edge) not in useful:
                continue
            if edge.__class__ is tuple:
                add_part(arrived, heap, edge, grad)
            elif edge not in arrived:
                arrived[edge] = grad
                order = edge.order
                if order is not None:  # a leaf has none
                    heappush(heap, (order, edge))
            elif edge in ours:
                arrived[edge] += grad
            else:
                # The first part may belong to somebody else too: Add gives both inputs one array.
                arrived[edge] = arrived[edge] + grad
                if not as_tensors:
                    ours.add(edge)
        if not heap:
            break
        order, node = heappop(heap)
        grad = arrived.pop(node)
        plain = node.plain
        if not plain and node.hooks is not None:
            grad = call_hooks(node, grad)
        if wanted is not None:
            results = (
                {(node, i): part for i, part in enumerate(grad)} if node.several else {node: grad}
            )
            found.update((edge, part) for edge, part in results.items() if edge in wanted)
            if not any(e is not None and node_of(e) in useful for e in node.edges):
                edges = ()  # nothing goes on from here
                continue
        if Writes.last < order:
            node.check_saved()
        if plain and not as_tensors:
            grads = node.backward(grad)
        else:
            grads = general_step(node, grad, as_tensors)
        if grads.__class__ is not tuple:
            grads = (grads,)
        edges = node.edges
        if not keep_graph and node.saved is not NOTHING:
            node.saved = FREED
    return arrived if targets is None else {**arrived, **found}


def add_part(arrived: dict, heap: list, edge: tuple, grad: Any) -> None:
    """Adds the gradient of one result of a call that has several."""
    node, number = edge
    if node not in arrived:
        arrived[node] = [None] * len(node.outputs)
        heappush(heap, (node.order, node))
    earlier = arrived[node][number]
    arrived[node][number] = grad if earlier is None else earlier + grad


def general_step(node: Function, grad: Any, as_tensors: bool) -> tuple:
    """One node's backward where it is not a plain array formula of a single gradient."""
    grads = list(grad) if node.several else [grad]
    xp, device = node.device.xp, node.device
    if node.several and node.fill_missing:
        for number, like in enumerate(node.outputs):
            if grads[number] is None and like is not None:
                zeros = xp.zeros(like[0], like[1])
                grads[number] = wrap(zeros, device) if as_tensors else zeros
    if as_tensors:
        results = node.gradients(grads)
    elif node.on_tensors:
        results = node.gradients(
            [None if g is None else wrap(xp.asarray(g), device) for g in grads]
        )
    else:
        results = node.backward(*grads)
    if results.__class__ is not tuple:
        results = (results,)
    if node.input_shapes is not None:
        results = node.sum_back(results)
    if node.on_tensors and not as_tensors:
        results = [None if result is None else result.array for result in results]
    return tuple(results)


def nodes_that_reach(roots: Sequence[Tensor], targets: set) -> set:
    """All nodes and leaves on a way from a root to one of the targets."""
    seen, waiting = set(), [node_of(edge_of(root)) for root in roots]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            if node.order is not None:  # a leaf has none
                waiting.extend(node_of(edge) for edge in node.edges if edge is not None)
    useful = {node for node in seen if node in targets}
    for node in sorted((n for n in seen if n.order is not None), key=lambda n: -n.order):
        if any(edge is not None and node_of(edge) in useful for edge in node.edges):
            useful.add(node)
    return useful


def call_hooks(node: Function, grad: Any) -> Any:
    """Shows the gradients of a node's outputs to the hooks on them, which may replace them."""
    grads = grad if node.several else [grad]
    for number, hooks in node.hooks.items():
        if grads[number] is not None:
            grads[number] = run_hooks(hooks, grads[number], node.device)
    return grads if node.several else grads[0]


def run_hooks(hooks: dict, grad: Any, device: Any) -> Any:
    """Calls each hook with the gradient as a Tensor; what a hook returns takes its place."""
    as_array = not isinstance(grad, Tensor)
    tensor = wrap(device.xp.asarray(grad), device) if as_array else grad
    for hook in list(hooks.values()):
        answer = hook(tensor)
        if answer is not None:
            if not isinstance(answer, Tensor):
                raise TypeError(f"a hook returns None or a Tensor, not {type(answer).__name__}")
            if answer.shape != tensor.shape:
                raise RuntimeError(
                    f"a hook has changed the shape of a gradient, {list(tensor.shape)}, to "
                    f"{list(answer.shape)}"
                )
            tensor = answer
    return tensor.array if as_array else tensor


def references_of_a_gradient() -> int:
    """What getrefcount says inside accumulate, as backward calls it, of an array that is only
    there. It depends on the version of Python."""

    def count(leaf: None, grad: object) -> int:
        return sys.getrefcount(grad)

    leaf, grad = {None: object()}.popitem()
    return count(leaf, grad)


UNSHARED = references_of_a_gradient()


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Adds an arrived gradient to leaf.grad, which always owns its array."""
    if leaf._hooks:
        grad = run_hooks(leaf._hooks, grad, leaf.device)
    if isinstance(grad, Tensor):
        leaf._grad = grad.clone() if leaf._grad is None else leaf._grad + grad
    elif leaf._grad is not None:
        if sys.getrefcount(leaf._grad.array) > 2:  # not only its tensor: a graph may have saved it
            count_write(leaf._grad.array)
        leaf._grad.array += grad
    else:
        # An array that nobody else holds is taken as it is. What hooks return may be anybody's,
        # a view has its memory from somebody, and a number of NumPy's is no array.
        shared = leaf._hooks or sys.getrefcount(grad) > UNSHARED
        if shared or grad.__class__ is not leaf.device.array_type or grad.base is not None:
            grad = leaf.device.xp.array(grad)
        leaf._grad = wrap(grad, leaf.device)
    if leaf._after_hooks:
        for hook in list(leaf._after_hooks.values()):
            hook(leaf)


def starting_gradients(outputs: Sequence[Tensor], grads: Sequence[Any]) -> list[Tensor]:
    """The given gradients, or ones for scalars. RuntimeError for what cannot be right."""
    checked = []
    for number, (output, grad) in enumerate(zip(outputs, grads, strict=True)):
        if not output.requires_grad:
            raise RuntimeError(
                f"element {number} of tensors does not require grad and does not have a grad_fn"
            )
        if grad is None:
            if output.array.size != 1:
                raise RuntimeError(
                    f"grad can be implicitly created only for scalar outputs, this one has the "
                    f"shape {list(output.shape)}"
                )
            ones = output.device.xp.ones(output.array.shape, output.array.dtype)
            grad = wrap(ones, output.device)
        elif not isinstance(grad, Tensor):
            raise TypeError(f"gradients are Tensors or None, but got {type(grad).__name__}")
        elif grad.shape != output.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{number}] has a shape of {grad.shape} and "
                f"output[{number}] has a shape of {output.shape}."
            )
        elif grad.dtype is not output.dtype:
            grad = grad.to(output.dtype)
        checked.append(grad)
    return checked


def as_sequence(value: Any) -> tuple:
    return () if value is None else (value,) if isinstance(value, Tensor) else tuple(value)


def check_targets(targets: tuple | None) -> None:
    """RuntimeError where the inputs, if any are given, cannot get a gradient."""
    if targets is not None and not targets:
        raise RuntimeError("`inputs` cannot be empty.")
    for number, target in enumerate(targets or ()):
        if not target.requires_grad:
            raise RuntimeError(
                f"One of the differentiated Tensors, at index {number}, does not require grad"
            )


def run_backward(
    tensors: Any,
    grad_tensors: Any,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Any,
) -> dict:
    """backward_pass, from arguments as people write them, with recording set to create_graph."""
    roots = as_sequence(tensors)
    given = as_sequence(grad_tensors) or (None,) * len(roots)
    if len(given) != len(roots):
        raise RuntimeError(f"got {len(roots)} tensors and {len(given)} gradients")
    check_targets(inputs)
    keep = create_graph if retain_graph is None else retain_graph
    before = thread.grad_enabled
    thread.grad_enabled = create_graph
    try:
        return backward_pass(roots, starting_gradients(roots, given), keep, create_graph, inputs)
    finally:
        thread.grad_enabled = before


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Adds the gradients of `tensors` to the .grad of the leaves (or of `inputs` only).

    Args:
        tensors: the outputs to differentiate.
        grad_tensors: the gradient that arrives at each of them; None for a scalar means 1.
        retain_graph: keep the saved values, for another backward through the same graph.
        create_graph: record the backward pass, so that the gradients can be differentiated.
    Raises RuntimeError where there is no graph, where a non-scalar has no gradient, where the
    graph has been freed, and where a saved tensor was changed in place.
    """
    targets = None if inputs is None else as_sequence(inputs)
    arrived = run_backward(tensors, grad_tensors, retain_graph, create_graph, targets)
    if targets is None:
        while arrived:
            leaf, grad = arrived.popitem()
            accumulate(leaf, grad)
        return
    for target in targets:
        grad = arrived.pop(edge_of(target), None)
        if grad is not None:
            accumulate(target, grad)


@tensor_method("backward")
def tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Differentiates this tensor: see tinytorch.autograd.backward."""
    backward(self, gradient, retain_graph, create_graph, inputs)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`; no .grad is touched.

    An input that the outputs do not depend on raises RuntimeError, or gives None with
    allow_unused=True, or zeros with materialize_grads=True. Arguments else as in `backward`;
    only_inputs says nothing, here as in PyTorch.
    """
    targets = as_sequence(inputs)
    if materialize_grads and allow_unused is False:
        raise ValueError("materialize_grads fills in for unused inputs: allow_unused must be True")
    found = run_backward(outputs, grad_outputs, retain_graph, create_graph, targets)
    results = []
    for number, target in enumerate(targets):
        value = found.get(edge_of(target))
        if value is None:
            if not allow_unused and not materialize_grads:
                raise RuntimeError(
                    f"The differentiated Tensor at index {number} appears to not have been used "
                    f"in the graph. Set allow_unused=True if this is the desired behavior."
                )
            if materialize_grads:
                value = target.device.xp.zeros(target.array.shape, target.array.dtype)
        if value is not None and not isinstance(value, Tensor):
            value = wrap(target.device.xp.array(value), target.device)
        if value is not None and target._grad_fn is None and target._hooks:
            value = run_hooks(target._hooks, value, target.device)
        results.append(value)
    return tuple(results)


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away again."""

    next_id = 0

    def __init__(self, hooks: dict):
        self.hooks = weakref.ref(hooks)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1

    def remove(self) -> None:
        hooks = self.hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> "RemovableHandle":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.remove()


class Hooks(dict):
    """Hooks by the id of their handle, in the order of registration. Unlike a dict, it can be
    referred to weakly."""

    def add(self, hook: Callable) -> RemovableHandle:
        handle = RemovableHandle(self)
        self[handle.id] = hook
        if "retain" in self:  # retain_grad comes last: it keeps what the others have made of it
            self["retain"] = self.pop("retain")
        return handle


@tensor_method("register_hook")
def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Calls hook(gradient) whenever a gradient of this tensor is computed; what it returns, if
    anything, takes the gradient's place. RuntimeError where the tensor requires no gradient."""
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return hooks_of(self).add(hook)


def hooks_of(tensor: Tensor) -> Hooks:
    """The hooks on the gradient of `tensor`: a leaf has its own, others keep them at their node."""
    if tensor._grad_fn is None:
        tensor._hooks = Hooks() if tensor._hooks is None else tensor._hooks
        return tensor._hooks
    node = tensor._grad_fn
    if node.hooks is None:
        node.hooks, node.plain = {}, False
    return node.hooks.setdefault(tensor._output_nr or 0, Hooks())


@tensor_method("register_post_accumulate_grad_hook")
def register_post_accumulate_grad_hook(
    self: Tensor, hook: Callable[[Tensor], None]
) -> RemovableHandle:
    """Calls hook(leaf) after each accumulation into leaf.grad. RuntimeError for other tensors."""
    if not self.is_leaf or not self.requires_grad:
        raise RuntimeError(
            "post accumulate grad hooks can only be registered on leaf tensors that require grad"
        )
    if self._after_hooks is None:
        self._after_hooks = Hooks()
    return self._after_hooks.add(hook)


@tensor_method("retain_grad")
def retain_grad(self: Tensor) -> None:
    """Lets a tensor that is no leaf keep its .grad too. RuntimeError without requires_grad."""
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if self.is_leaf or self.retains_grad:
        return
    self.retains_grad = True
    tensor = weakref.ref(self)  # the node must not keep its own output alive

    def keep(grad: Tensor) -> None:
        kept = tensor()
        if kept is not None:
            kept._grad = grad if kept._grad is None else kept._grad + grad

    hooks_of(self)["retain"] = keep


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


if __name__ == "__main__":
    import gc
    import tracemalloc

    ones = tensor([1.0, 1.0])
    x = tensor([1.0, 2.0], requires_grad=True)
    seen = []
    a = x * 2.0
    a.retain_grad()
    handle = a.register_hook(lambda g: seen.append(g.tolist()))
    b = a * a + a  # two ways lead to a: the hook sees their sum, once
    x.grad = None
    b.backward(ones)
    print("a hook:", seen, " kept:", a.grad, " leaf:", x.grad)
    # -> a hook: [[5.0, 9.0]]  kept: tensor([5.0, 9.0])  leaf: tensor([10.0, 18.0])
    handle.remove()
    x.grad = None
    with x.register_hook(lambda g: g * 0.5):
        (x * 2.0).backward(ones)
    print("halved:", x.grad)  # -> halved: tensor([1.0, 1.0])
    x.register_post_accumulate_grad_hook(lambda leaf: print("accumulated:", leaf.grad))
    # -> accumulated: tensor([4.0, 4.0])
    (x * 3.0).backward(ones)

    print("grad too:", grad(x * x, x, ones))  # -> grad too: (tensor([2.0, 4.0]),)
    with x.register_hook(lambda g: g * 0.5):
        print("halved:", grad(x * x, x, ones))  # -> halved: (tensor([1.0, 2.0]),)

    u, v = tensor([1.0, 1.0], requires_grad=True), tensor([1.0, 1.0], requires_grad=True)
    (u + v).backward(ones)
    u.grad.mul_(100.0)
    print("owners:", v.grad, ones)  # -> owners: tensor([1.0, 1.0]) tensor([1.0, 1.0])

    first = u.grad
    (u * 2.0).backward(ones)
    print("added in place:", u.grad is first, u.grad)
    # -> added in place: True tensor([102.0, 102.0])
    w = tensor([3.0, 3.0], requires_grad=True)
    penalty = u.grad * w  # saves u.grad
    (u * 2.0).backward(ones)
    try:
        penalty.backward(ones)
    except RuntimeError as reason:
        print("noticed:", str(reason).partition(":")[0].rpartition(" has ")[2])
        # -> noticed: been modified by an inplace operation

    def peak(action):
        tracemalloc.start()
        action()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return round(most / 1e6)

    big, half = tensor(0.0).expand(1_000_000).clone(), tensor(0.5)
    big.requires_grad_()
    y = big * half
    start = y.detach().clone()
    print(f"{peak(lambda: y.backward(start))} MB for a gradient of {big.nbytes // 1_000_000} MB")
    # -> 4 MB for a gradient of 4 MB

    gc.collect()
    gc.disable()
    x = tensor(1.0, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    y.retain_grad()
    y.backward()
    node = weakref.ref(y.grad_fn)
    print("100,000 deep:", x.grad, node() is None)  # -> 100,000 deep: tensor(1.0) False
    del y
    print("gone, with the collector off:", node() is None)  # -> gone, with the collector off: True
    gc.enable()
