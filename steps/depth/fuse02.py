"""Step fuse02: Fusion: which operations may share a loop

To fuse operations is to compute them in one loop: exp(x) * 2 needs one loop over x instead of two,
and no array for exp(x). The expressions of steps expressions01 to expressions07 are what stands in
such a loop. Here a Group collects the operations of a loop; step fuse08 makes a kernel of it, the
function with the loop.

Which operations may share one? Those of one shape, but that is not enough:

    a = exp(x)          a and y have the same shape, but y needs the product p, and p needs all of
    p = a @ a           a. A loop for a and y would need p before a is complete: a cycle.
    y = p + a

Searching for a cycle for each pair of operations takes too long. Levels make it simple. The level
of an operation is that of its highest operand. If those operands are in one group, it joins them;
else it starts a group one level higher:

    x: 0      exp: 1      matmul: 2      add: 3

Here the highest operand of add is p, which is in no group, so add starts one. An edge between two
groups always leads to a higher level, and so no path leads back: there are no cycles. Each node is
visited once, so the time grows with the number of nodes, not with its square.

So far a group grows along a chain. Two chains that meet stay two groups, and what comes after them
is a third.

(PyTorch's scheduler scores pairs of nodes and fuses the best pair, again and again, and searches
for cycles each time.)

New: Group, Fuser, agreed.
Try: add a line "matmul": "{a} * {b}" to ON_ALL of expressions.py. The demo's first line then shows
one group that no loop can compute.
"""

import time

import numpy as np

from tinytorch.compiler.expressions import has_expression
from tinytorch.compiler.graph import Graph, Node


class Group:
    """Nodes that become one kernel.

    Attributes:
        level: how many nodes outside of it stand one after the other on the way to it, at least.
            Groups of one level never depend on each other.
        shape: of its results.
    """

    def __init__(self, level: int, shape: tuple[int, ...]):
        self.level, self.shape = level, shape
        self.nodes: list[Node] = []


class Fuser:
    """Sorts the nodes of one graph into groups.

    Attributes:
        groups: of each node; None for one that stays as it is.
        levels: of each node.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.groups: dict[Node, Group] = {}
        self.levels: dict[Node, int] = {}

    def group(self, node: Node) -> Group | None:
        return self.groups.get(node)

    def operands(self, node: Node) -> list:
        """A node's operands: nodes, and the numbers among them."""
        return [*(node.args[:1] if node.op == "astype" else node.args)]

    def fits(self, node: Node) -> bool:
        """Whether a node can be in a kernel."""
        if node.shape is None or 0 in node.shape:
            return False
        operands = self.operands(node)
        return any(isinstance(x, Node) for x in operands) and has_expression(node, operands)

    def join(self, node: Node, into: list[Group], level: int) -> Group | None:
        """Puts a node into the group in `into`, or where there is none into a new one; None where
        it does not fit."""
        group = agreed(into, node.shape, level)
        if group is not None:
            group.nodes.append(node)
            self.groups[node] = group
        return group

    # Which node goes where.

    def sort(self) -> None:
        """Gives each node that fits a group: that of its operands, or one of its own."""
        for node in self.graph.inputs:
            self.levels[node] = 0
        for node in self.graph.nodes:
            bases = self.bases(node)
            level = max((self.levels[x] for x in bases), default=0)
            if not self.fits(node):
                self.levels[node] = level + 1
            else:
                into = dict.fromkeys(self.group(x) for x in bases if self.levels[x] == level)
                group = None
                if into and None not in into:
                    group = self.join(node, [*into], level)
                group = group or self.join(node, [], level + 1)
                self.levels[node] = group.level

    def bases(self, node: Node) -> list[Node]:
        """The nodes that a node depends on."""
        return [*dict.fromkeys(node.inputs())]


def agreed(into: list[Group], shape: tuple[int, ...], level: int) -> Group | None:
    """The one group of `into`, where its results have the shape of a further result; else None.

    Args:
        shape: of the further result.
        level: of a new group, where there is none yet.
    """
    if len(into) > 1 or any(group.shape != shape for group in into):
        return None
    return into[0] if into else Group(level, shape)


if __name__ == "__main__":
    f = np.dtype("float32")
    nodes = []

    def new(op, *args, shape=None, **kwargs):
        nodes.append(Node(op, args, kwargs, args[0].shape if shape is None else shape, f))
        return nodes[-1]

    def groups(*inputs):
        fuser = Fuser(Graph(inputs, nodes, nodes[-1:]))
        fuser.sort()
        found = dict.fromkeys(fuser.groups.values())
        return [" ".join(node.op for node in group.nodes) for group in found]

    def leaf(*shape):
        nodes.clear()
        return Node("input", (), {}, shape, f)

    x = leaf(8, 8)
    e = new("exp", x)
    new("add", new("matmul", e, e), e)
    print(groups(x))  # -> ['exp', 'add']

    # A chain is one group. Two chains that meet are two, and what comes after is a third.
    x = leaf(8, 8)
    new("multiply", new("tanh", x), 2.0)
    print(groups(x))  # -> ['tanh multiply']
    x, y = leaf(8, 8), leaf(8, 8)
    a, b = new("exp", x), new("multiply", new("tanh", y), 2.0)
    new("negative", new("add", a, b))
    print(groups(x, y))  # -> ['exp', 'tanh multiply', 'add negative']

    # Shapes differ; an operation that C does not know; an empty array.
    x, w = leaf(8, 8), leaf(8)
    new("add", new("exp", x), new("tanh", w))
    new("sort", new("astype", x, f))
    new("exp", Node("input", (), {}, (0, 3), f))
    print(groups(x, w, nodes[-1].args[0]))  # -> ['exp', 'tanh', 'add', 'astype']

    # Ten times as many nodes take ten times as long, not a hundred times.
    seconds = []
    for count in (300, 3000):
        x = last = leaf(4)
        for _ in range(count):
            last = new("add", last, x)
        start = time.process_time()
        groups(x)
        seconds.append(time.process_time() - start)
    print(seconds[1] < 40 * seconds[0])  # -> True
