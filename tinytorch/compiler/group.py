"""A group: nodes of a graph that become one kernel, with the axes of its loops."""

from tinytorch.compiler.axes import Axis
from tinytorch.compiler.graph import Node


class Group:
    """Nodes that become one kernel.

    Attributes:
        level: how many nodes outside of it stand one after the other on the way to it, at least.
            Groups of one level never depend on each other.
        full: the axes of its loops.
        outer: where it has reductions: the axes that they leave, over which the outer loops run.
        reduces: whether one of its nodes is a reduction.
        places, sequences, operands: what Fuser.finish has noted: for each node, the axes of each
            dimension of what it loops over, those of its result from the slowest to the fastest,
            and its operands: nodes of the group, numbers, and Layouts of what is read.
    """

    def __init__(self, level: int):
        self.level, self.reduces = level, False
        self.full: list[Axis] = []
        self.outer: list[Axis] | None = None
        self.nodes: list[Node] = []
        self.inside: Group | None = None  # the group that has swallowed it
        self.places: dict[Node, list[list[Axis]]] = {}
        self.sequences: dict[Node, list[Axis]] = {}
        self.operands: dict[Node, list] = {}

    def now(self) -> "Group":
        group = self
        while group.inside is not None:
            group = group.inside
        return group
