"""Step program05: Lifetimes of values that share memory

When may a buffer be reused? "After the last step that reads its value" is wrong with views:

    0  v1 = multiply(x, 2)
    1  v2 = transpose(v1)       # the last step that names v1
    2  v3 = exp(x)              # v3 gets the buffer of v1 ...
    3  v4 = add(v2, 1)          # ... and v2, a view of that buffer, shows v3: wrong

A view has no memory of its own. The value whose memory it shows is its root, and the root must stay
alive. `Lives` finds the roots of each value, and for each root the last step that reads its memory
under any name.

A value can have several roots. A whole Function in the graph ("call") may return its argument, or a
view of it, or keep it for its backward. So the result of a call has all arguments as roots, and
itself. That may keep memory longer than needed, but it is never wrong. The memory of an output is
needed until the end of the run.

The trap: counting only arguments. A result counts as well: even a value that no step reads needs
its buffer during the step that writes it.

In compilers this is liveness analysis with alias analysis.

New: HOLDS, SHOWS, reads, makes, Lives.
Try: let `shown_by` always return [], and look at the plan in the demo.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.graph import VIEWS, Graph, Node
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
    """

    def __init__(self, graph: Graph, steps: Sequence):
        self.graph, self.steps = graph, steps
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
        return [node.args[0]] if node.op in SHOWS else []


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

    x = node("input")
    v1 = node("multiply", x, 2.0)
    v2 = node("transpose", v1, (1, 0), shape=(3, 2))
    v3 = node("exp", x)
    v4 = node("add", v2, 1.0, shape=(3, 2))
    v5 = node("matmul", v3, v4, shape=(2, 2))
    graph = Graph([x], [v1, v2, v3, v4, v5], [v5])
    names = {x: "x", v1: "v1", v2: "v2", v3: "v3", v4: "v4", v5: "v5"}
    lives = Lives(graph, graph.nodes)
    print({names[n]: [names[r] for r in lives.roots[n]] for n in names})
    # -> {'x': ['x'], 'v1': ['v1'], 'v2': ['v1'], 'v3': ['v3'], 'v4': ['v4'], 'v5': ['v5']}
    print({names[root]: last for root, last in lives.last.items()})
    # -> {'x': 2, 'v1': 3, 'v3': 4, 'v4': 4, 'v5': 5}

    # The plan: v1 is free after step 3, although no step names it after step 1.
    memory, buffers = Memory(), {}
    for i, step in enumerate(graph.nodes):
        if step in lives.last:
            buffers[step] = memory.take(24)
        memory.free += [buffers[root] for root in buffers if lives.last[root] == i]
    print({names[n]: buffer for n, buffer in buffers.items()})
    # -> {'v1': 0, 'v3': 1, 'v4': 2, 'v5': 0}
    place, offsets = block(np, memory.offsets()[-1]), memory.offsets()
    arrays = {
        n: array_at(place, offsets[buffer], n.shape, n.dtype) for n, buffer in buffers.items()
    }
    given = np.array([[0.0, 1, 2], [2, 1, 0]], np.float32)
    np.multiply(given, 2, out=arrays[v1])
    np.exp(given, out=arrays[v3])
    np.add(arrays[v1].T, 1, out=arrays[v4])
    np.matmul(arrays[v3], arrays[v4], out=arrays[v5])
    print((arrays[v5] == graph.run(np, [given])[0]).all())  # -> True

    # A whole Function may return or keep what it was given.
    called = Node("call", (object, (), (), v1))
    part = node("part", called, 0)
    both = Lives(Graph([x], [v1, called, part], [part]), [v1, called, part])
    print(both.roots[part] == {v1, called}, both.last[v1])  # -> True 3
