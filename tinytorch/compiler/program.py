"""A graph as a program: generated Python that calls kernels and the array library."""

import ctypes
import functools
import itertools
import math
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.build import CompilerError, build
from tinytorch.compiler.c_code import FLAGS, LIBRARIES, c_source
from tinytorch.compiler.fuse import fuse
from tinytorch.compiler.graph import (
    VIEWS,
    CheckFailed,
    Graph,
    Node,
    nodes_in,
    perform,
    places_of,
)
from tinytorch.compiler.numpy_code import Text
from tinytorch.core.device import backends
from tinytorch.threads import blas_libraries

ALIGNMENT = 64  # bytes: a buffer begins where a line of the processor's cache does
HOLDS = frozenset(("call", "call_backward"))  # their results may show the memory of any argument
SHOWS = VIEWS | {"view_as", "part"}  # their results may show the memory of the first argument


def reads(step: Any) -> list[Node]:
    """What a step of a schedule, a node or a kernel, reads."""
    return step.inputs() if isinstance(step, Node) else step.inputs


def makes(step: Any) -> list[Node]:
    return [step] if isinstance(step, Node) else step.outputs


def own(xp: Any, result: Any, *arrays: Any) -> Any:
    """`result`, or a copy where it shows the memory of one of the arrays."""
    if not hasattr(result, "dtype"):  # a call, which a backward takes up
        return result
    shared = any(xp.may_share_memory(result, a) for a in arrays if hasattr(a, "dtype"))
    return result.copy() if shared else result


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
    """get_num_threads, but in a fraction of a microsecond: the function of BLAS that it asks, found
    once. Always 1 without threadpoolctl."""
    try:
        library = blas_libraries().lib_controllers[0]
    except (ImportError, IndexError):
        return lambda: 1
    for before, after in itertools.product(("", "scipy_"), ("", "64_", "_64")):
        name = f"{before}openblas_get_num_threads{after}"
        if hasattr(library.dynlib, name):
            return getattr(library.dynlib, name)
    return lambda: library.num_threads


def threads_now() -> int:
    """The number of threads that get_num_threads() gives."""
    return thread_counter()()


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
        returned: for each output, "" if it goes out as it is, "copy", or "own": a copy where it
            turns out to show what it must not.
        escaping: roots whose memory leaves the program.
    """

    def __init__(self, graph: Graph, steps: Sequence, shared: Collection[int], can_hold: Any):
        self.graph, self.steps = graph, steps
        self.in_place: set[Node] = set()
        self.find()
        self.in_place = {node for i, node in enumerate(steps) if self.may_write(i, node, can_hold)}
        self.find()
        self.find_returned(shared)

    def find(self) -> None:
        self.roots: dict[Node, frozenset] = {}
        self.last: dict[Node, int] = {}
        for i, step in enumerate(self.steps):
            for node in reads(step):
                self.last.update(dict.fromkeys(self.roots_of(node), i))
            for node in makes(step):
                shown = self.shown_by(node) if step is node else []
                roots = frozenset().union(*map(self.roots_of, shown))
                if node.op in HOLDS or not shown:
                    roots |= {node}
                self.roots[node] = roots
                self.last.update(dict.fromkeys(roots, i))
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

    def may_write(self, i: int, node: Any, can_hold: Any) -> bool:
        """Whether a "put" may write into its argument: that has memory of the program, and nobody
        reads it after this step."""
        if not isinstance(node, Node) or node.op != "put":
            return False
        target, others = node.args[0], nodes_in(node.args[1:])
        return (
            self.roots_of(target) == {target}
            and can_hold(target)
            and self.last[target] == i
            and not any(target in self.roots_of(x) for x in others)
        )

    def find_returned(self, shared: Collection[int]) -> None:
        self.returned, self.escaping, given = [], set(), set()
        for number, node in enumerate(self.graph.outputs):
            roots, how = self.roots_of(node), ""
            if number not in shared and node.shape is not None:
                if any(root.op in HOLDS for root in roots):
                    how = "own"
                elif roots & given or any(root.op in ("input", "constant") for root in roots):
                    how = "copy"
            self.returned.append(how)
            given |= roots
            self.escaping |= roots if not how else set()


class Writer:
    """Writes the text of a program. A value's name says where it is:

        x3  an input, as it was given            c4  a constant
        v5  in the program's own memory, or a view of what is there, made once for all runs
        o6  an array that leaves the program, new in each run
        t7  whatever else an operation gives in a run
        i8  an input or a t once more, as a kernel needs it: its elements in a row

    The number is that of the node in str(graph).

    Attributes:
        layout: for each value whose strides are known, an array that has them, too.
        buffers: for each value in the program's memory, the number of its buffer.
        head: what is done once: text, and the number of the buffer whose place stands in it.
        start, lines: what each run does, before all else and then.
        slots: for each array of a kernel, where its id stands in the table that kernels are given.
        groups: kernels that follow each other; one function in C calls them.
    """

    def __init__(self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int]):
        self.graph, self.xp = graph, xp
        self.number = {node: i for i, node in enumerate((*graph.inputs, *graph.nodes))}
        self.steps = [x for x in steps if not (isinstance(x, Node) and x.op == "constant")]
        self.by_kernels = {x for step in steps if not isinstance(step, Node) for x in makes(step)}
        self.text, self.memory = Text(xp, self.name_of), Memory()
        self.lives = Lives(graph, self.steps, shared, self.can_hold)
        self.names = {node: f"x{self.number[node]}" for node in graph.inputs}
        shapes = [(x.shape, x.dtype) for x in self.number if x.shape is not None]
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in shapes]
        self.paper = np.empty(max(sizes, default=0), np.uint8)  # nobody writes on it
        self.layout: dict[Node, np.ndarray] = {}
        self.buffers: dict[Node, int] = {}
        self.head: list[tuple[str, int]] = []
        self.start: list[str] = []
        self.lines: list[str] = []
        self.released: dict[int, list] = defaultdict(list)  # after a step: buffers
        self.forgotten: dict[int, list] = defaultdict(list)  # after a step: names
        self.in_a_row: dict[Node, str] = {}
        self.slots: dict[str, int] = {}
        self.early: list[str] = []  # names whose ids are put into the table at the start
        self.groups: list[list] = []
        self.open = False  # whether the last line calls kernels
        self.write()

    def can_hold(self, node: Node) -> bool:
        """Whether a value can be computed into memory that is there already."""
        if node.op in ("input", "constant"):
            return False
        return node in self.by_kernels or self.text.writes_out(node)

    def name_of(self, node: Node) -> str:
        if node not in self.names:
            self.names[node] = self.text.named(f"c{self.number[node]}", node.args[0])
            if isinstance(node.args[0], np.ndarray):
                self.layout[node] = node.args[0]
        return self.names[node]

    # Places for values.

    def kind(self, node: Node) -> str:
        """The text of a value's shape and type."""
        return f"{self.text.of(node.shape)}, {self.text.of(node.dtype)}"

    def place(self, node: Node, name: str, buffer: int, last: int) -> str:
        """Makes an array in a buffer, which is free again after step `last`."""
        self.released[last].append(buffer)
        self.head.append((f"{name} = array_at(memory, {{}}, {self.kind(node)})", buffer))
        return name

    def result(self, node: Node, i: int) -> str:
        """The name of an array that step i is to write its result into."""
        self.layout[node] = np.ndarray(node.shape, node.dtype, self.paper)
        if node in self.lives.escaping:
            name = self.names[node] = f"o{self.number[node]}"
            self.start.append(f"{name} = empty({self.kind(node)})")
            return name
        used = self.overwritten(node, i)
        if used is None:
            buffer = self.memory.take(self.layout[node].nbytes)
        else:
            buffer = self.buffers[used]
            self.memory.asked += self.layout[node].nbytes
            self.released[i].remove(buffer)
        self.buffers[node] = buffer
        last = self.lives.last[node]
        name = self.names[node] = self.place(node, f"v{self.number[node]}", buffer, last)
        return name

    def overwritten(self, node: Node, i: int) -> Node | None:
        """An argument that an element-wise operation may overwrite: nobody reads it later."""
        if isinstance(self.steps[i], Node) and self.text.elementwise(node):
            for x in node.inputs():
                alike = x in self.buffers and (x.shape, x.dtype) == (node.shape, node.dtype)
                if alike and max(self.lives.last[root] for root in self.lives.roots[x]) == i:
                    return x
        return None

    def temporary(self, node: Node) -> str:
        """A name for what an operation gives in a run."""
        name = self.names[node] = f"t{self.number[node]}"
        self.forget(node, name)
        return name

    def forget(self, node: Node, name: str) -> None:
        """Has a name deleted as soon as nobody needs it."""
        roots = self.lives.roots[node]
        if not any(root.op == "input" for root in roots):
            self.forgotten[min(self.lives.last[root] for root in roots)].append(name)

    # Statements.

    def line(self, text: str, made_by: str = "") -> None:
        self.lines.append(f"{text}  # {made_by}" if made_by else text)
        self.open = False

    def write(self) -> None:
        for i, step in enumerate(self.steps):
            if isinstance(step, Node):
                self.write_node(step, i, ", ".join(x for x in (step.made_by, step.line) if x))
            else:
                self.write_kernel(step, i)
            self.memory.free += self.released.pop(i, [])
            if i in self.forgotten:
                self.line(f"del {', '.join(self.forgotten.pop(i))}")
        outputs = [self.output(number) for number in range(len(self.graph.outputs))]
        self.line(f"return [{', '.join(outputs)}]")

    def write_node(self, node: Node, i: int, made_by: str) -> None:
        if node.op == "check":
            expected = node.args[1]
            negated = "not " * expected
            self.line(f"if {negated}{self.text.of(node.args[0])}.item():", made_by)
            self.line(f"    raise CheckFailed({f'{made_by}: a check gave {not expected}'!r})")
        elif node.op == "put":
            self.write_put(node, i, made_by)
        elif node.op in VIEWS or node.op == "view_as":
            self.write_view(node, made_by)
        elif self.can_hold(node):
            out = self.result(node, i)
            self.line(self.text.expression(node, out), made_by)
        else:
            text = self.text.expression(node)
            self.line(f"{self.temporary(node)} = {text}", made_by)

    def write_view(self, node: Node, made_by: str) -> None:
        base = node.args[0]
        name, like = self.name_of(base), self.layout.get(base)
        text = self.text.view(name, node.op, node.args[1:])
        shows = True
        if like is not None:
            view = perform(np, node.op, (like, *node.args[1:]), {})
            shows = view.size == 0 or np.may_share_memory(view, like)
            self.layout[node] = view
        if name[0] not in "vc":
            self.line(f"{self.temporary(node)} = {text}", made_by)
        elif shows or all(root.op == "constant" for root in self.lives.roots[node]):
            self.names[node] = f"v{self.number[node]}"
            self.head.append((f"{self.names[node]} = {text}", 0))
        else:  # a reshape that has to copy
            self.layout[node] = np.ndarray(node.shape, node.dtype, self.paper)
            last = max(self.lives.last[root] for root in self.lives.roots[node])
            buffer = self.memory.take(self.layout[node].nbytes)
            copy = self.names[node] = self.place(node, f"v{self.number[node]}", buffer, last)
            self.line(f"{copy}.reshape({self.text.of(base.shape)})[...] = {name}", made_by)

    def write_put(self, node: Node, i: int, made_by: str) -> None:
        target, value, (*views, (_, (key,))) = node.args
        if node in self.lives.in_place:
            name, self.layout[node] = self.names[target], self.layout[target]
            self.names[node] = name
            if target in self.buffers:
                self.buffers[node] = self.buffers[target]
        else:
            before, name = self.name_of(target), self.result(node, i)
            self.line(f"copyto({name}, {before})", made_by)
        places = places_of(node.shape, views)
        where = self.text.key(key)
        if places is not None:
            backend = next(x for x in backends.values() if x and x.xp is self.xp)
            places = self.text.named("places", backend.from_numpy(places, None))
            name, where = f"{name}.reshape(-1)", f"{places}[{where}]"
        else:
            for op, args in views:
                name = self.text.view(name, op, args)
            if views and name[0] == "v":
                self.head.append((f"p{self.number[node]} = {name}", 0))
                name = f"p{self.number[node]}"
        self.line(f"{name}[{where}] = {self.text.of(value)}", made_by)

    # Kernels.

    def write_kernel(self, kernel: Any, i: int) -> None:
        read = [(node, self.row(node)) for node in kernel.inputs]
        arrays = [self.slot(name, self.names[node][0] in "xo") for node, name in read]
        written = [self.result(node, i) for node in kernel.outputs]
        arrays += [self.slot(name, name[0] == "o") for name in written]
        if not self.open:
            made = dict.fromkeys(x.made_by for x in kernel.nodes if x.made_by)
            self.line(f"kernels_{len(self.groups)}(address)", ", ".join(made))
            self.groups.append([])
            self.open = True
        self.groups[-1].append((kernel, arrays))

    def row(self, node: Node) -> str:
        """The name of an array that has the elements of a value in a row."""
        name, like = self.name_of(node), self.layout.get(node)
        if like is not None and like.flags.c_contiguous:
            return name
        if node not in self.in_a_row:
            copy = self.in_a_row[node] = f"i{self.number[node]}"
            if name[0] == "x":
                self.start.append(f"{copy} = contiguous({name})")
            else:
                self.line(f"{copy} = contiguous({name})")
                self.forget(node, copy)
        return self.in_a_row[node]

    def slot(self, name: str, early: bool) -> int:
        """Where in the table the id of an array stands. The first entry is the number of threads;
        then those that are known when a run starts."""
        if name not in self.slots:
            if early:
                self.early.append(name)
                self.slots[name] = len(self.early)
            else:
                free = len(self.graph.inputs) + len(self.lives.escaping) + 1
                slot = self.slots[name] = free + len(self.slots) - len(self.early)
                if name[0] in "vc":
                    self.head.append((f"table[{slot}] = id({name})", 0))
                else:
                    self.line(f"table[{slot}] = id({name})")
        return self.slots[name]

    def output(self, number: int) -> str:
        """The text of an output."""
        node, how = self.graph.outputs[number], self.lives.returned[number]
        name = self.name_of(node)
        if how == "own":
            roots = self.lives.roots[node]
            others = [x for x in roots if x.op not in HOLDS]
            for other in self.graph.outputs[:number]:
                if other.shape is not None and roots & self.lives.roots[other]:
                    others.append(other)
            return f"own({', '.join([name, *dict.fromkeys(map(self.name_of, others))])})"
        name += ".copy()" * (how == "copy")
        return f"asarray({name})" if node.shape == () and name[0] == "t" else name

    # The texts.

    def python_text(self) -> str:
        """The text of a module: the arrays in the program's memory, and the function `run`."""
        offsets = self.memory.offsets()
        head = [x.format(offsets[number]) if "{}" in x else x for x, number in self.head]
        given = "".join(f"x{i}, " for i in range(len(self.graph.inputs)))
        start = [f"{given}= arrays"] * bool(given) + self.start
        if self.groups:
            ids = "".join(f", id({name})" for name in self.early)
            start.append(f"pack(table, 0, threads_now(){ids})")
        return "\n".join([*head, "", "def run(arrays):"]) + "".join(
            f"\n    {line}" for line in [*start, *self.lines, ""]
        )

    def c_text(self) -> str:
        """Functions that call kernels, with the arrays whose ids stand in the table."""
        lines = [
            "#include <stddef.h>\n",
            "/* Where an array object of Python keeps the address of its elements. */",
            f"#define AT(slot) (*(void **)((char *)table[slot] + {object.__basicsize__}))",
            "#define THREADS ((int)(size_t)table[0])",
        ]
        for number, group in enumerate(self.groups):
            lines.append(f"\nvoid kernels_{number}(void **table) {{")
            for kernel, slots in group:
                given = "".join(f"AT({slot}), " for slot in slots)
                lines.append(f"    {kernel.name}({given}THREADS);")
            lines.append("}")
        return "\n".join([*lines, ""])


def check_addresses() -> None:
    """Makes sure that an array object keeps its address where the generated C looks for it.

    Raises:
        CompilerError: it does not, in this version of Python or NumPy.
    """
    array = np.empty(1)
    place = id(array) + object.__basicsize__
    if ctypes.c_void_p.from_address(place).value != array.ctypes.data:
        raise CompilerError("the address of an array is not where it is expected")


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
        lines = source.splitlines()[: int(found[1])] if found else []
        comments = [i for i, line in enumerate(lines) if line.startswith("// ")]
        first = comments[-1:]
        while first and first[0] - 1 in comments:
            first[0] -= 1
        made = [lines[i][3:] for i in comments if i >= first[0]]
        raise CompilerError("\n".join([str(error), *(f"made for: {x}" for x in made)])) from error


class Program:
    """Computes what a graph computes: program(arrays) gives the list of its outputs.

    Attributes:
        schedule: the kernels and nodes that a run goes through.
        python_source, c_source: the generated texts.
        bytes: the memory that a run needs for what does not leave the program.
        bytes_of_all: what it would need if no memory were used again.
    """

    count = itertools.count()

    def __init__(self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int]):
        self.schedule, writer = list(steps), Writer(graph, steps, xp, shared)
        self.python_source, self.c_source = writer.python_text(), ""
        self.xp, self.slots = xp, 1 + len(graph.inputs) + len(writer.lives.escaping)
        self.slots += len(writer.slots)
        self.bytes, self.bytes_of_all = writer.memory.offsets()[-1], writer.memory.asked
        names = writer.text.names | {
            "empty": xp.empty,
            "asarray": xp.asarray,
            "copyto": xp.copyto,
            "contiguous": np.ascontiguousarray,
            "own": functools.partial(own, xp),
            "array_at": array_at,
            "CheckFailed": CheckFailed,
        }
        if writer.groups:
            check_addresses()
            self.c_source = c_source([x for x in steps if not isinstance(x, Node)])
            self.c_source += writer.c_text()
            library = build_kernels(self.c_source)
            for number in range(len(writer.groups)):
                function = names[f"kernels_{number}"] = library[f"kernels_{number}"]
                function.restype = None
            names["pack"] = struct.Struct(f"{1 + len(writer.early)}N").pack_into
            parallel = "omp parallel" in self.c_source
            names["threads_now"] = thread_counter() if parallel else lambda: 1
        self.file = f"<program {next(Program.count)}>"
        self.names, self.code = names, compile(self.python_source, self.file, "exec")
        self.idle: list = []  # functions that run the program, each with memory of its own

    @property
    def source(self) -> str:
        """Both texts."""
        return f"{self.python_source}\n{self.c_source}" if self.c_source else self.python_source

    def prepared(self) -> Any:
        """A function that runs the program, with memory of its own."""
        table = np.zeros(self.slots, np.uintp)
        address = ctypes.c_void_p(table.ctypes.data)
        memory = block(self.xp, self.bytes)
        names = {**self.names, "memory": memory, "table": table, "address": address}
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
        except CheckFailed:
            raise
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
                line = self.python_source.splitlines()[step.tb_lineno - 1]
                error.add_note(f"in the compiled program: {line.strip()}")
            step = step.tb_next


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
    return Program(graph, fuse(graph) if backend == "c" else graph.nodes, xp, shared)
