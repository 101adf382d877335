"""Step program10: Views created once

Print the text of step program08 for a network: half of its lines are t8 = v7.transpose((1, 0)) or
t9 = v8.reshape(...), and each takes 0.2 us per run. But v7 is the same array in each run, so its
transpose is the same view in each run. The head can create it:

    v7 = array_at(memory, 0, (2, 3), float32)
    v8 = v7.transpose((1, 0))

The same holds for a view of a constant. A view of an input or of a temporary is still created in
each run.

The trap is reshape. It returns a view where the strides allow it, and a copy elsewhere. A copy of
v7 made in the head would contain what was there before the first run. Only NumPy knows which case
it is. Step fuse04 asks it: in `layouts`, a reshape that is not a view is its own base. That holds
where the base has its elements in a row, as all results in the program's memory have. `rows` holds
these, and the constants that are so. A reshape of any other value is done in each run.

New: Writer.view. Changed: Writer.
Try: let `stays` be True for each view, and find the line of the demo that goes wrong.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.graph import VIEWS, Graph, Node, nodes_in
from tinytorch.compiler.kernel import Kernel
from tinytorch.compiler.layout import Layouts
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
        v5  in the program's own memory, or a view of what is there, made once for all runs
        t7  whatever else an operation gives in a run

    The number is that of the node in str(graph).

    Attributes:
        layouts: where the elements of each value are, if its base has its own in a row.
        rows: the bases that have them in a row in each run.
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
        self.layouts, self.rows = Layouts(), set()
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
            if node.args[0].flags.c_contiguous:
                self.rows.add(node)
        return self.names[node]

    def result(self, node: Node) -> str:
        """The name of an array that an operation is to write its result into."""
        self.rows.add(node)
        size = math.prod(node.shape) * node.dtype.itemsize
        kind = f"{self.text.of(node.shape)}, {self.text.of(node.dtype)}"
        buffer = self.memory.take(size)
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
            if line:
                self.lines.append(f"{line}  # {made}" if made else line)
            self.memory.free += self.released.pop(i, [])
        outputs = [self.output(node) for node in self.graph.outputs]
        self.lines.append(f"return [{', '.join(outputs)}]")

    def statement(self, node: Node) -> str:
        """The text of one operation; none where it is done once, before all runs."""
        if node.op == "check":
            return self.text.expression(node)
        if node.op in VIEWS or node.op == "view_as":
            return self.view(node)
        if self.can_hold(node) and node.op != "put":
            return self.text.expression(node, self.result(node))
        text = self.text.expression(node)
        return f"{self.temporary(node)} = {text}"

    def view(self, node: Node) -> str:
        shown, text = node.args[0], self.text.expression(node)
        known = self.layouts[shown].base in self.rows
        copied = node.op == "reshape" and self.layouts[node].base is node
        stays = node.op != "reshape" or (known and not copied)
        if known and copied:
            self.rows.add(node)
        if self.names[shown][0] not in "vc" or not stays:  # a reshape may have to copy
            return f"{self.temporary(node)} = {text}"
        self.names[node] = f"v{self.number[node]}"
        self.head.append((f"{self.names[node]} = {text}", 0))
        return ""

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


class Program:
    """Computes what a graph computes: program(arrays) gives the list of its outputs.

    Attributes:
        python_source: the generated text.
        bytes: the memory that a run needs for what does not leave the program.
        bytes_of_all: what it would need if no memory were used again.
        idle: functions that run the program, each with memory of its own.
    """

    def __init__(self, graph: Graph, steps: Sequence, xp: Any):
        self.xp, self.idle = xp, []
        writer = Writer(graph, steps, xp)
        self.python_source = writer.python_text()
        self.bytes, self.bytes_of_all = writer.memory.offsets()[-1], writer.memory.asked
        self.names = writer.text.names | {"array_at": array_at, "array": xp.array}
        self.code = compile(self.python_source, "<program>", "exec")

    def prepared(self) -> Callable:
        """A function that runs the program, with memory of its own."""
        names = {**self.names, "memory": block(self.xp, self.bytes)}
        exec(self.code, names)
        return names.pop("run")  # no cycle: the memory goes with the program

    def __call__(self, arrays: Sequence) -> list:
        """The graph's outputs for these inputs, which are not changed. Threads may call it.

        Raises:
            CheckFailed: see Graph.run.
        """
        try:
            run = self.idle.pop()
        except IndexError:
            run = self.prepared()
        try:
            return run(arrays)
        finally:
            self.idle.append(run)


def compile_graph(graph: Graph, xp: Any = np) -> Program:
    """A program that gives what the graph gives."""
    return Program(graph, graph.nodes, xp)


if __name__ == "__main__":

    def node(op, *args, shape=(2, 3), **kwargs):
        return Node(op, args, kwargs, shape, np.dtype("float32"))

    x, c = node("input"), node("constant", np.ones((2, 3), np.float32))
    double = node("multiply", x, 2.0)
    across = node("transpose", double, (1, 0), shape=(3, 2))
    flat = node("reshape", across, (6,), shape=(6,))  # a copy
    row = node("view_at", c, (0, ...), shape=(3,))
    mine = node("transpose", x, (1, 0), shape=(3, 2))
    bits = node("view_as", double, np.dtype("float32"))
    outputs = [
        node("add", across, mine, shape=(3, 2)),
        node("negative", flat, shape=(6,)),
        node("add", row, bits),
    ]
    graph = Graph([x], [c, double, across, flat, row, mine, bits, *outputs], outputs)
    program = compile_graph(graph)
    lines = program.python_source.splitlines()
    print("\n".join(line for line in lines if line and "array_at" not in line))
    # -> v3 = v2.transpose((1, 0))
    # -> v5 = c1[0, ...]
    # -> v7 = v2.view(float32)
    # -> def run(arrays):
    # ->     x0, = arrays
    # ->     multiply(x0, 2.0, out=v2)
    # ->     t4 = v3.reshape((6,))
    # ->     t6 = x0.transpose((1, 0))
    # ->     add(v3, t6, out=v8)
    # ->     negative(t4, out=v9)
    # ->     add(v5, v7, out=v10)
    # ->     return [array(v8), array(v9), array(v10)]
    for start in (0, 5):  # two runs
        arrays = [np.arange(start, start + 6, dtype=np.float32).reshape(2, 3)]
        pairs = zip(program(arrays), graph.run(np, arrays), strict=True)
        print([bool((a == b).all()) for a, b in pairs])
    # -> [True, True, True]
    # -> [True, True, True]
