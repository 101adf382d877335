"""The backward pass: gradients go from node to node, and add up in the leaves."""

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from tinytorch.autograd.hooks import call_hooks, run_hooks
from tinytorch.autograd.modes import FunctionMode
from tinytorch.autograd.node import NOTHING, Function
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import bump_version, last_write


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
