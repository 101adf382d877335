"""The memory of a program: who needs which part of it, and how long."""

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.graph import VIEWS, Graph, Node, nodes_in
from tinytorch.compiler.kernel import Kernel

ALIGNMENT = 64  # bytes: a buffer begins where a line of the processor's cache does
HOLDS = frozenset(("call", "call_backward"))  # their results may show the memory of any argument
SHOWS = VIEWS | {"view_as", "part"}  # their results may show the memory of the first argument


def reads(step: Node | Kernel) -> list[Node]:
    return step.inputs() if isinstance(step, Node) else step.inputs


def makes(step: Node | Kernel) -> list[Node]:
    return [step] if isinstance(step, Node) else step.outputs


class Memory:
    """Finds a place in one block of bytes for each value, and gives it to later ones again.

    Attributes:
        sizes: for each buffer, the size of the largest value that it holds.
        free: the buffers that hold nothing now, the last one freed at the end.
        asked: bytes of all values together: what they would take without giving again.
    """

    def __init__(self):
        self.sizes: list[int] = []
        self.free: list[int] = []
        self.asked = 0

    def take(self, size: int) -> int:
        """The number of a buffer for `size` bytes: the smallest free one that is large enough,
        else the largest that is too small, which grows, else a new one."""
        size = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        self.asked += size
        fitting = [b for b in self.free[::-1] if size <= self.sizes[b] <= 2 * size + 4096]
        small = [b for b in self.free if self.sizes[b] < size]
        if fitting:
            chosen = min(fitting, key=self.sizes.__getitem__)
        elif small:
            chosen = max(small, key=self.sizes.__getitem__)
        else:
            self.sizes.append(size)
            return len(self.sizes) - 1
        self.free.remove(chosen)
        self.sizes[chosen] = max(size, self.sizes[chosen])
        return chosen

    def offsets(self) -> list[int]:
        """Where each buffer begins; the last number is the size of the block."""
        return [0, *itertools.accumulate(self.sizes)]


class Lives:
    """Whose memory each value shows, and how long it is needed.

    Attributes:
        roots: for each value, those whose memory it may show; a value that has memory of its own
            is its own root.
        last: for each root, the last step that reads its memory; len(steps) for what is returned.
        in_place: the "put" nodes that write into their argument itself, as nothing reads it later.
        copied: the numbers of the outputs that show memory which is not theirs alone.
        escaping: the roots of all other outputs.
    """

    def __init__(self, graph: Graph, steps: Sequence, shared: Collection[int], can_hold: Callable):
        self.graph, self.steps, self.can_hold = graph, steps, can_hold
        self.in_place: set[Node] = set()
        self.find()
        self.in_place = {node for i, node in enumerate(steps) if self.may_write(i, node)}
        self.find()
        self.copied, self.escaping, given = set(), set(), set()
        for number, node in enumerate(graph.outputs):
            roots = self.roots_of(node)
            foreign = any(root.op in HOLDS or root.op in ("input", "constant") for root in roots)
            if (foreign or roots & given) and number not in shared and node.shape is not None:
                self.copied.add(number)
            else:
                self.escaping |= roots
            given |= roots

    def find(self) -> None:
        self.roots: dict[Node, frozenset] = {}
        self.last: dict[Node, int] = {}
        for i, step in enumerate(self.steps):
            for node in makes(step):
                shown = self.shown_by(node) if step is node else []
                roots = frozenset().union(*map(self.roots_of, shown))
                self.roots[node] = roots | {node} if node.op in HOLDS or not shown else roots
            for node in (*reads(step), *makes(step)):
                self.last.update(dict.fromkeys(self.roots_of(node), i))
        for node in self.graph.outputs:
            self.last.update(dict.fromkeys(self.roots_of(node), len(self.steps)))

    def roots_of(self, node: Node) -> frozenset:
        """Those whose memory the value may show: itself, for inputs and constants."""
        return self.roots.setdefault(node, frozenset((node,)))

    def shown_by(self, node: Node) -> list[Node]:
        """The arguments whose memory the operation's result may show."""
        if node.op in HOLDS:
            return node.inputs()
        return [node.args[0]] if node.op in SHOWS or node in self.in_place else []

    def may_write(self, i: int, node: Any) -> bool:
        """Whether step i is a "put" that may write into its argument: this has memory of the
        program, and nothing reads it after this step."""
        if not isinstance(node, Node) or node.op != "put" or not self.can_hold(node):
            return False
        target, others = node.args[0], nodes_in(node.args[1:])
        alone = self.roots_of(target) == {target} and self.last[target] == i
        shown = any(target in self.roots_of(x) for x in others)
        return alone and not shown and self.can_hold(target)


def block(xp: Any, size: int) -> Any:
    """Bytes that begin at a multiple of ALIGNMENT."""
    memory = xp.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT if xp is np else 0
    return memory[start : start + size]


def array_at(memory: Any, offset: int, shape: tuple, dtype: np.dtype) -> Any:
    """An array in a block of bytes."""
    end = offset + math.prod(shape) * dtype.itemsize
    return memory[offset:end].view(dtype).reshape(shape)
