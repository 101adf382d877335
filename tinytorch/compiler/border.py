"""The border between forward and backward: what is kept, and what is computed a second time.

To keep a value means to write it in the forward and to read it in the backward, which for a large
array takes longer than a few additions. So each value has a price, in bytes that are moved for each
of its elements, both ways; what an operation computes counts as so many bytes. The backward pays
the lower price.
"""

import math
from collections.abc import Iterable

from tinytorch.compiler.costs import COSTS
from tinytorch.compiler.graph import EFFECTS, REDUCTIONS, VIEWS, Graph, Node, without_dead_code
from tinytorch.compiler.simplify import is_elementwise, memory_of


def in_memory(nodes: Iterable[Node]) -> set[Node]:
    """The nodes whose results become arrays anyway: those outside of loops, and their operands."""
    found: set[Node] = set()
    for node in nodes:
        in_loop = is_elementwise(node.op) or node.op in VIEWS or node.op == "astype"
        if not in_loop or node.op == "view_at":  # a loop does not compute a part of something
            operands = () if node.op in REDUCTIONS else node.inputs()
            found.update(memory_of(x) for x in (node, *operands))
    return found


def cheaper_again(
    nodes: Iterable[Node], forward: set[Node], stored: set[Node], at_hand: set[Node]
) -> dict[Node, bool]:
    """For each node before the border, whether the backward computes it rather than gets it.

    Args:
        forward: those that the forward computes for itself.
        stored: what has to become an array in the backward.
        at_hand: what the backward has already, so that others can use it for nothing.
    """
    written, price, again = in_memory(forward), {}, {}
    for node in nodes:
        count = math.prod(node.shape or ())
        size = count * node.dtype.itemsize if node.dtype is not None else 0
        keep = size if node in written or node.op == "input" else 2 * size
        compute = 0 if node.op == "constant" else math.inf
        if node.op in VIEWS:
            compute = price[node.args[0]]
        elif is_elementwise(node.op) or node.op == "astype":
            compute = sum(price[x] for x in {*node.inputs()}) + 2 * size * (node in stored)
            work = max(COSTS.get(node.op, 1) / 2, 1)  # so many bytes take as long
            compute += work * count * (node in forward)  # else it is done only once
        again[node] = compute <= keep and compute < math.inf
        price[node] = 0 if node in at_hand else min(keep, compute)
    return again


def partition(graph: Graph, given: int, count: int) -> tuple[Graph, Graph | None]:
    """One graph as two. The forward has the first `given` inputs, and gives the first `count`
    outputs and then what the backward needs. From that and the other inputs, the gradients of
    outputs, the backward computes the other outputs. It is None where there are no gradients.
    """
    inputs, grads = graph.inputs[:given], graph.inputs[given:]
    if not grads:
        return graph, None
    behind = set(grads)  # what is known only when the backward begins
    for node in graph.nodes:
        if node.op == "call_backward" or not behind.isdisjoint(node.inputs()):
            behind.add(node)
    outputs, gradients = graph.outputs[:count], graph.outputs[count:]
    before = [node for node in graph.nodes if node not in behind]
    effects = [node for node in before if node.op in EFFECTS]
    in_forward = set(without_dead_code(before, [*outputs, *effects]))
    nodes = without_dead_code([node for node in graph.nodes if node in behind], gradients)
    stored, kept, computed = in_memory(nodes), [], []
    for _ in range(3):  # what is there for one node makes others cheaper
        again = cheaper_again((*inputs, *before), in_forward, stored, {*kept, *computed})
        wanted, kept, computed = {*gradients, *(x for n in nodes for x in n.inputs())}, [], []
        for node in reversed((*inputs, *before)):
            if node in wanted:
                (computed if again[node] else kept).append(node)
                wanted.update(node.inputs() if again[node] else ())
    forward = without_dead_code(before, [*outputs, *effects, *kept])
    # What comes from the forward is an input here, whatever operation computed it there.
    new = {x: Node("input", (), {}, x.shape, x.dtype, x.made_by, x.line) for x in kept}
    new |= {x: x for x in grads}
    nodes = [*computed[::-1], *nodes]
    for node in nodes:
        new[node] = node.replaced(new.__getitem__)
    backward = [[new[x] for x in part] for part in ((*kept, *grads), nodes, gradients)]
    return Graph(inputs, forward, [*outputs, *kept]), Graph(*backward)
