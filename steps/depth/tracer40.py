"""Step tracer40: Two corrections of the prices: arrays that exist, values that are there

The prices of step tracer39 assume that each value is computed for one user, and that a value that
is computed again never becomes an array. Both may be wrong:

    chain of the demo         step tracer39 keeps 8 of its 10 sums: each alone is expensive. But the
                              backward computes one from the other, and then has both
    (x @ x).relu() @ x.T      step tracer39 keeps relu and its gradient's mask. Once the backward
                              has relu, the mask costs one comparison
    a product of x * 2        a product reads arrays, so x * 2 would be computed again and written

So the prices are corrected:

    keep           only read it, if the forward makes it an array anyway
    compute again  and write and read it, if the backward needs it as an array
    either         nothing, if the backward has it already

`in_memory` finds the arrays: a loop computes element-wise operations, casts and views; what other
operations read and write is in memory. A reduction can be part of a loop, so its operand does not
have to be an array.

Which values the backward has is known only after a choice, so prices and choice are made three
times.

(PyTorch: AOTAutograd's partitioner finds the minimum by a maximum-flow algorithm.)

New: in_memory. Changed: cheaper_again, partition.
Try: let the loop run once. What is kept of the chain?
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

    # A chain of products is computed again from x: nothing is kept but the input.
    def chain(x):
        for number in range(10):
            x = x * x * 0.1 + number
        return x

    print(kept(chain), len(cut(chain)[1].nodes))  # -> [] 57
    print(kept(lambda x: x * arange(8.0)))  # -> []

    # Slow functions are kept, and so is what the forward makes an array anyway.
    print(kept(lambda x: x.erf() * x.sin()))  # -> ['sin float32[8, 8]', 'erf float32[8, 8]']
    print(kept(lambda x: (x @ x).relu() @ x.T))  # -> ['maximum float32[8, 8]']

    # Of dropout one byte for each number; a whole Function is not called again.
    print(kept(lambda x: F.dropout(x * 2, 0.5)))  # -> ['greater_equal bool[8, 8]']
    print(kept(lambda x: x.detach().cumsum(1) * x))  # -> ['part float32[8, 8]']

    # Of a softmax the result: it needs a sum, which is never computed twice.
    print(kept(lambda x: (x * 2 - 1).softmax(1)))  # -> ['divide float32[8, 8]']
