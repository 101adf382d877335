"""Step program06: Writes in place, without a copy

A graph never overwrites a value: y[0] = 1 became a "put", a new array that equals y except in one
part. Executed literally, a loop that fills the 1000 rows of an array copies the array 1000 times:

    v1 = zeros;   v2 = put(v1, row 0);   v3 = put(v2, row 1);   v4 = put(v3, row 2);   ...

But v2 is not read after v3 is made. So v3 can use the memory of v2, and the put only writes the
row, as the user's program did. This is allowed if

    the argument is in memory of the program (inputs and constants are not),
    no later step reads that memory, under any name, and
    neither the written value nor the index shows that memory.

Such a put is then a view of its argument: it shows the same memory, and prolongs its life. So
`Lives` searches twice: first with all puts as copies, to find those that may write in place, and
then with these as views.

The trap: the second search could contradict the first. It does not, because a put that may write in
place is the last reader of the old memory.

PyTorch calls this reinplacing; other compilers call it copy elision.

New: Lives.may_write. Changed: Lives.
Try: let the demo return `second`, too. Which put has to copy now?
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.graph import VIEWS, Graph, Node, nodes_in
from tinytorch.compiler.kernel import Kernel
from tinytorch.compiler.numpy_code import Text

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
    """

    def __init__(self, graph: Graph, steps: Sequence, can_hold: Callable):
        self.graph, self.steps, self.can_hold = graph, steps, can_hold
        self.in_place: set[Node] = set()
        self.find()
        self.in_place = {node for i, node in enumerate(steps) if self.may_write(i, node)}
        self.find()

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


if __name__ == "__main__":

    def node(op, *args, shape=(2, 3), **kwargs):
        return Node(op, args, kwargs, shape, np.dtype("float32"))

    def put(array, value, row):
        return node("put", array, value, (("getitem", ((row,),)),))

    text = Text(np, str)
    x = node("input")
    zeros = node("constant", np.zeros((2, 3), np.float32))
    first = put(zeros, 1.0, 0)
    second = put(first, 2.0, 1)
    third = put(second, 3.0, 0)
    total = node("add", third, x)
    graph = Graph([x], [first, second, third, total], [total])
    lives = Lives(graph, graph.nodes, text.writes_out)
    print([n in lives.in_place for n in (first, second, third)])  # -> [False, True, True]
    print([lives.roots[n] == {first} for n in (first, second, third)], lives.last[first])
    # -> [True, True, True] 3

    def may(target, value, *nodes, outputs=()):
        """Whether a put into `target` may write in place."""
        written = put(target, value, 0)
        steps = [*nodes, written]
        found = Lives(Graph([x], steps, [written, *outputs]), steps, text.writes_out)
        return written in found.in_place

    y = node("exp", x)
    view = node("view_at", y, (0, ...), shape=(3,))
    print(may(y, 1.0, y), may(x, 1.0))  # -> True False
    print(may(y, 1.0, y, outputs=[y]), may(y, view, y, view))  # -> False False
    print(may(view, 1.0, y, view), may(node("where", y, y, y), 1.0))  # -> False False
