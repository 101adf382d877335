"""Step fuse05: One loop for values of different shapes

Step fuse04 compares shapes, so a reshape between two operations ends a group, although both go over
the same elements in the same order. So does a transpose, although a loop can write its results in
any order.

Now each value of a group has a place: for each dimension, the list of axes (step fuse01) that it
consists of. A node that joins a group unifies its own axes with those of its operands:

    h = tanh(x)                  axes a (6), b (20)
    r = reshape(h, (2, 3, 20))   an axis for each dimension: 2, 3, 20. Unified with a, b: the axis a
                                 is split into 2 x 3
    t = transpose(r, (1, 0, 2))  the same axes in another order

`axes_of` sorts the dimensions of a view by stride, from the slowest to the fastest, and checks that
the view shows every element of the value exactly once. A slice does not; it starts a new group.
`agreed` then checks that the node loops over all axes of the group, each of them once.

The trap: e + e.T. The axes of e are a, b, those of e.T are b, a. Unifying them makes a and b the
same axis, and the list of axes contains it twice. `agreed` refuses that, and `join` undoes it.

New: Fuser.axes_of, .sequence, .place. Changed: Group, Fuser, Fuser.join, agreed.
Try: in the demo's groups(), print the sizes of each node's axes in fuser.places.
"""

import math
from typing import Any

import numpy as np

from tinytorch.compiler.axes import Axis, leaves, undo, unify
from tinytorch.compiler.expressions import has_expression
from tinytorch.compiler.graph import VIEWS, Graph, Node
from tinytorch.compiler.layout import Layouts


class Group:
    """Nodes that become one kernel.

    Attributes:
        level: how many nodes outside of it stand one after the other on the way to it, at least.
            Groups of one level never depend on each other.
        full: the axes of its loops.
    """

    def __init__(self, level: int):
        self.level = level
        self.full: list[Axis] = []
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
        layouts: of each node, where its elements are.
        known: the operands of each node.
        places: for each node of a group, the axes of each dimension of what it loops over.
        groups: of each node; None for one that stays as it is.
        levels: of each node.
    """

    def __init__(self, graph: Graph):
        self.graph, self.inputs = graph, set(graph.inputs)
        self.layouts = Layouts()
        self.known: dict[Node, list] = {}
        self.places: dict[Node, list[list[Axis]]] = {}
        self.groups: dict[Node, Group] = {}
        self.levels: dict[Node, int] = {}

    def group(self, node: Node) -> Group | None:
        found = self.groups.get(node)
        return None if found is None else found.now()

    def operands(self, node: Node) -> list:
        """A node's operands: nodes, and the numbers among them."""
        if node not in self.known:
            args = node.args[:1] if node.op == "astype" else node.args
            self.known[node] = [self.number(x) if isinstance(x, Node) else x for x in args]
        return self.known[node]

    def number(self, node: Node) -> Any:
        """The number that a constant of one element is, or the node."""
        base = self.layouts[node].base if node.shape is not None else node
        if base.op == "constant" and base.args[0].size == 1 and base not in self.inputs:
            value = base.args[0]
            return value.reshape(-1)[0] if isinstance(value, np.ndarray) else node
        return node

    def fits(self, node: Node) -> bool:
        """Whether a node can be in a kernel."""
        if node.shape is None or 0 in node.shape:
            return False
        operands = self.operands(node)
        return any(isinstance(x, Node) for x in operands) and has_expression(node, operands)

    # How a node's dimensions lie on the axes of its operands' groups.

    def axes_of(self, value: Node, trail: list[Axis]) -> list[Axis | None] | None:
        """An axis for each dimension of an operand, None for one of size 1 or repeated; None in all
        where the operand does not show each element of its group's value once."""
        base, _, strides = self.layouts[value]
        dims = [Axis(n) if s else None for n, s in zip(value.shape, strides, strict=True)]
        order = sorted((s, d) for d, s in enumerate(strides) if s)[::-1]
        expected = math.prod(base.shape)
        for stride, d in order:
            if stride * value.shape[d] != expected:
                return None
            expected = stride
        if expected != 1 or not unify([dims[d] for _, d in order], self.sequence(base), trail):
            return None
        return dims

    def sequence(self, node: Node) -> list[Axis]:
        """The axes of a result, from the slowest to the fastest."""
        return [x for axes in self.places[node] for x in axes]

    def place(self, node: Node, into: list[Group], trail: list[Axis]) -> bool:
        """Finds the axes of a node's dimensions from its operands that are in the groups `into`."""
        operands = [x for x in self.operands(node) if isinstance(x, Node)]
        shape = node.shape
        place: list[list[Axis]] = [[] for _ in shape]
        for x in operands:
            if self.group(self.layouts[x].base) not in into:
                continue
            dims = self.axes_of(x, trail)
            if dims is None:
                return False
            for d, axis in enumerate(dims, len(shape) - len(dims)):
                if axis is not None and not place[d]:
                    place[d] = [axis]
                elif axis is not None and not unify(place[d], [axis], trail):
                    return False
        free = [d for d, axes in enumerate(place) if not axes and shape[d] > 1]
        for d in free:
            place[d] = [Axis(shape[d])]
        self.places[node] = [leaves(axes) for axes in place]
        return not into or not free

    def join(self, node: Node, into: list[Group], level: int) -> Group | None:
        """Puts a node into one group made of the groups `into`, or where there are none into a new
        one; None where they do not fit."""
        trail: list[Axis] = []
        group = None
        if self.place(node, into, trail):
            group = agreed(into, self.sequence(node), level)
        if group is None:
            undo(trail)
            return None
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
            if self.is_view(node):
                self.levels[node] = level
            elif not self.fits(node):
                self.levels[node] = level + 1
            else:
                into = dict.fromkeys(self.group(x) for x in bases if self.levels[x] == level)
                group = None
                if into and None not in into:
                    group = self.join(node, [*into], level)
                group = group or self.join(node, [], level + 1)
                self.levels[node] = group.level

    def is_view(self, node: Node) -> bool:
        return node.op in VIEWS and self.layouts[node].base is not node

    def bases(self, node: Node) -> list[Node]:
        """The nodes that a node depends on, without the views between."""
        used = dict.fromkeys(node.inputs())
        return [*dict.fromkeys(x if x.shape is None else self.layouts[x].base for x in used)]


def agreed(into: list[Group], looped: list[Axis], level: int) -> Group | None:
    """One group of several, where all values loop over the same axes; else None.

    Args:
        looped: the axes of a further value.
        level: of a new group, where there is none yet.
    """
    full = leaves(looped)
    for axes in (leaves(group.full) for group in into):
        if len(set(axes)) < len(axes) or set(axes) != set(full):
            return None
    first = max(into, key=lambda group: len(group.nodes)) if into else Group(level)
    for group in into:
        if group is not first:
            first.nodes += group.nodes
            group.inside = first
    first.full = full
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

    # The example of the text. Each dimension consists of the axes with these sizes.
    x = leaf(6, 20)
    h = new("reshape", new("tanh", x), (2, 3, 20), shape=(2, 3, 20))
    new("exp", new("transpose", h, (1, 0, 2), shape=(3, 2, 20)))
    new("add", nodes[0], nodes[0])
    print(groups(x))  # -> ['tanh exp add']
    fuser = Fuser(Graph([x], nodes, nodes[-1:]))
    fuser.sort()
    for node in (nodes[0], nodes[3]):
        print(node.op, [[axis.size for axis in leaves(axes)] for axes in fuser.places[node]])
        # -> tanh [[2, 3], [20]]
        # -> exp [[3], [2], [20]]

    # e + e.T, and a slice: they need all of e before.
    x = leaf(5, 5)
    e = new("exp", x)
    new("add", e, new("transpose", e, (1, 0), shape=(5, 5)))
    new("negative", new("view_at", e, (slice(0, 2), ...), shape=(2, 5)))
    new("log", new("view_at", e, (..., slice(0, 1)), shape=(5, 1)))
    print(groups(x))  # -> ['exp', 'add', 'negative', 'log']

    # Two cuts that do not go together: 4 x 6 and 6 x 4 of a sum of both.
    x, y = leaf(4, 6), leaf(6, 4)
    a, b = new("exp", x), new("tanh", y)
    a, b = new("reshape", a, (24,), shape=(24,)), new("reshape", b, (24,), shape=(24,))
    new("add", a, b)
    print(groups(x, y))  # -> ['exp', 'tanh', 'add']

    # A row that is repeated for each row of a matrix: its own group, so that it is computed once.
    x, row = leaf(3, 4), leaf(4)
    new("add", x, new("exp", row))
    print(groups(x, row))  # -> ['exp', 'add']
