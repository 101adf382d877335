"""Step tracer39: What the backward recomputes instead of keeping

Step tracer12 keeps all that the backward needs of the forward. In a CNN that is the output of each
convolution, relu of its normalised form, and the parts of the pooling. Most of it follows from the
convolution's output by a few additions. To keep a float32 number means to write it and to read it
again, 8 bytes of traffic; an addition takes a fraction of that time. So the backward recomputes it.

Each value has two prices, in bytes of traffic:

    keep           write it and read it; an input is there already, and only read
    compute again  the computation itself, and the prices of its arguments

    x (input)   read: 4     y = x * 0.1     keep: 8, compute again: 1 + 4     recomputed from x
                            z = erf(y)      keep: 8, compute again: 10 + 5    kept

The lower one counts. COSTS gives an operation's work in additions, for the functions of C's
library from the table of step operations02. Two of them count as a byte, and no operation as less
than one. The nodes are in order, so one walk finds all prices. Then the nodes
are visited in reverse: a value that the backward needs is kept, or computed from arguments that it
then needs too.

A sum, a product, random numbers and whole Functions are never computed twice. A mask of dropout is
kept, one byte per number, rather than computed from its random numbers, four bytes each.

Forward and backward are simplified as one graph before `partition` cuts it, so that what both
compute is one node.

(PyTorch: AOTAutograd's min-cut partitioner. By hand: checkpointing, step checkpoint01.)

New: COSTS, cheaper_again. Changed: partition.
Try: set COSTS["sin"] and COSTS["erf"] to 0. What is kept of erf(x) * sin(x) then?
"""

import math
from collections.abc import Iterable

from tinytorch.compiler.graph import EFFECTS, VIEWS, Graph, Node, without_dead_code
from tinytorch.compiler.operations import LIBRARY
from tinytorch.compiler.simplify import is_elementwise

# What one element of an operation costs, in additions. What is not in the table costs one.
COSTS = {name: function.cost for name, function in LIBRARY.items()} | {
    **dict.fromkeys("divide reciprocal".split(), 4),
    **dict.fromkeys("remainder floor_divide".split(), 20),
    "logaddexp": 40,
}


def cheaper_again(nodes: Iterable[Node], forward: set[Node]) -> dict[Node, bool]:
    """For each node before the border, whether the backward computes it rather than gets it.

    Args:
        forward: those that the forward computes for itself.
    """
    price, again = {}, {}
    for node in nodes:
        count = math.prod(node.shape or ())
        size = count * node.dtype.itemsize if node.dtype is not None else 0
        keep = size if node.op == "input" else 2 * size
        compute = 0 if node.op == "constant" else math.inf
        if node.op in VIEWS:
            compute = price[node.args[0]]
        elif is_elementwise(node.op) or node.op == "astype":
            compute = sum(price[x] for x in {*node.inputs()})
            work = max(COSTS.get(node.op, 1) / 2, 1)  # so many bytes take as long
            compute += work * count * (node in forward)  # else it is done only once
        again[node] = compute <= keep and compute < math.inf
        price[node] = min(keep, compute)
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
    again = cheaper_again((*inputs, *before), in_forward)
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


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import grad
    from tinytorch.compiler.capture import capture
    from tinytorch.compiler.simplify import simplify
    from tinytorch.nn import functional as F
    from tinytorch.ops.creation import arange, ones
    from tinytorch.ops.random import manual_seed, rand

    manual_seed(0)
    x, slope = rand(8, 8, requires_grad=True), ones(8, 8)

    def cut(function):
        """Both directions of a function as one graph, cut in two."""

        def both(x, slope):
            y = function(x)
            (gradient,) = grad(y, x, slope)
            return y.detach(), gradient

        whole = capture(both, (x, slope), {}, [x, slope]).graph
        forward, backward = partition(simplify(whole), 1, 1)
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

    # A chain: eight of its ten sums are kept. Step tracer40 keeps none.
    def chain(x):
        for number in range(10):
            x = x * x * 0.1 + number
        return x

    print(kept(chain).count("add float32[8, 8]"))  # -> 8
    print(kept(lambda x: x * arange(8.0)))  # -> []

    # Slow functions are kept.
    print(kept(lambda x: x.erf() * x.sin()))  # -> ['sin float32[8, 8]', 'erf float32[8, 8]']

    # Of dropout one byte for each number; a whole Function is not called again.
    print(kept(lambda x: F.dropout(x * 2, 0.5)))  # -> ['greater_equal bool[8, 8]']
    print(kept(lambda x: x.detach().cumsum(1) * x))  # -> ['part float32[8, 8]']

    # Of relu the result, and the mask that its gradient needs.
    print(kept(lambda x: (x @ x).relu() @ x.T))
    # -> ['not_equal bool[8, 8]', 'maximum float32[8, 8]']
