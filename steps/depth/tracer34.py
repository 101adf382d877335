"""Step tracer34: A table of rules, by operation

Step tracer33 has one rule, which tests the operation of each node itself. A compiler has dozens of
rules, and most concern one or two operations. With a walk for each rule, the time would grow with
their number, and one rule that contains all of them would be hard to read.

So there is a table from an operation to its rules, and a decorator that enters a rule:

    @rule_for("multiply", "divide", "add", "subtract", "power")
    def neutral(node): ...                       RULES["multiply"] = [neutral, ...]

`algebra` is one pass over the graph: for each node it asks the rules of the node's operation, in
order, until one of them answers. `rewritten` asks again about the answer, so a rule may prepare the
graph for another one.

The trap is a pair of rules that undo each other, such as a - b -> a + -b and a + -b -> a - b: the
walk would never end. Each rule should make the graph smaller, or its operations cheaper.

`simplify` is now a list of passes: step tracer35 adds rules, and later steps add passes.

(PyTorch: Inductor's pattern matcher registers its patterns by operation too.)

New: algebra, RULES, rule_for. Changed: simplify, neutral.
Try: enter a rule for x * 0 -> 0. For which x is it wrong?
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
    for one_pass in (algebra, dead_code):
        graph = one_pass(graph)
    return graph


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


def algebra(graph: Graph) -> Graph:
    """Applies the rules of RULES."""

    def rule(node: Node) -> Node | None:
        for of_op in RULES.get(node.op, ()):
            if (better := of_op(node)) is not None and better is not node:
                return better
        return None

    return rewritten(graph, rule)


RULES: dict[str, list[Rule]] = {}


def rule_for(*ops: str) -> Callable[[Rule], Rule]:
    """Enters a rule for these operations into the table."""

    def enter(rule: Rule) -> Rule:
        for op in ops:
            RULES.setdefault(op, []).append(rule)
        return rule

    return enter


def is_number(value: Any, *numbers: Any) -> bool:
    """Whether a value is one of these numbers; a zero with its sign."""
    if isinstance(value, Node) or not isinstance(value, (int, float, np.generic)):
        return False
    return any(value == n and math.copysign(1, value) == math.copysign(1, n) for n in numbers)


@rule_for("multiply", "divide", "add", "subtract", "power")
def neutral(node: Node) -> Node | None:
    """x * 1, x / 1, x ** 1, x - 0, x + -0."""
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

    print({op: [rule.__name__ for rule in rules] for op, rules in RULES.items()})
    # -> {'multiply': ['neutral'], 'divide': ['neutral'], 'add': ['neutral'], ...

    # One more rule, which finds another case for itself: exp(exp(x)) is exp(x) here.
    @rule_for("exp")
    def wrong(node):
        return node.args[0] if node.args[0].op == "exp" else None

    graph = simplify(capture(lambda x: x.exp().exp().exp() * 1, (x,), {}, [x]).graph)
    print([node.op for node in graph.nodes])  # -> ['exp']
