"""Step program17: Scheduling: final results as early as possible

fuse() orders the steps so that each one follows the steps that it needs. Many orders do that. In a
backward pass, the chain of gradients may come first, and the gradients of the weights, which no
other step needs, at the end:

    g3 = ...;  g2 = f(g3 w3);  g1 = f(g2 w2);   w3.grad = g3' x3;   w2.grad = g2' x2;   ...

Then g1, g2, g3, ... are all alive until the end, and have left the cache by the time they are read.
In the GPT of the benchmarks this took 19 MB instead of 5.5.

A step whose result no other step reads can run right after its arguments are made. They are still
in the cache, and their memory is free afterwards. `soon` moves each such step there. It moves views
as well: they cost nothing, and a final step would have to wait for its view.

The trap: the order of random numbers and whole Functions matters, so such steps stay in place.

In compilers this is instruction scheduling. Finding the best order is NP-hard; this is a heuristic.

New: soon. Changed: compile_graph.
Try: give the demo 40 layers. How does the memory grow with the layers, with `soon` and without?
"""

import ctypes
import functools
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.build import CompilerError, build
from tinytorch.compiler.c_code import FLAGS, LIBRARIES, c_source
from tinytorch.compiler.fuse import fuse
from tinytorch.compiler.graph import (
    EFFECTS,
    VIEWS,
    CheckFailed,
    Graph,
    Node,
)
from tinytorch.compiler.kernel import Kernel
from tinytorch.compiler.layout import Layouts, row_strides
from tinytorch.compiler.memory import Lives, Memory, array_at, block, makes, reads
from tinytorch.compiler.numpy_code import Text
from tinytorch.threads import blas_libraries


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
        return f"{kernel.name}(({', '.join(arrays)},), threads)"

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
        start += ["threads = threads_now()"] * bool(self.by_kernels)
        return "\n".join(
            [*head, "", "def run(arrays):", *(f"    {x}" for x in (*start, *self.lines)), ""]
        )


@functools.cache
def thread_counter() -> Callable[[], int]:
    """What get_num_threads asks, found once: the function of BLAS itself takes no microsecond."""
    try:
        library = blas_libraries().lib_controllers[0]
    except (ImportError, IndexError):
        return lambda: 1
    name = "scipy_openblas_get_num_threads64_"  # as in the packages of NumPy
    return getattr(library.dynlib, name, library.get_num_threads)


def threads_now() -> int:
    """The number of threads that get_num_threads() gives."""
    return thread_counter()()


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


def build_kernels(source: str) -> ctypes.CDLL:
    """The library of generated C.

    Raises:
        CompilerError: see build. Where the compiler does not take a line, the message names the
            operations of the program that the line is made for.
    """
    try:
        return build(source, [*FLAGS, *LIBRARIES])
    except CompilerError as error:
        found = re.search(r"kernels\.c:(\d+)", str(error))
        before = source.splitlines()[: int(found[1])] if found else []
        comments = re.findall(r"((?:^// .*\n)+)", "\n".join(before), re.MULTILINE)
        raise CompilerError("\n".join([str(error), *comments[-1:]])) from error


def compiled_c(kernels: Sequence[Kernel]) -> tuple[str, dict[str, Callable]]:
    """The text of kernels in C, and what calls them: name -> function(arrays, threads)."""
    source = c_source(kernels) + callers(kernels)
    library, functions = build_kernels(source), {}
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

    count = itertools.count()

    def __init__(
        self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int], layouts: Layouts
    ):
        self.schedule, self.xp, self.idle = list(steps), xp, []
        self.names: dict[str, Any] = {"array_at": array_at, "threads_now": thread_counter()}
        self.c_source = ""
        if kernels := [step for step in steps if isinstance(step, Kernel)]:
            self.c_source, functions = compiled_c(kernels)
            self.names |= functions
        writer = Writer(graph, steps, xp, shared, layouts)
        self.python_source = writer.python_text()
        self.bytes, self.bytes_of_all = writer.memory.offsets()[-1], writer.memory.asked
        self.names |= {"empty": xp.empty, "asarray": xp.asarray, "copyto": xp.copyto}
        self.names |= {"contiguous": xp.ascontiguousarray, **writer.text.names}
        self.file = f"<program {next(Program.count)}>"
        self.code = compile(self.python_source, self.file, "exec")

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
        except Exception as error:
            self.explain(error)
            raise
        finally:
            self.idle.append(run)

    def explain(self, error: Exception) -> None:
        """Adds to an error the line of the generated code, which names the program's operation."""
        step = error.__traceback__
        while step is not None:
            if step.tb_frame.f_code.co_filename == self.file:
                line = self.python_source.splitlines()[step.tb_lineno - 1].strip()
                if isinstance(error, CheckFailed):
                    error.args = (f"{error}: {line}",)
                error.add_note(f"in the compiled program: {line}")
            step = step.tb_next


def soon(steps: Sequence[Node | Kernel]) -> list[Node | Kernel]:
    """The steps in an order in which those that no other step reads, such as the product that
    gives the gradient of a weight, run as soon as they can: what they read is in the cache then,
    and its memory is free afterwards. So do views, which cost nothing.

    The key of a step is its number. That of a step which runs early is the largest key of what it
    reads: it follows that at once.
    """
    read = {node for step in steps for node in reads(step)}
    made: dict[Node, int] = {}
    keys = []
    for i, step in enumerate(steps):
        last = not any(x in read or x.op in EFFECTS for x in makes(step))
        early = last or getattr(step, "op", "") in VIEWS
        keys.append(max((made.get(x, -1) for x in reads(step)), default=i) if early else i)
        made.update(dict.fromkeys(makes(step), keys[-1]))
    return [steps[i] for i in sorted(range(len(steps)), key=lambda i: (keys[i], i))]


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
    return Program(graph, soon(steps), xp, shared, layouts)


if __name__ == "__main__":

    def node(op, *args, shape=(64, 64)):
        return Node(op, args, {}, shape, np.dtype("float32"))

    layers = 12
    xs = [node("input") for _ in range(layers)]
    ws = [node("input") for _ in range(layers)]
    g, chain, views, ends = node("input"), [], [], []
    first = g
    for x, w in zip(xs, ws, strict=True):
        views.append(node("transpose", g, (1, 0)))
        ends.append(node("matmul", views[-1], x))
        chain.append(node("matmul", g, w))
        chain.append(g := node("tanh", chain[-1]))
    steps = [*chain, *views, *ends]
    graph = Graph([first, *xs, *ws], steps, [g, *ends])

    def kinds(steps):
        return "".join("c" if x in chain else "v" if x in views else "E" for x in steps)

    print(kinds(steps))  # -> ccccccccccccccccccccccccvvvvvvvvvvvvEEEEEEEEEEEE
    print(kinds(soon(steps)))  # -> vEccvEccvEccvEccvEccvEccvEccvEccvEccvEccvEccvEcc
    late, early = Program(graph, steps, np, (), Layouts()), compile_graph(graph, "numpy")
    print(late.bytes // 1024, "KB;", early.bytes // 1024, "KB")  # -> 192 KB; 32 KB

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((64, 64), np.float32) / 8 for _ in graph.inputs]
    pairs = zip(late(arrays), early(arrays), strict=True)
    print(all(bool((a == b).all()) for a, b in pairs))  # -> True
