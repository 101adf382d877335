"""Step fuse04: Views inside a loop: bases and strides

A transpose, a slice or a reshape between two operations computes nothing; it is a view (step
69b). But step fuse03 treats it as an operation that C does not have, so it ends a group. A
loop does not need the view as an array: it can read the memory of the original array with the
view's strides.

NumPy can compute these strides. `Layouts` applies the view to an array with one byte per element.
The bytes are never read or written. Since an element is one byte, the array's strides count
elements. A Layout is the result: the node whose memory the view shows (its base), where in it the
first element is, and the strides. The same works for a view of a view, for a slice and for a
broadcast. So a group depends on bases only. A dimension of size 1 is never stepped along: its
stride is written as 0, like that of a repeated one.

The layouts are a dict that fills itself: Python calls __missing__ for a node that is not in it yet.

A constant with one element becomes a number, and the loop contains it as a literal.

The trap: a reshape of a transpose has to copy. Then NumPy's result shares no memory with its
argument, and the node counts as an ordinary operation. Another limit: a view of a value that the
group itself computes cannot be read yet, because its elements come in another order. Step fuse05
finds out which of these views can be read.

(PyTorch's compiler calls such views ReinterpretView.)

New: Layout, Layouts, row_strides, strides_of, address, Fuser.number, .is_view.
Changed: Fuser.__init__, .operands, .bases, .join, .sort.
Try: which strides does Layouts find for y[::2], a view_at of y with (slice(0, None, 2), ...)?
"""

import math
from typing import Any, NamedTuple

import numpy as np

from tinytorch.compiler.expressions import has_expression
from tinytorch.compiler.graph import VIEWS, Graph, Node, perform


class Layout(NamedTuple):
    """Where the elements of a value are, counted in elements.

    base: the node whose memory they are in; the node itself, unless it is a view.
    offset: of the first one. strides: to the next one of each dimension; 0 where that is of size 1.
    The base has its own elements in a row.
    """

    base: Node
    offset: int
    strides: tuple[int, ...]


class Layouts(dict):
    """Finds the Layout of each node once, when it is first asked for: layouts[node]."""

    def __missing__(self, node: Node) -> Layout:
        self[node] = Layout(node, 0, row_strides(node.shape))
        if node.op in VIEWS:
            base, offset, strides = self[node.args[0]]
            paper = np.empty(math.prod(base.shape), np.int8)  # never read or written
            memory = np.ndarray(node.args[0].shape, np.int8, paper, offset, strides)
            view = perform(np, node.op, (memory, *node.args[1:]), {})
            if np.may_share_memory(view, paper):  # else NumPy has to make a copy
                self[node] = Layout(base, address(view) - address(paper), strides_of(view))
        return self[node]


def row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of elements that are in a row."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(0 if n == 1 else step)
        step *= n
    return tuple(strides[::-1])


def strides_of(array: np.ndarray) -> tuple[int, ...]:
    """The strides of an array of bytes, 0 for a dimension of size 1."""
    return tuple([0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True)])


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]


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
        layouts: of each node, where its elements are.
        known: the operands of each node.
        groups: of each node; None for one that stays as it is.
        levels: of each node.
    """

    def __init__(self, graph: Graph):
        self.graph, self.inputs = graph, set(graph.inputs)
        self.layouts = Layouts()
        self.known: dict[Node, list] = {}
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

    def join(self, node: Node, into: list[Group], level: int) -> Group | None:
        """Puts a node into one group made of the groups `into`, or where there are none into a new
        one; None where they do not fit."""
        nodes = [x for x in self.operands(node) if isinstance(x, Node)]
        shown = (x for x in nodes if self.is_view(x) and self.group(self.layouts[x].base) in into)
        if any(shown):
            return None  # another order of the elements of a value that the group computes
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

    x, y = leaf(6, 8), leaf(8, 6)
    flipped = new("transpose", y, (1, 0), shape=(6, 8))
    new("add", new("exp", x), flipped)
    print(groups(x, y))  # -> ['exp add']
    fuser = Fuser(Graph([x, y], nodes, nodes[-1:]))
    base, offset, strides = fuser.layouts[flipped]
    print(base is y, offset, strides)  # -> True 0 (1, 6)

    # A view of a view; and one that has to be a copy.
    half = new("view_at", flipped, (slice(3, 6), ...), shape=(3, 8))
    flat = new("reshape", flipped, (48,), shape=(48,))
    print(fuser.layouts[half].base is y, fuser.layouts[half].offset)  # -> True 3
    print(fuser.is_view(half), fuser.is_view(flat))  # -> True False

    # A value of the group itself, transposed.
    x = leaf(5, 5)
    e = new("exp", x)
    new("add", e, new("transpose", e, (1, 0), shape=(5, 5)))
    print(groups(x))  # -> ['exp', 'add']

    # A constant of one element is a number, one of several is read.
    x = leaf(3)
    one, three = (new("constant", np.full(n, 0.5, f), shape=(n,)) for n in (1, 3))
    new("multiply", new("add", x, one), three)
    fuser = Fuser(Graph([x], nodes, nodes[-1:]))
    print(fuser.operands(nodes[-2])[1], fuser.operands(nodes[-1])[1] is three)  # -> 0.5 True
    print(groups(x), fuser.number(Node("call", (), {})).op)  # -> ['add multiply'] call
