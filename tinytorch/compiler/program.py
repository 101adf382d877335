"""A graph as a program: generated Python that calls kernels and the array library."""

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
    nodes_in,
    perform,
)
from tinytorch.compiler.kernel import Kernel
from tinytorch.compiler.numpy_code import Text
from tinytorch.threads import blas_libraries

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
        in_place: the "put" nodes that write into their argument itself, as nobody reads it later.
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
        program, and nobody reads it after this step."""
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
        layout: for each value whose strides are known, an array that has them, too.
        head: what is done once: text, and the number of the buffer whose place stands in it.
        start, lines: what each run does, before all else and then.
        released, forgotten: the buffers and names that nobody needs after a step.
    """

    def __init__(self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int]):
        self.graph, self.text, self.memory = graph, Text(xp, self.name_of), Memory()
        self.number = {node: i for i, node in enumerate((*graph.inputs, *graph.nodes))}
        self.steps = [x for x in steps if makes(x) and getattr(x, "op", "") != "constant"]
        self.by_kernels = {x for step in steps if isinstance(step, Kernel) for x in makes(step)}
        self.lives = Lives(graph, self.steps, shared, self.can_hold)
        self.names = {node: f"x{self.number[node]}" for node in graph.inputs}
        arrays = [node for node in self.number if node.shape is not None]
        size = max((math.prod(x.shape) * x.dtype.itemsize for x in arrays), default=0)
        self.paper = np.empty(size, np.uint8)  # all layouts are in it; nobody reads or writes
        self.layout: dict[Node, np.ndarray] = {}
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
            if isinstance(node.args[0], np.ndarray):
                self.layout[node] = node.args[0]
        return self.names[node]

    def result(self, node: Node) -> str:
        """The name of an array that an operation is to write its result into."""
        self.layout[node] = np.ndarray(node.shape, node.dtype, self.paper)
        kind = f"{self.text.of(node.shape)}, {self.text.of(node.dtype)}"
        if node in self.lives.escaping:
            name = f"o{self.number[node]}"
            self.start.append(f"{name} = empty({kind})")
        else:
            name, buffer = f"v{self.number[node]}", self.memory.take(self.layout[node].nbytes)
            self.head.append((f"{name} = array_at(memory, {{}}, {kind})", buffer))
            self.released[self.lives.last[node]].append(buffer)
        self.names[node] = name
        return name

    def temporary(self, node: Node) -> str:
        """A name for what an operation gives in a run, deleted as soon as nobody needs it."""
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
        base, text = node.args[0], self.text.expression(node)
        like, shows = self.layout.get(base), True
        if like is not None:
            self.layout[node] = perform(np, node.op, (like, *node.args[1:]), {})
            shows = 0 in node.shape or np.may_share_memory(self.layout[node], like)
        if self.names[base][0] not in "vc" or not shows:  # a reshape may have to copy
            return f"{self.temporary(node)} = {text}"
        self.names[node] = f"v{self.number[node]}"
        self.head.append((f"{self.names[node]} = {text}", 0))
        return ""

    def put(self, node: Node) -> str:
        target, value, (*views, (_, (key,))) = node.args
        before = self.name_of(target)
        if node in self.lives.in_place:
            self.names[node], self.layout[node] = before, self.layout[target]
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
        name, like = self.name_of(node), self.layout.get(node)
        known = like is not None and like.flags.c_contiguous
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


def block(xp: Any, size: int) -> Any:
    """Bytes that begin at a multiple of ALIGNMENT."""
    memory = xp.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT if xp is np else 0
    return memory[start : start + size]


def array_at(memory: Any, offset: int, shape: tuple, dtype: np.dtype) -> Any:
    """An array in a block of bytes."""
    end = offset + math.prod(shape) * dtype.itemsize
    return memory[offset:end].view(dtype).reshape(shape)


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

    def __init__(self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int]):
        self.schedule, self.xp, self.idle = list(steps), xp, []
        kernels = [step for step in steps if isinstance(step, Kernel)]
        self.c_source = c_source(kernels) + callers(kernels) if kernels else ""
        writer = Writer(graph, steps, xp, shared)
        self.python_source = writer.python_text()
        self.bytes, self.bytes_of_all = writer.memory.offsets()[-1], writer.memory.asked
        self.names = writer.text.names | {"array_at": array_at, "threads_now": thread_counter()}
        self.names |= {"empty": xp.empty, "asarray": xp.asarray, "copyto": xp.copyto}
        self.names["contiguous"] = np.ascontiguousarray
        library = build_kernels(self.c_source) if kernels else None
        for kernel in kernels:
            function = self.names[kernel.name] = library[f"call_{kernel.name}"]
            function.argtypes, function.restype = [ctypes.py_object, ctypes.c_int], None
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
            because nobody writes into them. All others have memory of their own.

    Raises:
        CompilerError: the backend "c", and there is no compiler, or it does not work.
    """
    steps = fuse(graph) if backend == "c" else graph.nodes
    return Program(graph, soon(steps), xp, shared)
