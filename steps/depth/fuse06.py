"""Step fuse06: Reductions inside a kernel

The softmax of a row takes three loops: the largest element, the sum of exp(x - largest), and the
quotients. So far a reduction ends a group, and each of the three loops goes over the whole array.
Row by row is faster: a row of 1,000 numbers stays in the cache, and the second and third loop read
it from there. So a reduction, what comes before it and what comes after it become one kernel:

    for each row:                           the outer axes: what the reduction leaves
        largest = -inf
        for each column: largest = ...      the full axes: outer and inner
        sum = 0
        for each column: sum += exp(x - largest)
        for each column: out = exp(x - largest) / sum

Now a group has two kinds of values: full ones, one for each element, and outer ones, one for each
row. `agreed` rejects anything else: full values have all axes, outer values have the axes that the
reductions leave. In x - largest, `place` must find the missing axis of `largest`: it takes the axes
that the group loops over and that the node does not have yet.

The trap: a row vector that is added to a matrix is not a reduction. Without the test of
`reduces` in `agreed`, the vector would be an outer value for each column, and the loops would run
down the columns.

New: Group.outer, Group.reduces. Changed: Fuser.operands, .fits, .sequence, .place, .join, agreed.
Try: let the softmax of the demo sum over the first dimension: shape=(1, 7), axis=(0,). Which groups
does it print now, and why?
"""

import math
from typing import Any

import numpy as np

from tinytorch.compiler.axes import Axis, leaves, undo, unify
from tinytorch.compiler.expressions import has_expression
from tinytorch.compiler.graph import REDUCTIONS, VIEWS, Graph, Node
from tinytorch.compiler.layout import Layouts


class Group:
    """Nodes that become one kernel.

    Attributes:
        level: how many nodes outside of it stand one after the other on the way to it, at least.
            Groups of one level never depend on each other.
        full: the axes of its loops.
        outer: where it has reductions: the axes that they leave, over which the outer loops run.
        reduces: whether one of its nodes is a reduction.
    """

    def __init__(self, level: int):
        self.level, self.reduces = level, False
        self.full: list[Axis] = []
        self.outer: list[Axis] | None = None
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
            args = node.args[:1] if node.op in REDUCTIONS or node.op == "astype" else node.args
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
        if node.op in REDUCTIONS:
            of = operands[0]
            axis = node.kwargs.get("axis")
            return (
                isinstance(of, Node)
                and isinstance(axis, tuple)
                and math.prod(of.shape) > math.prod(node.shape)
                and has_expression(Node("astype", (), {}, of.shape, node.dtype), [of])
            )
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
        gone = node.kwargs["axis"] if node.op in REDUCTIONS else ()
        return [x for d, axes in enumerate(self.places[node]) if d not in gone for x in axes]

    def place(self, node: Node, into: list[Group], trail: list[Axis]) -> bool:
        """Finds the axes of a node's dimensions from its operands that are in the groups `into`."""
        operands = [x for x in self.operands(node) if isinstance(x, Node)]
        shape = operands[0].shape if node.op in REDUCTIONS else node.shape
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
        known = {x for d, axes in enumerate(place) if d not in free for x in leaves(axes)}
        fresh = [x for d in free for x in place[d]]
        for group in into:  # what the node repeats a value over is what the group loops over
            missing = [x for x in leaves(group.full) if x not in known]
            if fresh and missing and not unify(fresh, missing, trail):
                return False
            fresh = fresh or missing
        return True

    def join(self, node: Node, into: list[Group], level: int) -> Group | None:
        """Puts a node into one group made of the groups `into`, or where there are none into a new
        one; None where they do not fit."""
        trail: list[Axis] = []
        group = None
        if self.place(node, into, trail):
            looped = [x for axes in self.places[node] for x in axes]
            reduces = node.op in REDUCTIONS
            lists = [looped, self.sequence(node)] if reduces else [looped]
            group = agreed(into, lists, reduces, level)
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


def agreed(into: list[Group], more: list, reduces: bool, level: int) -> Group | None:
    """One group of several, where all values loop over the same axes, or over all but those that
    are reduced; else None.

    Args:
        more: the axes of further values.
        reduces: whether a reduction is among these.
        level: of a new group, where there is none yet.
    """
    lists = [x for group in into for x in (group.full, group.outer) if x is not None]
    lists = sorted(map(leaves, lists + more), key=len, reverse=True)
    full, outer = lists[0], None
    for axes in lists:
        if len(set(axes)) < len(axes) or not set(full).issuperset(axes):
            return None
        if len(axes) < len(full):
            outer = axes if outer is None else outer
            if set(axes) != set(outer):
                return None
    reduces = reduces or any(group.reduces for group in into)
    if outer is not None and not reduces and set(full[: len(outer)]) != set(outer):
        return None  # a value that each row would compute again
    first = max(into, key=lambda group: len(group.nodes)) if into else Group(level)
    for group in into:
        if group is not first:
            first.nodes += group.nodes
            group.inside = first
    first.full, first.outer, first.reduces = full, outer, reduces
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

    x = leaf(5, 7)
    top = new("max", x, shape=(5, 1), axis=(1,), keepdims=True)
    e = new("exp", new("subtract", x, top))
    y = new("divide", e, new("sum", e, shape=(5, 1), axis=(1,), keepdims=True))
    print(groups(x))  # -> ['max subtract exp sum divide']

    # Two reductions of one row; the mean of all elements; another sum, in another direction.
    new("sum", new("sum", y, shape=(5,), axis=(1,), keepdims=False), shape=(), axis=(0,))
    new("sum", y, shape=(7,), axis=(0,), keepdims=False)
    print(groups(x)[1:])  # -> ['sum', 'sum']

    # Two reductions that meet in one value per row: of equal rows, and of rows of different sizes.
    x, z = leaf(5, 7), leaf(5, 7)
    a = new("sum", x, shape=(5,), axis=(1,), keepdims=False)
    b = new("max", new("exp", z), shape=(5,), axis=(1,), keepdims=False)
    new("add", a, b)
    print(groups(x, z))  # -> ['exp max sum add']
    x, z = leaf(5, 7), leaf(5, 8)
    a = new("sum", x, shape=(5,), axis=(1,), keepdims=False)
    new("add", a, new("sum", z, shape=(5,), axis=(1,), keepdims=False))
    print(groups(x, z))  # -> ['sum', 'sum', 'add']

    # A row that is added to each row of a matrix is not a reduction.
    x, row = leaf(3, 4), leaf(4)
    new("add", x, new("exp", row))
    print(groups(x, row))  # -> ['exp', 'add']

    # A value for each row, and a reduction of the row's elements that it is taken from.
    x, w = leaf(3, 4), leaf(3, 1)
    inside = new("multiply", x, new("exp", w))
    new("sum", new("exp", nodes[0]), shape=(1, 1), axis=(0,), keepdims=True)
    print(groups(x, w))  # -> ['exp multiply exp', 'sum']
