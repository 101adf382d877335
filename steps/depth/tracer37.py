"""Step tracer37: Common subexpressions

Derivatives by formulas have a bad name: d/dx of a short expression fills a page. Trace a function
that calls grad(), and the graph has the same problem: for x x exp(-x x) it has 16 nodes.

The chain rule needs the same values again and again. In a graph that is easy to see: two nodes are
the same if they have the same operation on the same nodes.

    %1 = multiply(%0, %0)                 %1 = multiply(%0, %0)
    %2 = multiply(%0, %0)
    %3 = exp(%2)                          %3 = exp(%1)

So look each node up in a dictionary, under (operation, arguments). The first such node stays, and
replaces the later ones. As the nodes are in order, equal arguments have become the same node by
then. Together with the rules of step tracer35, this leaves 11 of the 16.

`key_of` makes the key. For constants it is their bytes; a + b has the same key as b + a.

The traps: two random numbers are never the same number, so nodes with an effect stay. 1 and 1.0 and
True are equal in Python, and 0.0 and -0.0 too, but not as arguments; so the key is a text. And two
equal results are one node now: step tracer36 gives the second one a copy.

(PyTorch: "common subexpression elimination", CSE.)

New: key_of, common_parts. Changed: simplify.
Try: the demo enters log(exp(x)) -> x, which is right for real numbers. For which floats is it not?
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinytorch.autograd.backward import grad
from tinytorch.autograd.modes import no_grad
from tinytorch.compiler.capture import capture
from tinytorch.compiler.graph import (
    EFFECTS,
    VIEWS,
    Graph,
    Node,
    without_dead_code,
)
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import ones_like
from tinytorch.ops.random import rand

Rule = Callable[[Node], Node | None]


def simplify(graph: Graph) -> Graph:
    """The graph after all passes. One round is enough for most graphs, a few for all."""
    outputs, graph, before = graph.outputs, dead_code(graph), None
    while before is None or len(graph.nodes) < before:
        before = len(graph.nodes)
        for one_pass in (numbers, algebra, common_parts, dead_code):
            graph = one_pass(graph)
    return with_memory_of_their_own(graph, outputs)


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


def made(like: Node, op: str, *args: Any, shape: Any = None, dtype: Any = None) -> Node:
    """A new node for the same line of the program; its shape and type are those of `like`, or
    given."""
    shape = like.shape if shape is None else tuple(shape)
    return Node(op, args, {}, shape, dtype or like.dtype, like.made_by, like.line)


def memory_of(node: Node) -> Node:
    """The node whose memory a view shows; of others, the node itself."""
    while node.op in VIEWS:
        node = node.args[0]
    return node


def with_memory_of_their_own(graph: Graph, before: Sequence[Node]) -> Graph:
    """Copies outputs that share memory with an input, a constant or another output, where they did
    not `before`: a program may write into its results."""
    nodes, outputs, seen = list(graph.nodes), [], {}
    for node, old in zip(graph.outputs, before, strict=True):
        memory, its = memory_of(node), memory_of(old)
        owner = its if memory.op in ("input", "constant") else seen.setdefault(memory, its)
        if owner is not its or (memory.op in ("input", "constant") and its.op != memory.op):
            node = made(node, "copy", node)
            nodes.append(node)
        outputs.append(node)
    return Graph(graph.inputs, nodes, outputs)


def dead_code(graph: Graph) -> Graph:
    """Without the nodes on which no output depends; what has an effect stays."""
    return Graph(graph.inputs, without_dead_code(graph.nodes, graph.outputs), graph.outputs)


def key_of(node: Node) -> Any:
    """A key that is equal for nodes that compute the same. repr() tells 1, 1.0 and True apart, and
    0.0 from -0.0."""
    if node.op == "constant":
        (array,) = node.args
        return node.dtype, node.shape, array.tobytes() if array.nbytes <= 1 << 16 else id(array)
    args = sorted(node.args, key=repr) if node.op in ("add", "multiply") else node.args
    return repr((node.op, args, node.kwargs, node.dtype))


def common_parts(graph: Graph) -> Graph:
    """Merges nodes that have the same operation on the same arguments."""
    seen: dict[Any, Node] = {}

    def rule(node: Node) -> Node | None:
        if node.op in EFFECTS:
            return None
        first = seen.setdefault(key_of(node), node)
        return None if first is node else first

    return rewritten(graph, rule)


@functools.cache
def is_elementwise(op: str) -> bool:
    """Whether each element of the result depends on one element of each argument."""
    function = getattr(np, op, None)
    of_library = isinstance(function, np.ufunc) and function.signature is None
    return op in ("where", "erf") or (of_library and function.nout == 1)


def shape_of(values: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*(x.shape for x in values if isinstance(x, Node)))


def numbers(graph: Graph) -> Graph:
    """A number in place of an array of equal numbers, and the array itself in place of one that is
    broadcast, as operands of operations that broadcast them."""

    @functools.cache
    def number(node: Node) -> Any:
        if node.op == "broadcast_to":
            return number(node.args[0])
        if node.op != "constant" or not node.args[0].size or node.dtype.kind not in "fiu":
            return None
        first = node.args[0].reshape(-1)[:1]
        return first.item() if bool((node.args[0] == first).all()) else None

    def rule(node: Node) -> Node | None:
        if not is_elementwise(node.op) or node.kwargs.keys() - {"dtype"}:
            return None
        args = list(node.args)
        first = 1 if node.op == "where" else 0
        for i, x in enumerate(args):
            if not isinstance(x, Node):
                continue
            value = number(x) if i >= first else None
            rest = [y for j, y in enumerate(args) if isinstance(y, Node) and j != i]
            fitting = [y for y in rest[first:] if y.dtype == x.dtype]
            if value is not None and fitting and shape_of(rest) == node.shape:
                args[i] = value
            elif x.op == "broadcast_to" and shape_of([*rest, x.args[0]]) == node.shape:
                args[i] = x.args[0]
        if all(x is y for x, y in zip(args, node.args, strict=True)):
            return repeated_later(node)
        return Node(
            node.op, tuple(args), node.kwargs, node.shape, node.dtype, node.made_by, node.line
        )

    return rewritten(graph, rule)


def repeated_later(node: Node) -> Node | None:
    """f(x), broadcast, in place of f of what is broadcast: fewer elements to compute."""
    used = node.inputs()
    if any(x.op != "broadcast_to" for x in used):
        return None
    args = tuple(x.args[0] if isinstance(x, Node) else x for x in node.args)
    shape = shape_of(args)
    inner = Node(node.op, args, node.kwargs, shape, node.dtype, node.made_by, node.line)
    return made(node, "broadcast_to", inner, node.shape)


def algebra(graph: Graph) -> Graph:
    """Applies the rules of RULES."""

    def rule(node: Node) -> Node | None:
        if node.kwargs and is_elementwise(node.op):
            return None
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


def same_kind(x: Any, node: Node) -> bool:
    """Whether x can stand for the node: an array of its shape and type."""
    return isinstance(x, Node) and (x.shape, x.dtype) == (node.shape, node.dtype)


@rule_for("multiply", "divide", "add", "subtract", "power")
def neutral(node: Node) -> Node | None:
    """x * 1, x / 1, x ** 1, x - 0, x + -0; and x + 0 where x is no -0, which would become 0."""
    a, b = node.args
    if node.op in ("multiply", "add") and not isinstance(a, Node):
        a, b = b, a
    neutral_numbers = {"add": (-0.0,), "subtract": (0.0,)}.get(node.op, (1,))
    if same_kind(a, node):
        if is_number(b, *neutral_numbers):
            return a
        if node.op == "add" and is_number(b, 0) and (node.dtype.kind in "iu" or no_minus_zero(a)):
            return a
    return None


def no_minus_zero(node: Node) -> bool:
    """Whether no element can be -0.0."""
    if node.op in ("exp", "absolute", "square"):
        return True
    return node.op == "multiply" and node.args[0] is node.args[1]


@rule_for("negative")
def twice_negative(node: Node) -> Node | None:
    """-(-x) is x. -(a - b) stays, since b - a differs from it in the sign of a zero."""
    (x,) = node.args
    return x.args[0] if x.op == "negative" else None


@rule_for("add", "subtract", "multiply", "divide")
def signs(node: Node) -> Node | None:
    """a + -b is a - b, a - -b is a + b, -a * -b is a * b, -a / -b is a / b."""
    a, b = (x.args[0] if is_op(x, "negative") else None for x in node.args)
    if node.op in ("multiply", "divide"):
        return None if a is None or b is None else made(node, node.op, a, b)
    if b is not None:
        return made(node, "subtract" if node.op == "add" else "add", node.args[0], b)
    if a is not None and node.op == "add" and isinstance(node.args[1], Node):
        return made(node, "subtract", node.args[1], a)
    return None


def is_op(value: Any, *ops: str) -> bool:
    return isinstance(value, Node) and value.op in ops


@rule_for("divide")
def power_of_two(node: Node) -> Node | None:
    """x / c is x * (1 / c) where 1 / c is exact; a product takes a fraction of the time."""
    x, c = node.args
    if isinstance(x, Node) and x.dtype == node.dtype and isinstance(c, (int, float)) and c:
        fraction, exponent = math.frexp(c)
        if abs(fraction) == 0.5 and abs(exponent) < (14 if x.dtype.itemsize == 2 else 100):
            return made(node, "multiply", x, 1 / c)
    return None


@rule_for("astype")
def type_again(node: Node) -> Node | None:
    """A cast to the type that x has, or to a type that loses nothing and back."""
    x = node.args[0]
    exact = node.dtype.kind in ("b", x.dtype.kind) and np.can_cast(node.dtype, x.dtype)
    if x.op == "astype" and x.args[0].dtype == node.dtype and exact:
        x = x.args[0]
    return x if same_kind(x, node) else None


@rule_for("copy")
def copied(node: Node) -> Node | None:
    """Nothing in a graph is overwritten, so the original can stand for its copy."""
    return node.args[0]


@rule_for("sum")
def sum_of_equals(node: Node) -> Node | None:
    """A sum of n equal numbers is a product."""
    x, axes = node.args[0], node.kwargs["axis"]
    if x.op != "broadcast_to" or x.dtype != node.dtype:
        return None
    inner, count = x.args[0], math.prod(x.shape[axis] for axis in axes)
    shape = (1,) * (len(x.shape) - len(inner.shape)) + inner.shape
    if count == 0 or any(shape[axis] != 1 for axis in axes):
        return None
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    inner = made(node, "reshape", inner, shape, shape=shape)
    inner = made(node, "multiply", inner, count, shape=shape)
    inner = made(node, "broadcast_to", inner, kept, shape=kept)
    return made(node, "reshape", inner, node.shape)


@rule_for("reshape", "broadcast_to", "transpose", "view_at")
def nothing_changed(node: Node) -> Node | None:
    """A view that shows the whole array as it is."""
    x, how = node.args
    if x.shape != node.shape:
        return None
    if node.op == "view_at":  # steps are positive: the same elements in the same order
        return x if steps_forward(how) else None
    return x if node.op != "transpose" or how == tuple(range(len(how))) else None


def steps_forward(key: Any) -> bool:
    """Whether a basic key has no slice that goes backwards."""
    parts = key if isinstance(key, tuple) else (key,)
    return not any(isinstance(p, slice) and (p.step or 1) < 0 for p in parts)


@rule_for("transpose", "view_at", "broadcast_to")
def as_reshape(node: Node) -> Node | None:
    """Views that only add or take away sizes of 1."""
    x, how = node.args
    if math.prod(x.shape) != math.prod(node.shape) or not math.prod(x.shape):
        return None
    if node.op == "transpose":
        moved = [axis for axis in how if x.shape[axis] != 1]
        if moved != sorted(moved):
            return None
    if node.op == "view_at" and not steps_forward(how):
        return None
    return made(node, "reshape", x, node.shape)


@rule_for("reshape", "broadcast_to", "transpose")
def view_of_view(node: Node) -> Node | None:
    """A reshape of a reshape, a transpose of a transpose, a broadcast of a broadcast are one."""
    x, how = node.args
    if x.op != node.op:
        return None
    if node.op == "transpose":
        how = tuple(x.args[1][axis] for axis in how)
    return made(node, node.op, x.args[0], how)


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
    x = tensor([0.3, -1.2, 2.0], requires_grad=True)

    def derivative(function):
        """The graph of d/dx of the sum of function(x)."""

        def slope(x):
            y = function(x)
            return grad(y, x, ones_like(y))[0]

        return capture(slope, (x,), {}, [x]).graph

    def compared(function):
        graph = derivative(function)
        simple = simplify(graph)
        old, new = (g.run(np, [x.detach().numpy()])[0] for g in (graph, simple))
        assert np.array_equal(old, new)
        return f"{len(graph.nodes)} nodes, simplified {len(simple.nodes)}"

    print(compared(lambda x: x * x * (-x * x).exp()))  # -> 16 nodes, simplified 11
    print(compared(lambda x: (x.sin() ** 2 + x.cos() ** 2) / 1))  # -> 16 nodes, simplified 8
    print(compared(lambda x: (1 + x.exp()).log()))  # -> 5 nodes, simplified 4
    text = str(simplify(derivative(lambda x: x * x * x)))  # x x + x x + x x, which is 3 x^2
    print([line.partition("  ")[0] for line in text.splitlines()[1:]])
    # -> ['%1 = multiply(%0, %0)', '%2 = add(%1, %1)', '%3 = add(%2, %1)', 'return %3']

    def ops(function, *tensors):
        """The operations before and after."""
        graph = capture(function, tensors or (x,), {}, tensors or [x]).graph
        before, after = ([n.op for n in g.nodes] for g in (graph, simplify(graph)))
        return f"{' '.join(before)} -> {' '.join(after)}"

    # A rule that is right for real numbers only.
    @rule_for("log")
    def log_of_exp(node):
        return node.args[0].args[0] if is_op(node.args[0], "exp") else None

    print(ops(lambda x: x.detach().exp().log() * 2))  # -> view_at exp log multiply -> multiply
    RULES.pop("log")

    # Random numbers, equal results, and numbers that are equal and not the same.
    with no_grad():
        print(ops(lambda x: rand(3) - rand(3)))
        # -> random random subtract -> random random subtract
        print(ops(lambda x: (x.sin(), x.sin())))  # -> sin sin -> sin copy
        print(ops(lambda x: x * 0.0 + x * -0.0))
        # -> multiply multiply add -> multiply multiply add
        print(ops(lambda x: (x - tensor([1.0, 2.0, 3.0])) * (tensor([1.0, 2.0, 3.0]) + x)))
        # -> constant subtract constant add multiply -> constant subtract add multiply
