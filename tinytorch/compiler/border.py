"""The border between forward and backward: what is kept, and what is computed a second time.

To keep a value means to write it in the forward and to read it in the backward, which for a large
array takes longer than a few additions. So each value has a price, in bytes that are moved for each
of its elements, both ways; what an operation computes counts as so many bytes. The backward pays
the lower price.
"""

import math
from collections.abc import Sequence

from tinytorch.compiler.graph import EFFECTS, VIEWS, Graph, Node, without_dead_code
from tinytorch.compiler.simplify import is_elementwise

# What it costs to compute one element again, in bytes; of other operations one byte.
SLOW = {"exp": 4.0, "log": 4.0} | dict.fromkeys("expm1 exp2 log1p log2 log10 tanh".split(), 8.0)
SLOW |= dict.fromkeys("erf sin cos tan power sinh cosh arctan2 remainder".split(), 10.0)
REDUCTIONS = frozenset("sum prod mean max min any all".split())
NEVER = math.inf


def size_of(node: Node) -> float:
    """The bytes of a node's result."""
    return math.prod(node.shape) * node.dtype.itemsize if node.dtype is not None else 0


def in_memory(nodes: Sequence[Node], before: Sequence[Node] = ()) -> set[Node]:
    """The nodes whose results become arrays anyway: what is no step of a loop, and its operands,
    also where they are views of what is among the nodes `before`."""
    found: set[Node] = set()
    for node in reversed([*(node for node in before if node.op in VIEWS), *nodes]):
        if node.op in VIEWS:
            if node in found or node.op == "view_at":  # a part of it: a loop does not compute that
                found.add(node.args[0])
        elif not is_elementwise(node.op) and node.op != "astype":
            found.add(node)
            if node.op not in REDUCTIONS:
                found.update(node.inputs())
    return found


def cheaper_again(
    graph: Graph, forward: Graph, stored: set[Node], at_hand: set[Node]
) -> dict[Node, bool]:
    """For each node of the forward, whether the backward computes it rather than gets it.

    Args:
        graph: all of the forward's nodes, also those that only the backward needs.
        stored: what has to become an array in the backward.
        at_hand: what the backward has already, so that others can use it for nothing.
    """
    written, inside = {*graph.inputs, *in_memory(forward.nodes)}, set(forward.nodes)
    price: dict[Node, float] = {}
    again: dict[Node, bool] = {}
    for node in (*graph.inputs, *graph.nodes):
        size = size_of(node)
        keep = size if node in written else 2 * size
        compute = NEVER
        if node.op == "constant":
            compute = 0
        elif node.op in VIEWS:
            compute = price[node.args[0]]
        elif is_elementwise(node.op) or node.op == "astype":
            compute = sum(price[x] for x in dict.fromkeys(node.inputs()))
            compute += 2 * size if node in stored else 0
            if node in inside:  # else it is computed once, here or there
                compute += SLOW.get(node.op, 1.0) * math.prod(node.shape)
        again[node] = compute <= keep and compute < NEVER
        price[node] = 0 if node in at_hand else min(keep, compute)
    return again


def needed(nodes: Sequence[Node], again: dict[Node, bool], outputs: Sequence[Node]) -> tuple:
    """What the nodes of the backward take from the forward: (values that are kept, nodes that are
    computed again)."""
    inside = set(nodes)
    open_nodes = [x for node in nodes for x in node.inputs() if x not in inside]
    open_nodes += [x for x in outputs if x not in inside]
    kept, computed = {}, set()
    for node in open_nodes:  # it grows
        if node in kept or node in computed or node in inside:
            continue
        if again[node]:
            computed.add(node)
            open_nodes.extend(node.inputs())
        else:
            kept[node] = None
    return kept, computed


def divided(graph: Graph, count: int, grads: Sequence[Node]) -> tuple[Graph, Graph]:
    """One graph as two: its first `count` outputs are those of the forward, followed by what the
    backward needs, and the others are computed by the backward, from that and `grads`.

    grads: those inputs of the graph that only the backward gets.
    """
    behind = set(grads)
    for node in graph.nodes:
        if node.op == "call_backward" or not behind.isdisjoint(node.inputs()):
            behind.add(node)
    outputs, gradients = graph.outputs[:count], graph.outputs[count:]
    inputs = [node for node in graph.inputs if node not in behind]
    before = [node for node in graph.nodes if node not in behind]
    nodes = without_dead_code([n for n in graph.nodes if n in behind], gradients)
    both = Graph(inputs, before, outputs)
    with_effects = [*outputs, *(node for node in before if node.op in EFFECTS)]
    forward = Graph(inputs, without_dead_code(before, with_effects), outputs)
    stored, at_hand = in_memory(nodes, before), set()
    for _ in range(3):  # what is there for one node makes others cheaper
        again = cheaper_again(both, forward, stored, at_hand)
        kept, computed = needed([*nodes, *grads], again, gradients)
        at_hand = {*kept, *computed}
    forward.outputs = [*outputs, *kept]
    forward.nodes = without_dead_code(before, [*with_effects, *kept])
    # What comes from the forward is an input, whatever has made it there.
    new = {x: Node("input", (), {}, x.shape, x.dtype, x.made_by, x.line) for x in kept}
    new |= {x: x for x in grads}
    nodes = [*(node for node in before if node in computed), *nodes]
    for node in nodes:
        new[node] = node.replaced(new.__getitem__)
    made = [new[x] for x in nodes]
    return forward, Graph([new[x] for x in (*kept, *grads)], made, [new[x] for x in gradients])
