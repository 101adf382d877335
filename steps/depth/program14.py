"""Step program14: Kernels in the program

fuse() turns a graph into a list of kernels and single nodes. In the program, a kernel is one line,
which replaces all operations that were fused into it:

    k0((v3, contiguous(x1), o7,), 1)          softmax, and the operations around it

The line passes the arrays of the inputs and of the outputs. The outputs get memory like the result
of any other operation. Lives and Memory treat nodes and kernels alike, because `reads` and `makes`
(step program05) accept both.

A kernel expects the elements of an array in order, without gaps. For a value in the program's
memory the layout is known, and the text has the name alone where it is right. An input may have any
strides, so it goes through np.ascontiguousarray, which copies a transposed array, and takes 25 ns
where there is nothing to copy. fuse asks for layouts, too: compile_graph makes one set for both.

The trap: a kernel must not write into an array that it reads. An element-wise function of NumPy
may. But the kernel declares its arrays `restrict`, which promises the C compiler that they do not
overlap. So the buffers of the inputs are freed after the step, not before.

PyTorch's compiler goes further, and can generate the calls in C++ too (cpp_wrapper).

New: Writer.kernel_call, Writer.in_a_row. Changed: Writer, Program, compile_graph.
Try: let `in_a_row` return the name without `contiguous`. Which promise breaks?
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
from tinytorch.compiler.layout import Layouts, row_strides
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

    def __init__(
        self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int], layouts: Layouts
    ):
        self.graph, self.text, self.memory = graph, Text(xp, self.name_of), Memory()
        self.number = {node: i for i, node in enumerate((*graph.inputs, *graph.nodes))}
        self.steps = [x for x in steps if makes(x) and getattr(x, "op", "") != "constant"]
        self.by_kernels = {x for step in steps if isinstance(step, Kernel) for x in makes(step)}
        self.lives = Lives(graph, self.steps, shared, self.can_hold)
        self.names = {node: f"x{self.number[node]}" for node in graph.inputs}
        self.layouts, self.rows = layouts, set()
        self.head: list[tuple[str, int]] = []
        self.start: list[str] = []
        self.lines: list[str] = []
        self.released: dict[int, list[int]] = defaultdict(list)
        self.forgotten: dict[int, list[str]] = defaultdict(list)
        self.write()

    def can_hold(self, node: Node) -> bool:
        """Whether a value can be computed into memory that is there already."""
        return node in self.by_kernels or self.text.writes_out(node)

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
            if isinstance(step, Node):
                line = self.statement(step)
                made = ", ".join(x for x in (step.made_by, step.line) if x)
            else:
                line = self.kernel_call(step)
                made = ", ".join(dict.fromkeys(x.made_by for x in step.nodes if x.made_by))
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

    def kernel_call(self, kernel: Kernel) -> str:
        arrays = [self.in_a_row(node) for node in kernel.inputs]
        arrays += [self.result(node) for node in kernel.outputs]
        return f"{kernel.name}(({', '.join(arrays)},), 1)"

    def in_a_row(self, node: Node) -> str:
        """The text of an array that has the elements of a value in a row, as kernels need it."""
        name, (base, _, strides) = self.name_of(node), self.layouts[node]
        known = base in self.rows and strides == row_strides(node.shape)
        return name if known else f"contiguous({name})"

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
        schedule: the kernels and nodes that a run goes through.
        python_source, c_source: the generated texts.
        bytes: the memory that a run needs for what does not leave the program.
        bytes_of_all: what it would need if no memory were used again.
        idle: functions that run the program, each with memory of its own.
    """

    def __init__(
        self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int], layouts: Layouts
    ):
        self.schedule, self.xp, self.idle = list(steps), xp, []
        self.names: dict[str, Any] = {"array_at": array_at}
        self.c_source = ""
        if kernels := [step for step in steps if isinstance(step, Kernel)]:
            self.c_source, functions = compiled_c(kernels)
            self.names |= functions
        writer = Writer(graph, steps, xp, shared, layouts)
        self.python_source = writer.python_text()
        self.bytes, self.bytes_of_all = writer.memory.offsets()[-1], writer.memory.asked
        self.names |= {"empty": xp.empty, "asarray": xp.asarray, "copyto": xp.copyto}
        self.names |= {"contiguous": xp.ascontiguousarray, **writer.text.names}
        self.code = compile(self.python_source, "<program>", "exec")

    @property
    def source(self) -> str:
        """Both texts."""
        return f"{self.python_source}\n{self.c_source}"

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


def compile_graph(
    graph: Graph, backend: str = "c", xp: Any = np, shared: Collection[int] = ()
) -> Program:
    """A program that gives what the graph gives.

    Args:
        backend: "c": loops in C, what they cannot do in calls of NumPy; "numpy": calls of `xp`.
        shared: the numbers of outputs that may show the memory of inputs and of other outputs,
            because nothing writes into them. All others have memory of their own.

    Raises:
        CompilerError: the backend has kernels, and there is no compiler, or it does not work.
    """
    layouts = Layouts()
    steps = graph.nodes if backend == "numpy" else fuse(graph, layouts)
    return Program(graph, steps, xp, shared, layouts)


if __name__ == "__main__":
    import importlib
    import time

    from tinytorch.compiler.capture import capture
    from tinytorch.compiler.simplify import simplify
    from tinytorch.ops.random import manual_seed, randn

    for name in "comparison indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods

    def f(x, w):
        y = (x @ w).tanh() * 0.5 + 1
        return (y * y).exp() / y

    manual_seed(0)
    x, w = randn(64, 32), randn(32, 32)
    graph = simplify(capture(f, (x, w), {}, [x, w]).graph)
    program, plain = compile_graph(graph), compile_graph(graph, "numpy")
    lines = program.python_source.split("\n    ")[3:]
    print(*(line.partition("  # ")[0].strip() for line in lines), sep="; ")
    # -> dot(x0, x1, out=v2); k0((v2, o8,), 1); return [o8]
    print([type(step).__name__ for step in program.schedule])  # -> ['Node', 'Kernel']
    print("void call_k0(char *arrays, int threads)" in program.source)  # -> True

    arrays = [x.array, w.array]
    for function in (program, plain):
        print(abs(function(arrays)[0] - f(x, w).array).max() < 1e-4)  # -> True
    across = x.array.copy(order="F")
    print(abs(program([across, w.array])[0] - f(x, w).array).max() < 1e-4)  # -> True

    # An input that is not in a row, and a value that has no name before the kernel is called.
    def g(x):
        return x.t().tanh() + x[:, 0].exp()

    x = randn(32, 32)
    graph = simplify(capture(g, (x,), {}, [x]).graph)
    print(abs(compile_graph(graph)([x.array.T])[0] - g(x.t()).array).max() < 1e-5)  # -> True

    def seconds(function):
        start = time.perf_counter()
        for _ in range(300):
            function()
        return (time.perf_counter() - start) / 300

    for name, function in {"numpy": plain, "c": program}.items():
        time_of_one = seconds(lambda function=function: function(arrays))
        print(f"{name}: {time_of_one * 1e6:.0f} us")  # -> ...
