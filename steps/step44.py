"""Step 44: What backward is asked for

x.backward() answers one question: what are the gradients of this output, for all leaves? It adds
them to their .grad. There are other questions.

- grad(outputs, inputs) returns gradients and touches no .grad. For a formula that contains
  gradients (step 30) this is the natural form. Any tensor may be an input, not only a leaf.
- backward(tensors, inputs=[w]) adds to the .grad of w alone.
- retain_graph=True says that there will be another backward through this graph.

When only some inputs are asked for, the loop need not go everywhere. nodes_that_reach finds the
nodes on a way to one of them. The rule of no other node is called, and the loop does not go beyond
an input. An input that the output does not depend on is usually a mistake, so it is an error.
allow_unused=True permits it and gives None; materialize_grads=True gives zeros.

Freed graphs. What the rules have saved may be most of a program's memory. After its backward, a
node drops it, and FREED takes its place: whoever asks that for a value gets an error. So the memory
of the forward pass shrinks while backward runs, and a second backward through the graph is refused.
retain_graph=True keeps what was saved, and so does create_graph=True, since its very purpose is a
second pass.

The arguments are checked before the first rule runs: a gradient whose shape is not that of its
output, a list of the wrong length, an input that does not require grad, no input at all. A gradient
of another type is cast.

The trap is two outputs that share a part of their graph. y.backward() frees the graph of y, and
with it what z has in common with y: z.backward() then fails halfway. backward([y, z]) does both in
one pass.

Changed: backward_pass, tensor_backward. New: grad, backward, starting_gradients, FREED.
Try: call y.backward(ones) twice for y = x + x, without retain_graph. Why does nobody complain?
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.modes import thread
from tinytorch.autograd.node import NOTHING, Function, edge_of
from tinytorch.core.tensor import Tensor, tensor, tensor_method, wrap
from tinytorch.core.version import Writes


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
        if node.plain and not as_tensors:
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


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Adds an arrived gradient to leaf.grad, which always owns its array."""
    if isinstance(grad, Tensor):
        leaf._grad = grad if leaf._grad is None else leaf._grad + grad
    elif leaf._grad is not None:
        leaf._grad.array += grad
    else:
        grad = leaf.device.xp.array(grad)
        leaf._grad = wrap(grad, leaf.device)


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
        results.append(value)
    return tuple(results)


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


if __name__ == "__main__":

    def error(action, *args, **kwargs):
        try:
            action(*args, **kwargs)
        except (RuntimeError, TypeError) as reason:
            return str(reason).partition(". ")[0]

    ones = tensor([1.0, 1.0])
    x = tensor([1.0, 2.0], requires_grad=True)
    unused = tensor(1.0, requires_grad=True)

    (g,) = grad(x * x * x, x, ones, create_graph=True)
    (gg,) = grad(g, x, ones)
    print("3 x^2:", g, "  6 x:", gg, "  x.grad:", x.grad)
    # -> 3 x^2: tensor([3.0, 12.0])   6 x: tensor([6.0, 12.0])   x.grad: None
    print(error(grad, x * x, [x, unused], ones))
    # -> The differentiated Tensor at index 1 appears to not have been used in the graph
    print(grad(x * x, [x, unused], ones, allow_unused=True)[1])  # -> None
    print(grad(x * x, [x, unused], ones, materialize_grads=True)[1])  # -> tensor(0.0)

    y = x * x
    y.backward(ones)
    print("dropped:", y.grad_fn.saved is FREED)  # -> dropped: True
    print(error(y.backward, ones).partition(":")[0])
    # -> Trying to backward through the graph a second time
    y = x * x
    x.grad = None
    y.backward(ones, retain_graph=True)
    y.backward(ones)
    print("twice:", x.grad)  # -> twice: tensor([4.0, 8.0])
    print(error(y.backward, tensor([1.0])).partition(" and ")[0])
    # -> Mismatch in shape: grad_output[0] has a shape of tinytorch.Size([1])
    print(error(backward, [y, y], [ones]))  # -> got 2 tensors and 1 gradients

    p, q = tensor(2.0, requires_grad=True), tensor(3.0, requires_grad=True)
    backward(p * q, inputs=[q])
    print("inputs only:", p.grad, q.grad)  # -> inputs only: None tensor(2.0)

    class Loud(Function):
        """A copy of x that says when its rule runs."""

        def forward(ctx, x):
            return x.copy()

        def backward(ctx, g):
            print("the rule runs")  # -> the rule runs
            return g

    p = tensor(2.0, requires_grad=True)
    print(grad(Loud.apply(p) * q, q))  # -> (tensor(2.0),)
    print(grad(Loud.apply(p) * q, p))  # -> (tensor(3.0),)
    middle = p * p
    print(grad(middle * q, middle))  # -> (tensor(3.0),)

    shared = p * p
    y, z = shared * 2.0, shared * q
    y.backward()
    print(error(z.backward).partition(":")[0])
    # -> Trying to backward through the graph a second time
    shared = p * p
    p.grad = None
    backward([shared * 2.0, shared * q])
    print("both at once:", p.grad)  # -> both at once: tensor(20.0)
