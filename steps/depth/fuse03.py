"""Step fuse03: Groups that merge

    a = exp(x)              group 1, level 1
    b = tanh(y) * 2         group 2, level 1
    c = -(a + b)            group 3, level 2: it reads the arrays a and b

One loop can compute all of this: it reads x[i] and y[i], and writes c[i]. So where an operation
uses values of several groups, they become one.

May they? Two groups of one level never depend on each other, directly or indirectly, since every
edge between groups leads to a higher level (step fuse02). `sort` gives `join` only groups of one
level, so each such merge is safe, without a search for cycles.

To merge means to move the nodes of the smaller groups into the largest one. If each node were then
told its new group, a chain of n merges could take n * n steps. Instead, a group that was absorbed
remembers where it went:

    node ---> group 2 --inside--> group 1        now() follows `inside` to the group that is left

The trap is to forget now(): a group that is inside another one still has its old nodes.

(The data structure is known as union-find, or disjoint sets.)

New: Group.now. Changed: Group, Fuser.group, agreed.
Try: let agreed merge into the smallest group instead of the largest. Does the demo notice?
"""

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
        self.inside: Group | None = None  # the group that has swallowed it

    def now(self) -> "Group":
        group = self
        while group.inside is not None:
            group = group.inside
        return group


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
        found = self.groups.get(node)
        return None if found is None else found.now()

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
        """Puts a node into one group made of the groups `into`, or where there are none into a new
        one; None where they do not fit."""
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
    """One group of several, where all results have one shape; else None.

    Args:
        shape: of a further result.
        level: of a new group, where there is none yet.
    """
    if any(group.shape != shape for group in into):
        return None
    first = max(into, key=lambda group: len(group.nodes)) if into else Group(level, shape)
    for group in into:
        if group is not first:
            first.nodes += group.nodes
            group.inside = first
    return first


if __name__ == "__main__":
    f = np.dtype("float32")
    nodes = []

    def new(op, *args, shape=None, **kwargs):
        nodes.append(Node(op, args, kwargs, args[0].shape if shape is None else shape, f))
        return nodes[-1]

    def groups(*inputs):
        fuser = Fuser(Graph(inputs, nodes, nodes[-1:]))
        fuser.sort()
        found = dict.fromkeys(group.now() for group in fuser.groups.values())
        return [" ".join(node.op for node in group.nodes) for group in found]

    def leaf(*shape):
        nodes.clear()
        return Node("input", (), {}, shape, f)

    # Two chains that meet become one group; so does what comes after.
    x, y = leaf(8, 8), leaf(8, 8)
    a, b = new("exp", x), new("multiply", new("tanh", y), 2.0)
    new("negative", new("add", a, b))
    print(groups(x, y))  # -> ['tanh multiply exp add negative']

    # Three chains, which meet in two steps.
    x, y = leaf(8, 8), leaf(8, 8)
    first = new("add", new("exp", x), new("tanh", y))
    new("add", new("log", x), first)
    print(groups(x, y))  # -> ['exp tanh add log add']

    # A product between them: the chains stay apart.
    x = leaf(8, 8)
    e = new("exp", x)
    new("add", new("matmul", e, e), e)
    print(groups(x))  # -> ['exp', 'add']
