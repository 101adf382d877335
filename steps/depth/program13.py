"""Step program13: Calling a kernel with one tuple of arrays

The loops in C need addresses. Looking one up in Python (array.ctypes.data) takes a microsecond, and
passing ten arguments through ctypes takes another. A loop over 1000 numbers takes less than that.
So Python passes a single object, a tuple of arrays, and C reads the addresses itself. In CPython, a
tuple stores its items, and an array its address, at a fixed offset from the start of the object:

    tuple   | head, size | item | item | ...        array   | head | address | ...

`callers` writes for each kernel a C function that reads them:

    void call_k0(char *arrays, int threads) { k0(AT(0), AT(1), threads); }

With py_object in argtypes, ctypes passes the Python object itself. A call takes 0.4 us for any
number of arrays, and other Python threads can run meanwhile.

The trap: in a Python that lays out its objects in another way, this reads garbage as an address,
and writes there. So `callers` first tests with one array that the address is where it is expected.
The offsets are computed (__basicsize__ is the size of the head), because they have changed between
versions of Python.

New: callers, compiled_c.
Try: pass (a, b) where the kernel has three arrays. (Python may crash.)
"""

import ctypes
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.build import CompilerError, build
from tinytorch.compiler.c_code import FLAGS, LIBRARIES, c_source
from tinytorch.compiler.fuse import fuse
from tinytorch.compiler.graph import (
    VIEWS,
    Graph,
    Node,
)
from tinytorch.compiler.kernel import Kernel
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


def callers(kernels: Sequence[Kernel]) -> str:
    """A function in C for each kernel that takes the kernel's arrays in a tuple of Python.

    It reads their addresses where CPython and NumPy keep them: a ctypes call with one argument
    takes a third of the time of one with ten.

    Raises:
        CompilerError: they keep them elsewhere, in this version.
    """
    word, array = ctypes.sizeof(ctypes.c_void_p), np.empty(1)
    at, pair = ctypes.c_void_p.from_address, (None, array)
    item = at(id(pair) + tuple.__basicsize__ + word).value
    if item != id(array) or at(item + object.__basicsize__).value != array.ctypes.data:
        raise CompilerError("the addresses of arrays are not where they are expected")
    lines = [
        "\n// Arrays from a tuple of Python: its items, and where an array has its elements.",
        f"#define ITEM(i) (*(char **)(arrays + {tuple.__basicsize__} + {word} * i))",
        f"#define AT(i) (*(void **)(ITEM(i) + {object.__basicsize__}))",
    ]
    for name, kernel in {kernel.name: kernel for kernel in kernels}.items():
        count = len(kernel.inputs) + len(kernel.outputs)
        given = "".join(f"AT({i}), " for i in range(count))
        lines.append(f"void call_{name}(char *arrays, int threads) {{ {name}({given}threads); }}")
    return "\n".join([*lines, ""])


def compiled_c(kernels: Sequence[Kernel]) -> tuple[str, dict[str, Callable]]:
    """The text of kernels in C, and what calls them: name -> function(arrays, threads)."""
    source = c_source(kernels) + callers(kernels)
    library, functions = build(source, [*FLAGS, *LIBRARIES]), {}
    for kernel in kernels:
        function = functions[kernel.name] = library[f"call_{kernel.name}"]
        function.argtypes, function.restype = [ctypes.py_object, ctypes.c_int], None
    return source, functions


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
    import time
    from types import SimpleNamespace

    def node(op, *args, shape=(1000,)):
        return Node(op, args, {}, shape, np.dtype("float32"))

    x, y = node("input"), node("input")
    total = node("add", node("multiply", x, 2.0), y)
    (kernel,) = fuse(Graph([x, y], [total.args[0], total], [total]))
    source, functions = compiled_c([kernel])
    print(source.splitlines()[-1])
    # -> void call_k0(char *arrays, int threads) { k0(AT(0), AT(1), AT(2), threads); }

    a, b, c = (np.full(1000, value, np.float32) for value in (1, 2, 0))
    functions["k0"]((a, b, c), 1)
    print(c[:3], c[-1])  # -> [4. 4. 4.] 4.0

    def microseconds(function):
        start = time.perf_counter()
        for _ in range(5000):
            function()
        return (time.perf_counter() - start) * 200

    call = functions["k0"]
    addresses = microseconds(lambda: [z.ctypes.data for z in (a, b, c)])
    print(f"three addresses: {addresses:.2f} us")  # -> ...
    print(f"the whole call: {microseconds(lambda: call((a, b, c), 1)):.2f} us")  # -> ...

    # A Python that keeps its arrays elsewhere.
    np = SimpleNamespace(empty=lambda size: SimpleNamespace(ctypes=SimpleNamespace(data=0)))
    try:
        callers([])
    except CompilerError as error:
        print(error)  # -> the addresses of arrays are not where they are expected
