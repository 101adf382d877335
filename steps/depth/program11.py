"""Step program11: Escape analysis: memory for the outputs

Until now every output is copied (step program08). A training step returns large arrays, the values
that backward needs, and computing each of them in one place and copying it to another is a waste.

An output with memory of its own is now computed into a new array in each run, named o:

    o5 = empty((2, 3), float32)          instead of a place in the program's memory
    exp(v4, out=o5)
    return [o5]

If the output is a view, its root has to be the new array. A value that is still used after the
run, outside of the program, is said to escape, and to find these values is called escape analysis.
A copy is still needed where the memory does not belong to this output alone: it is an input, a
constant, the memory of another output, or the result of a whole Function, which may be any of
these. If two outputs shared memory, a caller that writes into one would change the other.

The arrays kept for backward are never written. The caller passes their numbers as `shared`: they
may show an input, such as a weight, so the weight is not copied in each step.

The trap: shared outputs escape as well. Their roots need new memory in each run, too; in the
program's own memory, the next run would overwrite them before backward reads them.

Changed: Lives, Writer, Program, compile_graph.
Try: print the text of the demo without `shared`. How many copies are there?
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
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


class Writer:
    """Writes the text of a program. A value's name says where it is:

        x3  an input, as it was given            c4  a constant
        v5  in the program's own memory, or a view of what is there, made once for all runs
        o6  an array that leaves the program, new in each run
        t7  whatever else an operation gives in a run

    The number is that of the node in str(graph).

    Attributes:
        layouts: where the elements of each value are, if its base has its own in a row.
        rows: the bases that have them in a row in each run.
        head: what is done once: text, and the number of the buffer whose place stands in it.
        start, lines: what each run does, before all else and then.
        released: the buffers that are not needed after a step.
    """

    def __init__(self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int]):
        self.graph, self.text, self.memory = graph, Text(xp, self.name_of), Memory()
        self.number = {node: i for i, node in enumerate((*graph.inputs, *graph.nodes))}
        self.steps = [x for x in steps if makes(x) and getattr(x, "op", "") != "constant"]
        self.lives = Lives(graph, self.steps, shared, self.can_hold)
        self.names = {node: f"x{self.number[node]}" for node in graph.inputs}
        self.layouts, self.rows = Layouts(), set()
        self.head: list[tuple[str, int]] = []
        self.start: list[str] = []
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
        if node in self.lives.escaping:
            name = f"o{self.number[node]}"
            self.start.append(f"{name} = empty({kind})")
        else:
            name, buffer = f"v{self.number[node]}", self.memory.take(size)
            self.head.append((f"{name} = array_at(memory, {{}}, {kind})", buffer))
            self.released[self.lives.last[node]].append(buffer)
        self.names[node] = name
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
        outputs = [self.output(*numbered) for numbered in enumerate(self.graph.outputs)]
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

    def output(self, number: int, node: Node) -> str:
        name = self.name_of(node) + ".copy()" * (number in self.lives.copied)
        return f"asarray({name})" if node.shape == () and name[0] == "t" else name

    def python_text(self) -> str:
        """The text of a module: the arrays in the program's memory, and the function `run`."""
        offsets = self.memory.offsets()
        head = [x.format(offsets[number]) if "{}" in x else x for x, number in self.head]
        given = "".join(f"x{i}, " for i in range(len(self.graph.inputs)))
        start = [f"{given}= arrays"] * bool(given) + self.start
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

    def __init__(self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int]):
        self.xp, self.idle = xp, []
        writer = Writer(graph, steps, xp, shared)
        self.python_source = writer.python_text()
        self.bytes, self.bytes_of_all = writer.memory.offsets()[-1], writer.memory.asked
        self.names = writer.text.names | {"array_at": array_at}
        self.names |= {"empty": xp.empty, "asarray": xp.asarray, "copyto": xp.copyto}
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


def compile_graph(graph: Graph, xp: Any = np, shared: Collection[int] = ()) -> Program:
    """A program that gives what the graph gives.

    Args:
        shared: the numbers of outputs that may show the memory of inputs and of other outputs,
            because nothing writes into them. All others have memory of their own.
    """
    return Program(graph, graph.nodes, xp, shared)


if __name__ == "__main__":

    def node(op, *args, shape=(2, 3), **kwargs):
        return Node(op, args, kwargs, shape, np.dtype("float32"))

    x, w = node("input"), node("input")
    y = node("multiply", x, w)
    z = node("exp", y)
    across = node("transpose", z, (1, 0), shape=(3, 2))
    kept = node("transpose", w, (1, 0), shape=(3, 2))
    graph = Graph([x, w], [y, z, across, kept], [across, z, x, kept])
    program = compile_graph(graph, shared=(1, 3))
    print(program.python_source.partition("def ")[2])
    # -> run(arrays):
    # ->     x0, x1, = arrays
    # ->     o3 = empty((2, 3), float32)
    # ->     multiply(x0, x1, out=v2)
    # ->     exp(v2, out=o3)
    # ->     t4 = o3.transpose((1, 0))
    # ->     t5 = x1.transpose((1, 0))
    # ->     return [t4, o3, x0.copy(), t5]

    arrays = [np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)]
    first, second = program(arrays), program(arrays)
    print(np.may_share_memory(first[0], second[0]))  # -> False
    print([np.may_share_memory(a, b) for a, b in zip(first, [*arrays, *arrays], strict=True)])
    # -> [False, False, False, True]

    def copies(outputs, nodes):
        """Which outputs are copied."""
        return sorted(Lives(Graph([x, w], nodes, outputs), nodes, (), lambda node: True).copied)

    called = node("call_backward", y, z)
    part = node("part", called, 0)
    constant = node("constant", np.ones(3))
    steps = [y, z, called, part]
    print(copies([y, z], [y, z]), copies([y, y], [y]), copies([part, constant], steps))
    # -> [] [1] [0, 1]
    chosen = node("where", x, w, 2.0, shape=())  # what NumPy gives for it may be a scalar
    program = compile_graph(Graph([x, w], [chosen], [chosen]))
    print(type(program([np.array(True), np.array(3.0)])[0]).__name__)  # -> ndarray
