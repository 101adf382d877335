"""Step 97z: What to keep, and what to compute again

Step 97k keeps what the backward needs of the forward. The graph of a small CNN keeps 8.6 MB: what
each convolution gave, relu of its normalised form, the parts of the pooling. Most of it follows
from the first by a few additions. To keep means to write to memory and to read again, 8 bytes for
each number; an addition takes a fraction of that time. So let the backward compute it again: 3.4 MB.

Each value has a price. All prices are in bytes of traffic:

    keep           write it and read it; only read, where it is an array anyway
    compute again  what it computes, and the prices of its arguments

and the lower one counts. The nodes are in order, so one walk finds all prices. Then the backward
takes what it needs: values whose price is to be kept, or, through their arguments, computed. What is
there for one is there for others too, so after the first round the prices are lower, and are
computed once more.

A sum, a product, random numbers and whole Functions are never computed twice. A mask of dropout is
kept as a byte rather than computed from its random number, of four.

Both directions are simplified as one graph, before it is cut: what both compute is one node.

(PyTorch: AOTAutograd's min-cut partitioner finds the exact minimum. By hand: checkpointing, step 96.)

New: SLOW, REDUCTIONS, NEVER, size_of, in_memory, cheaper_again, needed. Changed: divided.
Try: SLOW["exp"] = 0: what is kept of the softmax then?
"""

import math
from collections.abc import Sequence

import numpy as np

from tinytorch.autograd.engine import grad
from tinytorch.compiler.capture import capture
from tinytorch.compiler.graph import EFFECTS, VIEWS, Graph, Node, without_dead_code
from tinytorch.compiler.simplify import is_elementwise, simplify
from tinytorch.nn import functional as F
from tinytorch.ops.creation import arange, ones
from tinytorch.ops.random import manual_seed, rand

# What it costs to compute one element again, in bytes; of other operations one byte.
SLOW = {
    **dict.fromkeys("exp log".split(), 4.0),
    **dict.fromkeys("expm1 exp2 log1p log2 log10 tanh".split(), 8.0),
    **dict.fromkeys("erf sin cos tan power sinh cosh arctan2 remainder".split(), 10.0),
}

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
    """One graph, simplified, as two. The forward gives its first `count` outputs, and then what the
    backward needs; from that and `grads` the backward computes the others.

    grads: those inputs of the graph that only the backward gets.
    """
    graph, behind = simplify(graph), set(grads)
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


if __name__ == "__main__":
    manual_seed(0)
    x, slope = rand(8, 8, requires_grad=True), ones(8, 8)

    def cut(function):
        """Both directions of a function as one graph, cut in two."""

        def both(x, slope):
            y = function(x)
            (gradient,) = grad(y, x, slope)
            return y.detach(), gradient

        whole = capture(both, (x, slope), {}, [x, slope]).graph
        forward, backward = divided(whole, 1, whole.inputs[1:])
        manual_seed(1)
        y, *kept = forward.run(np, [x.array])
        (gradient,) = backward.run(np, [*kept, slope.array])
        manual_seed(1)
        result = function(x)
        assert np.allclose(y, result.array, atol=1e-6)
        assert np.allclose(gradient, grad(result, x, slope)[0].array, atol=1e-5)
        return forward, backward

    def kept(function):
        forward, _ = cut(function)
        return [f"{n.op} {n.dtype}{list(n.shape)}" for n in forward.outputs[1:] if n.op != "input"]

    # A chain of products: all follows from x.
    def chain(x):
        for number in range(10):
            x = x * x * 0.1 + number
        return x

    print(kept(chain), len(cut(chain)[1].nodes))  # -> [] 57
    print(kept(lambda x: x * arange(8.0)))  # -> []

    # What takes long is kept, and so is what is an array anyway.
    print(
        kept(lambda x: x.erf().sqrt() * x.sin())
    )  # -> ['sin float32[8, 8]', 'sqrt float32[8, 8]']
    print(kept(lambda x: (x @ x).relu() @ x.T))  # -> ['maximum float32[8, 8]']

    # Of dropout one byte for each number; a whole Function is not called again.
    print(kept(lambda x: F.dropout(x * 2, 0.5)))  # -> ['greater_equal bool[8, 8]']
    print(kept(lambda x: x.detach().cumsum(1) * x))  # -> ['part float32[8, 8]']

    # A softmax: its exponentials, and a sum for each row.
    print(kept(lambda x: (x * 2 - 1).softmax(1)))  # -> ['divide float32[8, 8]']
