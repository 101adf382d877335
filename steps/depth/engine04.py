"""Step engine04: retain_grad

Only leaves get a .grad. To look at the gradient of a result in the middle, a program can ask grad()
for it, or add a hook that stores it. The second is so common that it has a name:

    hidden.retain_grad();   loss.backward();   hidden.grad

It is a hook, with two details that are easy to get wrong.

The hook belongs to the node, and it has to find the tensor. If it simply refers to it, the node
refers to its own output: the cycle of step 17a, and the graph stays until the collector runs. So it
refers to it weakly, and if the tensor is gone there is nothing to store.

Other hooks may replace the gradient. What is retained should be the gradient that goes on, so this
hook has to stay the last one, even if others are registered later. It has the key "retain" in place
of a number, and Hooks.add moves it to the end again.

Changed: Hooks.add. New: Tensor.retains_grad, retain_grad. Finished: autograd/hooks.py.
Try: replace `tensor = weakref.ref(self)` in retain_grad by `tensor = lambda: self`. What breaks?
"""

import gc
import weakref
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.modes import no_grad
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

    Returns {leaf: gradient}, or, with `targets`, {edge of a target: gradient}.
    """
    needed = None if targets is None else nodes_on_the_way(edges, targets)
    arrived: dict = {}  # node or leaf -> its gradient (of a node with several outputs: a list)
    own: set = set()  # those whose gradient is a sum made here: only these are added to in place
    found: dict = {}
    heap: list = []
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
            elif node in own:
                arrived[node] += grad
            else:
                # Not in place: Add, for one, hands the same array to both of its inputs.
                arrived[node] = arrived[node] + grad
                if not as_tensors:
                    own.add(node)
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
        if node.plain and not as_tensors:
            grads = node.backward(grad)
        else:
            grads = general_step(node, grad, as_tensors)
        if grads.__class__ is not tuple:
            grads = (grads,)
        edges = node.edges
        if not keep_graph and node.saved is not NOTHING:
            node.saved = FREED
    if targets is None:
        return arrived
    return {**{(leaf, 0): grad for leaf, grad in arrived.items()}, **found}


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


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Add an arrived gradient to leaf.grad, which always owns its array."""
    if leaf._hooks:
        grad = run_hooks(leaf._hooks, grad, leaf.device)
    if isinstance(grad, Tensor):
        leaf._grad = grad.clone() if leaf._grad is None else leaf._grad + grad
    elif leaf._grad is None:
        leaf._grad = wrap(leaf.device.xp.array(grad), leaf.device)
    else:
        bump_version(leaf._grad.array)  # a graph may have saved it
        leaf._grad.array += grad
    if leaf._after_hooks:
        for hook in list(leaf._after_hooks.values()):
            hook(leaf)


def starting_gradients(outputs: Sequence[Tensor], grads: Sequence[Any]) -> list[Tensor]:
    """The given gradients, or ones for scalars."""
    checked = []
    for number, (output, grad) in enumerate(zip(outputs, grads, strict=True)):
        if not output.requires_grad:
            raise RuntimeError(
                f"element {number} of tensors does not require grad and does not have a grad_fn"
            )
        if grad is None:
            if output.array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            ones = output.device.xp.ones(output.array.shape, output.array.dtype)
            grad = wrap(ones, output.device)
        checked.append(grad)
    return checked


def as_sequence(value: Any) -> tuple:
    return () if value is None else (value,) if isinstance(value, Tensor) else tuple(value)


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
    targets = None if inputs is None else {edge_of(target) for target in inputs}
    keep = create_graph if retain_graph is None else retain_graph
    as_tensors = create_graph or bool(state.modes)
    before = state.grad_enabled
    state.grad_enabled = create_graph
    try:
        grads = starting_gradients(roots, given)
        grads = grads if as_tensors else [grad.array for grad in grads]
        return backward_pass([edge_of(x) for x in roots], grads, keep, as_tensors, targets)
    finally:
        state.grad_enabled = before


@tensor_method("backward")
def tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Add to the grad of each leaf behind this tensor the derivative with respect to it.

    gradient is that of some number with respect to this tensor; a single element may leave it out,
    which means 1. With create_graph the gradients are recorded, and can be differentiated.
    retain_graph keeps what the graph has saved for another backward.
    """
    arrived = run_backward(self, gradient, retain_graph, create_graph, None)
    for leaf, grad in arrived.items():
        accumulate(leaf, grad)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`; no .grad is touched.

    An input that the outputs do not depend on gives None with allow_unused=True, and zeros with
    materialize_grads=True. The other arguments are those of `backward`.

    Raises:
        RuntimeError: as `backward`, or an input is unused and neither option is given.
    """
    targets = as_sequence(inputs)
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

    def message(action, *args, **kwargs):
        try:
            action(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError) as error:
            return str(error).partition(". ")[0]

    ones = tensor([1.0, 1.0])
    x = tensor([1.0, 2.0], requires_grad=True)
    hidden = x * 3.0
    hidden.retain_grad()
    hidden.retain_grad()  # a second time changes nothing
    hidden.register_hook(lambda g: g * 10.0)  # registered later, and yet it runs before
    out = hidden * hidden
    out.backward(ones, retain_graph=True)
    print(hidden.grad, x.grad)  # -> tensor([60.0, 120.0]) tensor([180.0, 360.0])
    out.backward(ones)
    print(hidden.grad)  # added to, as for a leaf
    # -> tensor([120.0, 240.0])

    x.retain_grad()  # a leaf has its .grad anyway
    print(hidden.retains_grad, x.retains_grad)  # -> True False
    print(message(ones.retain_grad))
    # -> can't retain_grad on Tensor that has requires_grad=False

    gc.disable()  # without the collector: does a reference count free the graph?
    node = weakref.ref(hidden.grad_fn)
    del hidden, out
    print("freed:", node() is None)  # -> freed: True
    middle = x * 2.0
    middle.retain_grad()
    end = middle * 2.0
    del middle  # the tensor is gone, its node is still part of the graph
    end.backward(ones)
    gc.enable()
