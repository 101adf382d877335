"""Step program08: Generated code with planned memory

Each line of the program of step program07 makes a new array. `Writer` now combines the text of step
program03 (out=) with the plan of steps program04 to program06. For each step it takes a buffer for
the result, and frees the buffers that are no longer needed:

    v3 = array_at(memory, 0, (2, 3), float32)        the head: executed once
    v4 = array_at(memory, 64, (2, 3), float32)

    def run(arrays):                                 executed in each run
        x0, x1, = arrays
        add(x0, x1, out=v3)
        tanh(v3, out=v4)
        ...

One more letter: v is an array in the program's memory. t is still the new array of an operation
without out=.

The offsets are known only after the last step, since a buffer may still grow. So the lines of the
head contain a gap, {}, which python_text fills.

The trap: a run must not return the program's own memory, because the next run overwrites it. For
now, every output is copied.

New: Writer.can_hold, .result, .output. Changed: Writer.
Try: let `output` return the name alone, run twice, and look at the first result again.
"""

import itertools
import math
from collections import defaultdict
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


class Writer:
    """Writes the text of a program. A value's name says where it is:

        x3  an input, as it was given            c4  a constant
        v5  in the program's own memory, made once for all runs
        t7  whatever else an operation gives in a run

    The number is that of the node in str(graph).

    Attributes:
        head: what is done once: text, and the number of the buffer whose place stands in it.
        lines: what each run does.
        released: the buffers that are not needed after a step.
    """

    def __init__(self, graph: Graph, steps: Sequence, xp: Any):
        self.graph, self.text, self.memory = graph, Text(xp, self.name_of), Memory()
        self.number = {node: i for i, node in enumerate((*graph.inputs, *graph.nodes))}
        self.steps = [x for x in steps if makes(x) and getattr(x, "op", "") != "constant"]
        self.lives = Lives(graph, self.steps, self.can_hold)
        self.names = {node: f"x{self.number[node]}" for node in graph.inputs}
        self.head: list[tuple[str, int]] = []
        self.lines: list[str] = []
        self.released: dict[int, list[int]] = defaultdict(list)
        self.write()

    def can_hold(self, node: Node) -> bool:
        """Whether a value can be computed into memory that is there already."""
        return self.text.writes_out(node)

    def name_of(self, node: Node) -> str:
        if node not in self.names:
            self.names[node] = self.text.named(f"c{self.number[node]}", node.args[0])
        return self.names[node]

    def result(self, node: Node) -> str:
        """The name of an array that an operation is to write its result into."""
        kind = f"{self.text.of(node.shape)}, {self.text.of(node.dtype)}"
        buffer = self.memory.take(math.prod(node.shape) * node.dtype.itemsize)
        name = self.names[node] = f"v{self.number[node]}"
        self.head.append((f"{name} = array_at(memory, {{}}, {kind})", buffer))
        self.released[self.lives.last[node]].append(buffer)
        return name

    def temporary(self, node: Node) -> str:
        """A name for what an operation gives in a run."""
        name = self.names[node] = f"t{self.number[node]}"
        return name

    def write(self) -> None:
        for i, step in enumerate(self.steps):
            line = self.statement(step)
            made = ", ".join(x for x in (step.made_by, step.line) if x)
            self.lines.append(f"{line}  # {made}" if made else line)
            self.memory.free += self.released.pop(i, [])
        outputs = [self.output(node) for node in self.graph.outputs]
        self.lines.append(f"return [{', '.join(outputs)}]")

    def statement(self, node: Node) -> str:
        """The text of one operation."""
        if node.op == "check":
            return self.text.expression(node)
        if self.can_hold(node) and node.op != "put":
            return self.text.expression(node, self.result(node))
        text = self.text.expression(node)
        return f"{self.temporary(node)} = {text}"

    def output(self, node: Node) -> str:
        name = self.name_of(node)
        return name if node.shape is None else f"array({name})"

    def python_text(self) -> str:
        """The text of a module: the arrays in the program's memory, and the function `run`."""
        offsets = self.memory.offsets()
        head = [x.format(offsets[number]) if "{}" in x else x for x, number in self.head]
        given = "".join(f"x{i}, " for i in range(len(self.graph.inputs)))
        start = [f"{given}= arrays"] * bool(given)
        return "\n".join(
            [*head, "", "def run(arrays):", *(f"    {x}" for x in (*start, *self.lines)), ""]
        )


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
    import importlib

    from tinytorch.compiler.capture import capture
    from tinytorch.core.tensor import tensor

    for name in "comparison indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods

    def f(x, w):
        y = (x * w + 1).tanh()
        return (y.exp() @ w).sum(1), y[0]

    x, w = tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([[0.5, -1.0], [1.0, 0.5]])
    graph = capture(f, (x, w), {}, [x, w]).graph
    for node in graph.nodes:
        node.line = node.line.partition(":")[0]  # "program08.py", without the number of the line
    writer = Writer(graph, graph.nodes, np)
    print("\n".join(line for line in writer.python_text().splitlines() if line))
    # -> v2 = array_at(memory, 0, (2, 2), float32)
    # -> v3 = array_at(memory, 64, (2, 2), float32)
    # -> v4 = array_at(memory, 0, (2, 2), float32)
    # -> v5 = array_at(memory, 64, (2, 2), float32)
    # -> v6 = array_at(memory, 128, (2, 2), float32)
    # -> v7 = array_at(memory, 64, (2,), float32)
    # -> def run(arrays):
    # ->     x0, x1, = arrays
    # ->     multiply(x0, x1, out=v2)  # Mul, program08.py
    # ->     add(v2, 1.0, out=v3)  # Add, program08.py
    # ->     tanh(v3, out=v4)  # Tanh, program08.py
    # ->     exp(v4, out=v5)  # Exp, program08.py
    # ->     dot(v5, x1, out=v6)  # MatMul, program08.py
    # ->     sum_of(v6, axis=(1,), keepdims=False, out=v7)  # Sum, program08.py
    # ->     t8 = v4[0, ...]  # Slice, program08.py
    # ->     return [array(v7), array(t8)]

    names = writer.text.names | {"array_at": array_at, "array": np.array}
    names["memory"] = block(np, writer.memory.offsets()[-1])
    exec(writer.python_text(), names)
    arrays = [x.array, w.array]
    first, second = names["run"](arrays), names["run"](arrays)
    print(first[0], first[1])  # -> [-0.5357671  2.699079 ] [ 0.9051482 -0.7615942]
    print([bool((a == b).all()) for a, b in zip(first, graph.run(np, arrays), strict=True)])
    # -> [True, True]
    print(np.may_share_memory(first[0], second[0]))  # -> False
    print(writer.memory.asked, "bytes in", writer.memory.offsets()[-1])  # -> 384 bytes in 192

    # A constant gets a name. A check is a line that may end the run.
    one = Node("constant", (np.float32(1),), {}, (), np.dtype("float32"))
    total = Node("add", (graph.inputs[0], one), {}, (2, 2), np.dtype("float32"))
    true = Node("constant", (np.array(True),))
    fine = Node("check", (true, True))
    small = Graph(graph.inputs[:1], [one, total, true, fine], [total])
    print(*Writer(small, [one, total, fine], np).lines, sep="; ")
    # -> add(x0, c1, out=v2); check(c3, True); return [array(v2)]
