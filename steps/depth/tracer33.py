"""Step tracer33: Rewriting a graph: x * 1 is x

A trace records what the formulas do, and formulas are written for all cases. Here most nodes do
nothing:

    %1 = multiply(%0, 1)      %2 = subtract(%1, 0)      %3 = divide(%2, 1)      %4 = exp(%3)

A compiler has passes: functions from a graph to a graph that computes the same (step tracer11 has
the first one). Most passes look at one node at a time. A rule is a function that takes a node, and
returns a replacement or None:

    multiply(x, 1)  ->  x            subtract(x, 0)  ->  x            divide(x, 1)  ->  x

`rewritten` goes through the nodes in order and applies the rule to each. A node's arguments come
before it, so they are rewritten by then, and one walk turns all four nodes into exp(x). Another
case of the rule may apply to the replacement, so `rewritten` repeats until the rule returns None.
The time is proportional to the number of nodes. What is left without users is dead code.

The trap: x + 0 is not x. For x = -0.0 the sum is 0.0, and 1 / 0.0 is not 1 / -0.0. But x + -0.0 is
x, and so is x - 0.0. Floating-point numbers have other rules than real numbers, and a pass must not
change the result.

(PyTorch: the passes of torch.fx and of Inductor.)

New: Rule, simplify, rewritten, dead_code, is_number, neutral.
Try: let neutral take x + 0.0 for x, as it takes x + -0.0. For which x is it wrong?
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.compiler.capture import capture
from tinytorch.compiler.graph import (
    EFFECTS,
    Graph,
    Node,
    without_dead_code,
)
from tinytorch.core.tensor import tensor

Rule = Callable[[Node], Node | None]


def simplify(graph: Graph) -> Graph:
    """The graph after all passes."""
    return dead_code(rewritten(graph, neutral))


def rewritten(graph: Graph, rule: Rule) -> Graph:
    """The graph with rule(node) in place of each node, again and again, until it gives None.

    A rule gets a node whose arguments are rewritten already. It returns a node of the graph or a
    new one, which may have new nodes among its arguments.
    """
    done: dict[Node, Node] = {node: node for node in graph.inputs}
    known, nodes = set(graph.inputs), []

    def add(node: Node) -> None:
        if node not in known:
            for used in node.inputs():
                add(used)
            known.add(node)
            nodes.append(node)

    for node in graph.nodes:
        new = node
        if any(done[used] is not used for used in node.inputs()):
            new = node.replaced(done.__getitem__)
        while (better := rule(new)) is not None:
            new = better
        add(new)
        done[node] = new
    return Graph(graph.inputs, nodes, [done[node] for node in graph.outputs])


def dead_code(graph: Graph) -> Graph:
    """Without the nodes on which no output depends; what has an effect stays."""
    return Graph(graph.inputs, without_dead_code(graph.nodes, graph.outputs), graph.outputs)


def is_number(value: Any, *numbers: Any) -> bool:
    """Whether a value is one of these numbers; a zero with its sign."""
    if isinstance(value, Node) or not isinstance(value, (int, float, np.generic)):
        return False
    return any(value == n and math.copysign(1, value) == math.copysign(1, n) for n in numbers)


def neutral(node: Node) -> Node | None:
    """x * 1, x / 1, x ** 1, x - 0, x + -0."""
    if node.op not in ("multiply", "divide", "add", "subtract", "power"):
        return None
    a, b = node.args
    if node.op in ("multiply", "add") and not isinstance(a, Node):
        a, b = b, a
    neutral_numbers = {"add": (-0.0,), "subtract": (0.0,)}.get(node.op, (1,))
    same = isinstance(a, Node) and (a.shape, a.dtype) == (node.shape, node.dtype)
    return a if same and is_number(b, *neutral_numbers) else None


def partition(graph: Graph, given: int, count: int) -> tuple[Graph, Graph | None]:
    """One graph as two. The forward has the first `given` inputs, and gives the first `count`
    outputs and then what the backward needs. From that and the other inputs, the gradients of
    outputs, the backward computes the other outputs. It is None where there are no gradients.
    Constants are made again instead of being kept.
    """
    outputs, gradients = graph.outputs[:count], graph.outputs[count:]
    inputs, grads = graph.inputs[:given], graph.inputs[given:]
    if not grads:
        return graph, None
    behind = set(grads)  # what is known only when the backward begins
    for node in graph.nodes:
        if node.op == "call_backward" or not behind.isdisjoint(node.inputs()):
            behind.add(node)
    effects = [node for node in graph.nodes if node.op in EFFECTS and node not in behind]
    in_forward = set(without_dead_code(graph.nodes, [*outputs, *effects]))
    nodes = [node for node in graph.nodes if node not in in_forward or node.op == "constant"]
    nodes = without_dead_code(nodes, gradients)
    made = {*nodes, *grads}
    kept = dict.fromkeys(x for node in nodes for x in node.inputs() if x not in made)
    kept |= dict.fromkeys(x for x in gradients if x not in made)
    forward = [node for node in graph.nodes if node in in_forward]
    return Graph(inputs, forward, [*outputs, *kept]), Graph([*kept, *grads], nodes, gradients)


if __name__ == "__main__":
    x = tensor([0.0, -0.0, 1.5, -2.0])

    def shown(function):
        graph = capture(function, (x,), {}, [x]).graph
        simple = simplify(graph)
        before, after = (g.run(np, [x.numpy()])[0] for g in (graph, simple))
        assert np.array_equal(before, after) and np.array_equal(1 / before, 1 / after)
        return [node.op for node in graph.nodes], [node.op for node in simple.nodes]

    np.seterr(divide="ignore")
    print(shown(lambda x: ((x * 1 - 0) / 1).exp()))
    # -> (['multiply', 'subtract', 'divide', 'exp'], ['exp'])
    print(shown(lambda x: 1 * x + -0.0 + x.exp()))
    # -> (['multiply', 'add', 'exp', 'add'], ['exp', 'add'])
    print(shown(lambda x: 2 * x))  # -> (['multiply'], ['multiply'])

    # These stay: x + 0 changes the sign of -0.0, and an array of one element has a type.
    print(shown(lambda x: (x + 0).exp()))  # -> (['add', 'exp'], ['add', 'exp'])
    print(shown(lambda x: x * tensor(1)))
    # -> (['constant', 'astype', 'multiply'], ['constant', 'astype', 'multiply'])

    # A rule that finds another case for itself: exp(exp(x)) is exp(x) here.
    def wrong(node):
        again = node.op == "exp" and node.args[0].op == "exp"
        return node.args[0] if again else None

    graph = capture(lambda x: x.exp().exp().exp(), (x,), {}, [x]).graph
    print([node.op for node in dead_code(rewritten(graph, wrong)).nodes])  # -> ['exp']

    # A replacement of two new nodes: x - y is x + -y.
    def as_sums(node):
        if node.op != "subtract":
            return None
        x, y = node.args
        minus = Node("negative", (y,), {}, y.shape, y.dtype)
        return Node("add", (x, minus), {}, node.shape, node.dtype)

    graph = rewritten(capture(lambda x: x - x.exp(), (x,), {}, [x]).graph, as_sums)
    print([node.op for node in graph.nodes])  # -> ['exp', 'negative', 'add']

    # A node whose number comes first.
    number = Node("input", (), {}, (), np.dtype("float32"))
    product = Node("multiply", (1, number), {}, (), np.dtype("float32"))
    print(simplify(Graph([number], [product], [product])).nodes)  # -> []
