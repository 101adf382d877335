"""Step program12: Assignments for puts, and del for temporaries

Step program06 finds the puts that need no copy, but the text still calls Graph's `put`, which
copies. Now a put becomes an assignment to a part:

    y = zeros; y[0, 1:] = x            copyto(v3, c1)          unless y may be overwritten
                                       p3[1:,] = x0            where p3 = v3[0, ...]

The part that the path of views leads to is created once, in the head, and named p.

The temporaries, named t, stay in memory until the run ends, although most are needed for a few
lines only. So a `del` follows the last step that reads their memory. A view of an input gets no
`del`: it has no memory of its own.

The trap: del removes a name, and the memory is freed with the last name that refers to it. A view
of t7 that is still needed keeps the memory, as it should. But names that share memory and end
together must be deleted together.

New: Writer.put. Changed: Writer.
Try: compare the peak memory of a run with and without del, with tracemalloc.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.graph import VIEWS, Graph, Node
from tinytorch.compiler.layout import Layouts
from tinytorch.compiler.memory import Lives, Memory, array_at, block, makes
from tinytorch.compiler.numpy_code import Text


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
        released, forgotten: the buffers and names that are not needed after a step.
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
        self.forgotten: dict[int, list[str]] = defaultdict(list)
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
        """A name for what an operation gives in a run, deleted as soon as it is not needed."""
        name, roots = f"t{self.number[node]}", self.lives.roots[node]
        if not any(root.op == "input" for root in roots):
            self.forgotten[min(self.lives.last[root] for root in roots)].append(name)
        self.names[node] = name
        return name

    def write(self) -> None:
        for i, step in enumerate(self.steps):
            line = self.statement(step)
            made = ", ".join(x for x in (step.made_by, step.line) if x)
            if line:
                self.lines.append(f"{line}  # {made}" if made else line)
            self.memory.free += self.released.pop(i, [])
            if i in self.forgotten:
                self.lines.append(f"del {', '.join(self.forgotten.pop(i))}")
        outputs = [self.output(*numbered) for numbered in enumerate(self.graph.outputs)]
        self.lines.append(f"return [{', '.join(outputs)}]")

    def statement(self, node: Node) -> str:
        """The text of one operation; none where it is done once, before all runs."""
        if node.op == "check":
            return self.text.expression(node)
        if node.op == "put" and self.can_hold(node):
            return self.put(node)
        if node.op in VIEWS or node.op == "view_as":
            return self.view(node)
        if self.can_hold(node):
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

    def put(self, node: Node) -> str:
        target, value, (*views, (_, (key,))) = node.args
        before = self.name_of(target)
        if node in self.lives.in_place:
            self.names[node] = before
            self.rows.add(node)
        else:
            self.lines.append(f"copyto({self.result(node)}, {before})")
        part = self.names[node]
        for op, args in views:
            part = self.text.view(part, op, args)
        if views and part[0] == "v":
            self.head.append((f"p{self.number[node]} = {part}", 0))
            part = f"p{self.number[node]}"
        return f"{part}[{self.text.key(key)}] = {self.text.of(value)}"

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

    def put(array, value, *path):
        return node("put", array, value, path)

    x, index = node("input"), node("input", shape=(2,))
    zeros = node("constant", np.zeros((2, 3), np.float32))
    corner = (("view_at", ((0, ...),)), ("getitem", ((slice(1, None),),)))
    first = put(zeros, 1.0, *corner)
    second = put(first, 5.0, ("getitem", ((1,),)))
    taken = node("take", x, index, 1, shape=(2, 2))
    part = node("view_at", taken, (0, ...), shape=(2,))
    total = node("sum", part, axis=(0,), shape=())
    result = node("add", second, total)
    steps = [zeros, first, second, taken, part, total, result]
    program = compile_graph(Graph([x, index], steps, [result]))
    lines = program.python_source.splitlines()
    print("\n".join(line for line in lines if line and "array_at" not in line))
    # -> p3 = v3[0, ...]
    # -> def run(arrays):
    # ->     x0, x1, = arrays
    # ->     o8 = empty((2, 3), float32)
    # ->     copyto(v3, c2)
    # ->     p3[1:,] = 1.0
    # ->     v3[1,] = 5.0
    # ->     t5 = take(x0, x1, 1)
    # ->     t6 = t5[0, ...]
    # ->     sum_of(t6, axis=(0,), out=v7)
    # ->     del t5, t6
    # ->     add(v3, v7, out=o8)
    # ->     return [o8]
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([0, 2])]
    for _ in range(2):
        print(program(arrays)[0].tolist())
    # -> [[2.0, 3.0, 3.0], [7.0, 7.0, 7.0]]
    # -> [[2.0, 3.0, 3.0], [7.0, 7.0, 7.0]]
