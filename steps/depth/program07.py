"""Step program07: A program: the text of a whole graph

`Text` writes one node. A program is a function with a line for each node of the graph, and `Writer`
writes it:

    def run(arrays):
        x0, x1, = arrays                              the inputs
        t2 = multiply(x0, x1)  # Mul, model.py:7      the operation of the user's program
        t3 = add(t2, 1.0)  # Add, model.py:7
        return [t3]

The letter of a name says where the value is: x is an input, c a constant, and t a temporary, the
new array of an operation. The number is that of the node in the printed graph. A constant has no
line: it gets a name among the global variables of the text.

exec() makes the function once, and each run calls it. It gives what Graph.run gives, and has
nothing to look up or to decide. The demo measures both.

The trap: a node without a result, such as a check, is a line too. It may end the run.

(PyTorch: Inductor's "wrapper code", a Python function call(args).)

New: Writer.
Try: print the text of a function with a Dropout. Which name does the generator get?
"""

import itertools
import math
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
        t7  what an operation gives in a run

    The number is that of the node in str(graph).

    Attributes:
        lines: what each run does.
    """

    def __init__(self, graph: Graph, steps: Sequence, xp: Any):
        self.graph, self.text = graph, Text(xp, self.name_of)
        self.number = {node: i for i, node in enumerate((*graph.inputs, *graph.nodes))}
        self.steps = [x for x in steps if makes(x) and getattr(x, "op", "") != "constant"]
        self.names = {node: f"x{self.number[node]}" for node in graph.inputs}
        self.lines: list[str] = []
        self.write()

    def name_of(self, node: Node) -> str:
        if node not in self.names:
            self.names[node] = self.text.named(f"c{self.number[node]}", node.args[0])
        return self.names[node]

    def temporary(self, node: Node) -> str:
        """A name for what an operation gives in a run."""
        name = self.names[node] = f"t{self.number[node]}"
        return name

    def write(self) -> None:
        for step in self.steps:
            line = self.statement(step)
            made = ", ".join(x for x in (step.made_by, step.line) if x)
            self.lines.append(f"{line}  # {made}" if made else line)
        outputs = [self.name_of(node) for node in self.graph.outputs]
        self.lines.append(f"return [{', '.join(outputs)}]")

    def statement(self, node: Node) -> str:
        """The text of one operation."""
        if node.op == "check":
            return self.text.expression(node)
        text = self.text.expression(node)
        return f"{self.temporary(node)} = {text}"

    def python_text(self) -> str:
        """The text of a module with the function `run`."""
        given = "".join(f"x{i}, " for i in range(len(self.graph.inputs)))
        start = [f"{given}= arrays"] * bool(given)
        return "\n".join(["def run(arrays):", *(f"    {x}" for x in (*start, *self.lines)), ""])


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
    import time

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
        node.line = node.line.partition(":")[0]  # "program07.py", without the number of the line
    writer = Writer(graph, graph.nodes, np)
    print("\n".join(line for line in writer.python_text().splitlines() if line))
    # -> def run(arrays):
    # ->     x0, x1, = arrays
    # ->     t2 = multiply(x0, x1)  # Mul, program07.py
    # ->     t3 = add(t2, 1.0)  # Add, program07.py
    # ->     t4 = tanh(t3)  # Tanh, program07.py
    # ->     t5 = exp(t4)  # Exp, program07.py
    # ->     t6 = dot(t5, x1)  # MatMul, program07.py
    # ->     t7 = sum_of(t6, axis=(1,), keepdims=False)  # Sum, program07.py
    # ->     t8 = t4[0, ...]  # Slice, program07.py
    # ->     return [t7, t8]

    names = dict(writer.text.names)
    exec(writer.python_text(), names)
    arrays = [x.array, w.array]
    first = names["run"](arrays)
    print([bool((a == b).all()) for a, b in zip(first, graph.run(np, arrays), strict=True)])
    # -> [True, True]

    def microseconds(function):
        start = time.perf_counter()
        for _ in range(1000):
            function()
        return (time.perf_counter() - start) * 1000

    text = microseconds(lambda: names["run"](arrays))
    nodes = microseconds(lambda: graph.run(np, arrays))
    print(f"Graph.run {nodes:.1f} us, text {text:.1f} us")  # -> Graph.run ... us, text ... us

    # A constant gets a name. A check is a line that may end the run.
    one = Node("constant", (np.float32(1),), {}, (), np.dtype("float32"))
    total = Node("add", (graph.inputs[0], one), {}, (2, 2), np.dtype("float32"))
    true = Node("constant", (np.array(True),))
    fine = Node("check", (true, True))
    small = Graph(graph.inputs[:1], [one, total, true, fine], [total])
    print(*Writer(small, [one, total, fine], np).lines, sep="; ")
    # -> t2 = add(x0, c1); check(c3, True); return [t2]
