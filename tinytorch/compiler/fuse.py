"""Fusion: puts operations of a graph together into kernels, loops that read and write once."""

import math
from typing import Any

import numpy as np

from tinytorch.compiler.axes import Axis, leaves, undo, unify
from tinytorch.compiler.expressions import has_expression
from tinytorch.compiler.graph import EFFECTS, REDUCTIONS, VIEWS, Graph, Node
from tinytorch.compiler.group import Group
from tinytorch.compiler.kernel import Kernel, build_kernel
from tinytorch.compiler.layout import Layout, Layouts

SHORT = 8  # elements of a loop that vectors do not help


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
        self.position = {node: i for i, node in enumerate((*graph.inputs, *graph.nodes))}

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
        if self.place(node, into, trail) and not self.narrow([node, *(x.nodes[-1] for x in into)]):
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

    def narrow(self, nodes: list[Node]) -> bool:
        """Whether the last dimension of a node has been cut into pieces that are too short for a
        loop: one value for each 2 x 2 window beside one for each element of a long row."""
        rows = [leaves(self.places[node][-1]) for node in nodes if self.places[node]]
        return any(len(row) > 1 and row[-1].size < SHORT for row in rows)

    # Which node goes where.

    def sort(self) -> None:
        """Gives each node that fits a group: that of its operands, or one of its own."""
        before = 0  # the level of the last node with an effect
        for node in self.graph.inputs:
            self.levels[node] = 0
        for node in self.graph.nodes:
            bases = self.bases(node)
            level = max((self.levels[x] for x in bases), default=0)
            if self.is_view(node):
                self.levels[node] = level
            elif not self.fits(node):
                self.levels[node] = level + 1
                if node.op in EFFECTS and node.op != "check":
                    self.levels[node] = before = max(level, before) + 1
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

    def sink(self) -> None:
        """Moves a group into the one that uses it where there is only one: a mask that is made
        early and used late."""
        users: dict[Node, list[Node]] = {node: [] for node in self.position}
        for node in self.graph.nodes:
            if not self.is_view(node):
                for base in self.bases(node):
                    users[base].append(node)
        groups = dict.fromkeys(self.groups.values())
        for group in sorted(groups, key=lambda group: -group.level):
            if group.inside is not None:
                continue
            outside = {
                self.group(user)
                for node in group.nodes
                for user in users[node]
                if self.group(user) is not group
            }
            if len(outside) == 1 and None not in outside:
                (into,) = outside
                trail: list[Axis] = []
                fits = self.connect(group, into, trail)
                fits = fits and not self.narrow([group.nodes[-1], into.nodes[-1]])
                if not fits or not agreed([into, group], [], False, 0):
                    undo(trail)

    def connect(self, group: Group, into: Group, trail: list[Axis]) -> bool:
        """Makes the axes of two groups one where the second uses values of the first."""
        for node in into.nodes:
            for x in self.operands(node):
                if isinstance(x, Node) and self.group(self.layouts[x].base) is group:
                    dims, place = self.axes_of(x, trail), self.places[node]
                    if dims is None:
                        return False
                    for axis, axes in zip(dims, place[len(place) - len(dims) :], strict=True):
                        if axis is not None and not unify(axes, [axis], trail):
                            return False
        a, b = leaves(group.full), leaves(into.full)
        only_a, only_b = [x for x in a if x not in b], [x for x in b if x not in a]
        return not (only_a and only_b) or unify(only_a, only_b, trail)

    def finish(self, group: Group) -> None:
        """Notes in a group what its kernel is made from. No axis is split after that."""
        for node in group.nodes:
            group.places[node] = [leaves(axes) for axes in self.places[node]]
            group.sequences[node] = leaves(self.sequence(node))
            group.operands[node] = found = []
            for x in self.operands(node):
                if isinstance(x, Node):
                    layout = self.layouts[x]
                    x = layout.base if self.group(layout.base) is group else layout
                found.append(x)


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
    first.level = into[0].level if into else level
    for group in into:
        if group is not first:
            first.nodes += group.nodes
            group.inside = first
    first.full, first.outer, first.reduces = full, outer, reduces
    return first


def fuse(graph: Graph, layouts: Layouts | None = None) -> list[Node | Kernel]:
    """The graph's operations in an order in which they can run, with loops in place of many.

    A kernel stands for the operations that it has taken in; other nodes stay, but for views and
    numbers that only kernels use. Takes time in proportion to the number of nodes.

    Args:
        layouts: those of the graph, where the caller asks for them, too.
    """
    fuser = Fuser(graph)
    fuser.layouts = Layouts() if layouts is None else layouts
    fuser.sort()
    fuser.sink()
    groups = [*dict.fromkeys(group.now() for group in fuser.groups.values())]
    for group in groups:
        group.nodes.sort(key=fuser.position.__getitem__)
        fuser.finish(group)
    needed = set(graph.outputs)  # outside of the kernel that computes it, if one does
    for group in groups:
        for found in group.operands.values():
            needed.update(x.base for x in found if isinstance(x, Layout))
    for node in reversed(graph.nodes):
        if node not in fuser.groups and (node in needed or node.op in EFFECTS):
            needed.update(node.inputs())
    kernels = {group: build_kernel(group, needed, i) for i, group in enumerate(groups)}
    return in_order(graph, fuser, kernels, needed)


def in_order(graph: Graph, fuser: Fuser, kernels: dict, needed: set[Node]) -> list[Node | Kernel]:
    """Kernels and single nodes, each after what it needs, otherwise as in the graph."""
    done: set = set(graph.inputs)
    order: list[Node | Kernel] = []
    effect = None
    chained: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op in EFFECTS and node.op != "check":
            if effect is not None:
                chained[node] = effect
            effect = node

    def unit(node: Node) -> Any:
        group = fuser.group(node)
        return node if group is None else kernels[group]

    def before(unit: Any) -> list[Node]:
        if isinstance(unit, Kernel):
            return unit.inputs
        return [*unit.inputs(), *([chained[unit]] if unit in chained else [])]

    for node in graph.nodes:
        kept = node in needed or node in fuser.groups or node.op in EFFECTS
        stack = [unit(node)] if kept else []
        while stack:
            top = stack[-1]
            waiting = [u for u in map(unit, before(top)) if u not in done]
            if top in done or not waiting:
                stack.pop()
                if top not in done:
                    done.add(top)
                    order.append(top)
            else:
                stack.extend(waiting)
    return order
