"""Step engine09: A leaf gets its gradient while backward goes on

The hooks of step engine03 are called when a gradient has been added to a leaf. But when is that?
The pass collects the gradients of all leaves, and only at its very end are they added. So a program
that sends the gradient of the last layer to another machine, or moves its weight at once and
forgets the gradient, waits for the first layer. The demo shows the order, and counts how many
gradients are in memory at once: all of them.

When is the gradient of a leaf complete? When each edge that leads to it has delivered its part: a
weight that is used twice gets two. Nodes are sorted by time, leaves are not, so this has to be
counted:

    when the first leaf that has such hooks gets a part:
        missing[leaf] = how many edges lead to it from this node and from those still to come
    after each node:
        missing[leaf] -= 1 for each of its edges to the leaf;    at 0, the leaf gets its gradient

A graph without such leaves is not searched: its only cost is a look at the hooks of each leaf.
And a leaf that was frozen (requires_grad_(False)) after the graph was recorded gets nothing.

The trap is an edge along which no gradient comes (a node's backward returned None). It is counted
all the same, or its leaf would wait for ever. If a node never runs, its edges are not counted down,
and the leaves behind them get their gradients at the end, as before.

(PyTorch counts the edges of every graph before each pass. The times that its nodes have too only
order the queue.)

Changed: backward_pass, accumulate. New: parts_to_come, accumulate_complete.
Finished: autograd/engine.py and autograd/backward.py, which holds what a person calls.
Try: let parts_to_come count every leaf once, and see what the weight that is used twice gets.
"""

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.modes import FunctionMode, no_grad
from tinytorch.autograd.node import NOTHING, Function, new, sum_to
from tinytorch.core.device import cpu
from tinytorch.core.dtype import int64
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor, tensor_method, wrap
from tinytorch.core.version import bump_version, last_write, next_sequence_nr
from tinytorch.ops.broadcast import Expand
from tinytorch.ops.conversion import cast


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x: Any) -> Any:
        y = ctx.xp.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        return g * ctx.saved[0]


@tensor_method("exp")
def exp(input: Tensor) -> Tensor:
    return Exp.apply(input)


class Sum(Function):
    """y = x_1 + ... + x_n;   dy/dx_i = 1: the gradient is repeated."""

    def forward(ctx, x: Any) -> Any:
        ctx.shape = x.shape
        return sum_to(x, ())

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, g, ctx.shape)


@tensor_method("sum")
def sum(input: Tensor) -> Tensor:
    """The sum of all elements; integers and booleans are added up as int64."""
    return Sum.apply(input if input.dtype.is_floating_point else cast(input, int64))


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


Tensor.retains_grad = False


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
    """Call hook(gradient) whenever a gradient of this tensor is computed.

    What the hook returns, if it is not None, replaces the gradient.

    Raises:
        RuntimeError: the tensor does not require a gradient.
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return hooks_of(self).add(hook)


def hooks_of(tensor: Tensor) -> Hooks:
    """The hooks on the gradient of `tensor`: a leaf has its own, others keep them at their node."""
    if tensor.is_leaf:
        tensor._hooks = Hooks() if tensor._hooks is None else tensor._hooks
        return tensor._hooks
    node, number = tensor._edge
    if node.hooks is None:
        node.hooks, node.plain = {}, False
    return node.hooks.setdefault(number, Hooks())


@tensor_method("register_post_accumulate_grad_hook")
def register_post_accumulate_grad_hook(
    self: Tensor, hook: Callable[[Tensor], None]
) -> RemovableHandle:
    """Call hook(leaf) after each accumulation into leaf.grad.

    Raises:
        RuntimeError: the tensor is not a leaf that requires a gradient.
    """
    if not self.is_leaf or not self.requires_grad:
        raise RuntimeError(
            "post accumulate grad hooks can only be registered on leaf tensors that require grad"
        )
    if self._after_hooks is None:
        self._after_hooks = Hooks()
    return self._after_hooks.add(hook)


@tensor_method("retain_grad")
def retain_grad(self: Tensor) -> None:
    """Keep the gradient of a tensor that is not a leaf in its .grad too.

    Raises:
        RuntimeError: the tensor does not require a gradient.
    """
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


def call_hooks(node: Function, grad: Any) -> Any:
    """Show the gradients of a node's outputs to the hooks on them, which may replace them."""
    grads = grad if node.several else [grad]
    for number, hooks in node.hooks.items():
        if grads[number] is not None:
            grads[number] = run_hooks(hooks, grads[number], node.device)
    return grads if node.several else grads[0]


def run_hooks(hooks: dict, grad: Any, device: Any) -> Any:
    """Call each hook with the gradient as a Tensor; what a hook returns replaces it."""
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


class Freed:
    """Sentinel for saved values freed by backward; any access raises RuntimeError."""

    def __getitem__(self, number: Any) -> Any:
        raise RuntimeError(
            "Trying to backward through the graph a second time: the first pass has freed what was "
            "saved for it. Specify retain_graph=True in the first call of backward() or grad()."
        )


FREED = Freed()


def edge_of(tensor: Tensor) -> tuple | None:
    """Where a gradient of `tensor` goes: (node or leaf, output number), or None."""
    return (tensor._edge or (tensor, 0)) if tensor.requires_grad else None


def backward_pass(
    edges: Sequence,
    grads: Sequence,
    keep_graph: bool,
    as_tensors: bool,
    targets: set | None = None,
) -> dict:
    """Carry the gradients `grads` of `edges` to the leaves.

    The heap yields the newest node that has a gradient. All calls that used its result are newer
    still, so by then every part of its gradient has arrived.

    Gradients are plain arrays on their way, or Tensors (`as_tensors`) if they are to be
    differentiated or if a mode wants to see each operation.

    Returns {leaf: gradient}, or, with `targets`, {edge of a target: gradient}. A leaf with hooks on
    its accumulation is not among them: it has got its gradient as soon as all of it had arrived.
    """
    needed = None if targets is None else nodes_on_the_way(edges, targets)
    direct = not (as_tensors or state.modes)  # with neither, most nodes take the short way
    step = step_through_modes if state.modes else general_step
    arrived: dict = {}  # node or leaf -> its gradient (of a node with several outputs: a list)
    own: set = set()  # those whose gradient is a sum made here: only these are added to in place
    found: dict = {}
    heap: list = []
    missing: dict | None = None  # leaf with such hooks -> how many parts have not arrived
    while True:
        for edge, grad in zip(edges, grads):  # noqa: B905 (a keyword costs more than the test)
            if edge is None or grad is None:
                continue
            node, number = edge
            if needed is not None and node not in needed:
                continue
            if node.several:
                add_part(arrived, heap, node, number, grad)
            elif node not in arrived:
                arrived[node] = grad
                if node.sequence_nr is not None:  # a leaf has none
                    heappush(heap, (node.sequence_nr, node))
                elif missing is None and node._after_hooks and targets is None:
                    missing = parts_to_come(edges, heap)
            elif node in own:
                arrived[node] += grad
            else:
                # Not in place: Add, for one, hands the same array to both of its inputs.
                arrived[node] = arrived[node] + grad
                if not as_tensors:
                    own.add(node)
        if missing:
            grads = grad = None  # what nothing else refers to, accumulate takes uncopied
            accumulate_complete(edges, missing, arrived)
        if not heap:
            break
        sequence_nr, node = heappop(heap)
        grad = arrived.pop(node)
        if node.hooks is not None:
            grad = call_hooks(node, grad)
        if targets is not None:
            for number, part in enumerate(grad if node.several else (grad,)):
                if (node, number) in targets:
                    found[node, number] = part
            if not any(edge is not None and edge[0] in needed for edge in node.edges):
                edges = ()
                continue
        if last_write[0] < sequence_nr:
            node.check_saved()
        if node.plain and direct:
            grads = node.backward(grad)
        else:
            grads = step(node, grad, as_tensors)
        if grads.__class__ is not tuple:
            grads = (grads,)
        edges = node.edges
        if not keep_graph and node.saved is not NOTHING:
            node.saved = FREED
    if targets is None:
        return arrived
    return {**{(leaf, 0): grad for leaf, grad in arrived.items()}, **found}


def parts_to_come(edges: Sequence, heap: list) -> dict:
    """How many gradients will arrive at each leaf that has hooks on its accumulation: one along
    each of `edges`, and one along each edge of a node below them or below those in the heap."""
    parts: dict = {}
    seen, waiting = set(), [*edges, *((node, 0) for _, node in heap)]
    while waiting:
        edge = waiting.pop()
        node = None if edge is None else edge[0]
        if node is None or node in seen:
            continue
        if node.sequence_nr is not None:
            seen.add(node)
            waiting.extend(node.edges)
        elif node._after_hooks:
            parts[node] = parts.get(node, 0) + 1
    return parts


def accumulate_complete(edges: Sequence, missing: dict, arrived: dict) -> None:
    """Count what came along `edges`, and accumulate the gradients that are complete now."""
    for edge in edges:
        leaf = None if edge is None else edge[0]
        if leaf in missing:
            missing[leaf] -= 1
            if not missing[leaf]:
                del missing[leaf]
                if leaf in arrived:
                    grad = arrived.pop(leaf)
                    accumulate(leaf, grad)


def add_part(arrived: dict, heap: list, node: Function, number: int, grad: Any) -> None:
    """Add to the gradient of output `number` of a node with several outputs."""
    if node not in arrived:
        arrived[node] = [None] * len(node.outputs)
        heappush(heap, (node.sequence_nr, node))
    earlier = arrived[node][number]
    arrived[node][number] = grad if earlier is None else earlier + grad


def general_step(node: Function, grad: Any, as_tensors: bool) -> tuple:
    """The backward of a node that has several outputs, was broadcast, or works on Tensors."""
    grads = list(grad) if node.several else [grad]
    xp, device = node.device.xp, node.device
    if node.several and node.materialize_grads:
        for number, like in enumerate(node.outputs):
            if grads[number] is None and like is not None:
                zeros = xp.zeros(*like)
                grads[number] = wrap(zeros, device) if as_tensors else zeros
    if node.takes_tensors and not as_tensors:
        grads = [None if g is None else wrap(xp.asarray(g), device) for g in grads]
    on_tensors = as_tensors or node.takes_tensors
    results = node.gradients(grads) if on_tensors else node.backward(*grads)
    if results.__class__ is not tuple:
        results = (results,)
    if node.input_shapes is not None:
        results = node.sum_back(results)
    if node.takes_tensors and not as_tensors:
        results = [None if result is None else result.array for result in results]
    return tuple(results)


class NodeMode(FunctionMode):
    """A mode that also stands around each node of a backward pass.

    It only watches: while no other kind of mode is open, gradients stay plain arrays, as they are
    without a mode, and its method `call` sees what backward calls on Tensors.
    """

    def call_node(self, step: Callable, node: Function, grad: Any, as_tensors: bool) -> tuple:
        return step(node, grad, as_tensors)


def step_through_modes(node: Function, grad: Any, as_tensors: bool) -> tuple:
    """general_step, called by the modes that stand around it. They stay open meanwhile."""
    step = general_step
    for mode in state.modes:
        if isinstance(mode, NodeMode):
            step = functools.partial(mode.call_node, step)
    return step(node, grad, as_tensors)


def nodes_on_the_way(roots: Sequence, targets: set) -> set:
    """All nodes and leaves on a path from a root to a target; both are given as edges."""
    ends = {edge[0] for edge in targets}
    seen, waiting = set(), [edge[0] for edge in roots]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            if node.sequence_nr is not None:
                waiting.extend(edge[0] for edge in node.edges if edge is not None)
    needed = seen & ends
    inner = (node for node in seen if node.sequence_nr is not None)
    for node in sorted(inner, key=lambda node: -node.sequence_nr):  # the oldest first
        if any(edge is not None and edge[0] in needed for edge in node.edges):
            needed.add(node)
    return needed


def references_of_a_gradient() -> int:
    """What getrefcount says inside `accumulate`, as `backward` calls it, about an array that
    nothing else refers to. The number depends on the version of Python."""

    def count(leaf: None, grad: object) -> int:
        return sys.getrefcount(grad)

    leaf, grad = {None: object()}.popitem()
    return count(leaf, grad)


UNSHARED = references_of_a_gradient()


# Reentrant: what is added up may be Tensors, and a mode sees their addition.
accumulating = threading.RLock()


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Add an arrived gradient to leaf.grad, which always owns its array."""
    if leaf._hooks:
        grad = run_hooks(leaf._hooks, grad, leaf.device)
    with accumulating:  # two threads that add to one gradient would lose an addition
        if not leaf._requires_grad:
            pass  # frozen since the graph was recorded
        elif isinstance(grad, Tensor):
            leaf._grad = grad.clone() if leaf._grad is None else leaf._grad + grad
        elif leaf._grad is not None:
            if sys.getrefcount(leaf._grad.array) > 2:  # not only its tensor: a graph may have it
                bump_version(leaf._grad.array)
            leaf._grad.array += grad
        else:
            # An array that nothing else refers to is taken as it is. What a hook returned may be
            # in use elsewhere, a view shares its memory, and a scalar of NumPy is not an array.
            shared = leaf._hooks or sys.getrefcount(grad) > UNSHARED
            if shared or grad.__class__ is not leaf.device.array_type or grad.base is not None:
                grad = leaf.device.xp.array(grad)
            leaf._grad = wrap(grad, leaf.device)
    if leaf._after_hooks:
        for hook in list(leaf._after_hooks.values()):
            hook(leaf)


def starting_gradients(outputs: Sequence[Tensor], grads: Sequence[Any]) -> list[Tensor]:
    """The given gradients, checked, or ones for scalars."""
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
    """Raise RuntimeError if the inputs, where any are given, cannot get a gradient."""
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
    targets = None if inputs is None else {edge_of(target) for target in inputs}
    keep = create_graph if retain_graph is None else retain_graph
    as_tensors = create_graph or not all(isinstance(mode, NodeMode) for mode in state.modes)
    before = state.grad_enabled
    state.grad_enabled = create_graph
    try:
        grads = starting_gradients(roots, given)
        grads = grads if as_tensors else [grad.array for grad in grads]
        return backward_pass([edge_of(x) for x in roots], grads, keep, as_tensors, targets)
    finally:
        state.grad_enabled = before


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of `tensors` to the .grad of the leaves (or of `inputs` only).

    Args:
        tensors: the outputs to differentiate.
        grad_tensors: the gradient that arrives at each of them; None for a scalar means 1.
        retain_graph: keep the saved values, for another backward through the same graph.
        create_graph: record the backward pass, so that the gradients can be differentiated.
    Raises:
        RuntimeError: there is no graph, a non-scalar has no gradient, the graph has been freed, or
            a saved tensor was changed in place.
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
    """Differentiate this tensor: see tinytorch.autograd.backward."""
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

    An input that the outputs do not depend on gives None with allow_unused=True, and zeros with
    materialize_grads=True. The other arguments are those of `backward`; only_inputs is ignored, as
    in PyTorch.

    Raises:
        RuntimeError: as `backward`, or an input is unused and neither option is given.
        ValueError: materialize_grads=True with allow_unused=False.
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
        if value is not None and target.is_leaf and target._hooks:
            value = run_hooks(target._hooks, value, target.device)
        results.append(value)
    return tuple(results)


class CustomFunction(Function):
    """Base of user-defined differentiable functions; its public name is autograd.Function.

    forward(ctx, ...) and backward(ctx, ...) are static methods that work on Tensors; forward is not
    recorded. backward gets one gradient for each output and returns one for each argument.
    """

    takes_tensors = True

    @classmethod
    def apply(cls, *args: Any) -> Any:
        ctx = new(cls)
        ctx.edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
        ctx.device = next((x.device for x in args if isinstance(x, Tensor)), cpu)
        ctx.xp = ctx.device.xp
        record = any(ctx.needs_input_grad) and state.grad_enabled
        with no_grad():
            results = cls.forward(ctx, *args)
        several = isinstance(results, tuple)
        outputs = results if several else (results,)
        if record:
            ctx.sequence_nr = next_sequence_nr()
            ctx.saves = ctx.roles_of((), outputs)
            ctx.record_outputs(outputs)
            ctx.several = len(outputs) > 1
            saved = zip(ctx.saved, ctx.saves, strict=True)
            ctx.saved = tuple(x if role is None else x.array for x, role in saved) or NOTHING
        return results

    def save_for_backward(ctx, *tensors: Tensor | None) -> None:
        """Keep tensors for backward, where they are `ctx.saved_tensors`."""
        ctx.saved = tensors

    @property
    def saved_tensors(ctx) -> tuple:
        return tuple(ctx.saved_tensor(i) for i in range(len(ctx.saved)))

    def saved_tensor(ctx, number: int) -> Any:
        """A saved output comes from this node; other saved tensors are as the user saved them."""
        value = ctx.saved[number]
        return value if isinstance(value, Tensor) else Function.saved_tensor(ctx, number)

    def saved_arrays(ctx) -> list:
        return [getattr(x, "array", x) for x in ctx.saved]

    def gradients(ctx, grads: list) -> Any:
        return type(ctx).backward(ctx, *grads)


if __name__ == "__main__":

    def network(weights, x):
        """A product with each weight, and a hook that tells when its gradient passes."""
        for i, w in enumerate(weights):
            x = x * w
            x.register_hook(lambda g, i=i: print(f"  at layer {i}"))
        return x

    def watch(weights):
        for i, w in enumerate(weights):
            w.register_post_accumulate_grad_hook(
                lambda w, i=i: print(f"    weight {i} has", w.grad)
            )

    ones = tensor([1.0, 1.0])
    weights = [tensor([2.0, 3.0], requires_grad=True) for _ in range(3)]
    watch(weights)
    # With inputs=, gradients are still added at the end, as those of all leaves were.
    backward(network(weights, ones), ones, inputs=weights)
    # ->   at layer 2
    # ->   at layer 1
    # ->   at layer 0
    # ->     weight 0 has tensor([4.0, 9.0])
    # ->     weight 1 has tensor([4.0, 9.0])
    # ->     weight 2 has tensor([4.0, 9.0])

    weights = [tensor([2.0, 3.0], requires_grad=True) for _ in range(3)]
    watch(weights)
    backward(network(weights, ones), ones)
    # ->   at layer 2
    # ->     weight 2 has tensor([4.0, 9.0])
    # ->   at layer 1
    # ->     weight 1 has tensor([4.0, 9.0])
    # ->   at layer 0
    # ->     weight 0 has tensor([4.0, 9.0])

    # A weight that is used twice waits for both parts: 2 w w' and nothing before.
    print("one weight, twice")  # -> one weight, twice
    shared = tensor([2.0, 3.0], requires_grad=True)
    watch([shared])
    backward(network([shared, shared], ones), ones)
    # ->   at layer 1
    # ->   at layer 0
    # ->     weight 0 has tensor([4.0, 6.0])

    class Second(Function):
        """y = b: the first argument gets no gradient."""

        def forward(ctx, a, b):
            return b + 0

        def backward(ctx, g):
            return None, g

    print("an edge without a gradient")  # -> an edge without a gradient
    v, w = tensor([1.0, 1.0], requires_grad=True), tensor([2.0, 3.0], requires_grad=True)
    watch([v, w])
    backward(network([v], Second.apply(w, w * 1.0)), ones)
    # ->   at layer 0
    # ->     weight 0 has tensor([2.0, 3.0])
    # ->     weight 1 has tensor([1.0, 1.0])

    # What it is good for: each weight is moved at once, and its gradient forgotten.
    weights = [tensor([1.0, 1.0], requires_grad=True) for _ in range(50)]
    alive = []

    def move(w):
        alive.append(len([w for w in weights if w.grad is not None]))
        with no_grad():
            w.mul_(0.9)
        w.grad = None

    for w in weights:
        w.register_post_accumulate_grad_hook(move)
    y = ones
    for w in weights:
        y = y * w
    backward(y, ones)
    print("gradients in memory at once:", max(alive), "of", len(alive))
    # -> gradients in memory at once: 1 of 50

    # A weight that is frozen between the forward and the backward pass stays without a gradient.
    frozen = tensor([1.0, 1.0], requires_grad=True)
    y = frozen * ones
    frozen.requires_grad_(False)
    backward(y, ones)
    print("frozen:", frozen.grad)  # -> frozen: None
