"""Step ccode05: Several passes over a row

The variance of a row needs its mean, and the mean is known only after a loop over the row. So
there must be another loop over the same row. Step ccode04 has one loop for a row, and would use the
mean before it is computed. The kernel knows the pass of each value (step fuse13). `write_pass`
works backwards:

    roots     the purpose of a pass: the values that it reduces, writes to an output, or keeps
    needed    the roots, and everything that they are computed from

A pass may need a value of an earlier pass again. There are three cases:

    cheap, as x - mean      computed again; x comes from the cache
    an output               already written, and read back
    expensive, as exp       the pass that computes it stores it in a buffer for the row, exp_0_row

The buffer is an array on the stack with one place per element of a row, and each row uses it again.
Its 400 bytes here stay in the first-level cache.

The trap: if two passes compute a value, only the first one stores it: `passes[node] == number`.
Storing it twice would also be correct, but would write to memory twice.

(PyTorch's compiler does the same for a softmax on the CPU: an outer loop over rows, an inner loop
for each pass, and a local buffer.)

New: CFunction.needed, .is_there, .element, .place, .row_place. Changed: CFunction.__init__,
.write_rows, .write_outer, .write_pass.
Try: let is_there return False. What does the softmax compute twice then, and is the result right?
"""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.expressions import C_TYPES, DIVISIONS, cast, expression
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel, Load
from tinytorch.compiler.operations import ACCUMULATORS

# What the generated code is compiled with. Not -ffast-math: nan and infinity must stay what they
# are, and a result must be rounded as NumPy rounds it (so no fused multiplications and additions).
# That nothing listens to the processor's floating-point exceptions is needed for loops with `?`.
FLAGS = "-O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math -fwrapv".split()
LIBRARIES = ["-lm"]

HEAD = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
"""


def c_source(kernels: Sequence[Kernel]) -> str:
    """One file with a function `void NAME(inputs, outputs)` for each kernel.

    Kernels that are the same but for what they read and write share a function: their `name`
    becomes that of the first.
    """
    names: dict[str, str] = {}
    functions = []
    for kernel in kernels:
        comment, text = comment_of(kernel), CFunction(kernel).text()
        if text not in names:
            names[text] = kernel.name
            functions.append(f"{comment}void {kernel.name}({text}")
        kernel.name = names[text]
    return c_file("\n".join(functions))


def c_file(body: str) -> str:
    """A file with these functions, and what they need in front of them."""
    return "\n".join([HEAD, *helpers(body), body])


def comment_of(kernel: Kernel) -> str:
    lines = [f"// {text}\n" for text in kernel.made_by[:12]]
    more = len(kernel.made_by) - len(lines)
    return "".join([*lines, f"// and {more} more\n" * (more > 0)])


def helpers(body: str) -> Iterator[str]:
    """The functions that the kernels call and C does not have: // and % of some types."""
    for t in sorted(set(re.findall(r"\b(?:floor_divide|remainder)_(\w+)\(", body))):
        kind = "float" if t in ("float", "double") else "int"
        yield DIVISIONS[kind].format(t=t, f="f" if t == "float" else "")


def index(offset: int, strides: Sequence[int], counters: Sequence[str]) -> str:
    """The place of an element: "i0 * 512 + i1"."""
    terms = [i if s == 1 else f"{i} * {s}" for i, s in zip(counters, strides, strict=True) if s]
    terms += [str(offset)] if offset or not terms else []
    return " + ".join(terms)


class CFunction:
    """Writes the C function of one kernel."""

    def __init__(self, kernel: Kernel):
        self.kernel, self.lines, self.depth = kernel, [], 1
        self.kept = kernel.kept
        self.arrays = {node: f"in{i}" for i, node in enumerate(kernel.inputs)}
        self.arrays |= {node: f"out{i}" for i, node in enumerate(kernel.outputs)}
        self.names = {node: f"{node.op}_{i}" for i, node in enumerate(kernel.nodes)}
        self.counters = [f"i{i}" for i in range(len(kernel.sizes))]
        self.loads: dict[Load, str] = {}
        self.fresh = itertools.count()  # numbers for names: those of two loops may meet in a row
        self.reductions = [n for n in kernel.nodes if n.op in ACCUMULATORS]
        self.last = max(kernel.passes.values(), default=0)
        self.count = math.prod(kernel.sizes[kernel.outer :])

    def parameters(self) -> list[str]:
        given = [f"const {self.c_type(x)} *restrict {self.arrays[x]}" for x in self.kernel.inputs]
        given += [f"{self.c_type(x)} *restrict {self.arrays[x]}" for x in self.kernel.outputs]
        return given

    def text(self) -> str:
        self.write_rows()
        return "\n".join([", ".join(self.parameters()) + ") {", *self.lines, "}\n"])

    def c_type(self, node: Node) -> str:
        return C_TYPES[node.dtype.name]

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def open(self, line: str) -> None:
        self.write(line + " {")
        self.depth += 1

    def close(self, blocks: int = 1) -> None:
        for _ in range(blocks):
            self.depth -= 1
            self.write("}")

    def loop(self, i: int) -> None:
        counter, size = self.counters[i], self.kernel.sizes[i]
        self.open(f"for (long {counter} = 0; {counter} < {size}; {counter}++)")

    # Rows.

    def write_rows(self) -> None:
        """The outer loops, and in them the passes over a row."""
        kernel = self.kernel
        depth = self.depth
        for i in range(kernel.outer):
            self.loop(i)
        for node in kernel.nodes:
            if node in self.kept:
                self.write(f"{self.c_type(node)} {self.names[node]}_row[{self.count}];")
        self.write_outer(0)
        for number in range(self.last + 1):
            self.write_pass(number)
        self.close(self.depth - depth)

    def write_outer(self, number: int) -> None:
        """What is computed once for a row before pass `number`."""
        kernel = self.kernel
        nodes = [n for n in kernel.nodes if n not in kernel.full and kernel.passes[n] == number]
        self.loads = {}
        for node in nodes:
            if node in self.reductions:
                self.define(node, self.reduced(node))
            else:
                self.statement(node)
            self.store(node)

    def reduced(self, node: Node) -> str:
        """The result of a reduction from its accumulator."""
        acc = self.accumulator(node)
        if self.type_of_accumulator(node) == self.c_type(node):
            return acc
        return f"({self.c_type(node)}){acc}"

    def accumulator(self, node: Node) -> str:
        return f"{self.names[node]}_acc"

    def type_of_accumulator(self, node: Node) -> str:
        return "double" if node.dtype.kind == "f" else self.c_type(node)

    # A pass.

    def write_pass(self, number: int) -> None:
        """One round over the elements of a row."""
        kernel = self.kernel
        closing = [n for n in self.reductions if kernel.passes[n] == number + 1]
        roots = {x for node in closing for x in kernel.operands[node] if isinstance(x, Node)}
        made = [n for n in kernel.full if kernel.passes[n] == number]
        roots |= {n for n in made if n in self.arrays or n in self.kept}
        needed = self.needed(roots, number)
        if not roots and not closing:
            return self.write_outer(number + 1)
        for node in closing:
            self.write_start(node)
        depth = self.depth
        self.open_row()
        self.loads = {}
        for node in kernel.nodes:
            if node in needed:
                self.element(node, number)
        for node in closing:
            (x,) = kernel.operands[node]
            value = cast(self.value(x), self.dtype_of(x), node.dtype)
            acc = self.accumulator(node)
            self.write(ACCUMULATORS[node.op].update(acc, value))
        self.close(self.depth - depth)
        self.write_outer(number + 1)

    def open_row(self) -> None:
        """The loops over the elements of a row."""
        for i in range(self.kernel.outer, len(self.kernel.sizes)):
            self.loop(i)

    def needed(self, roots: set[Node], number: int) -> set[Node]:
        """The values that a pass computes or reads back."""
        kernel, needed = self.kernel, set(roots)
        for node in reversed(kernel.nodes):
            if node in needed and not self.is_there(node, number):
                needed.update(x for x in kernel.operands[node] if x in kernel.full)
        return needed

    def is_there(self, node: Node, number: int) -> bool:
        """Whether an earlier pass has written a value."""
        written = node in self.arrays or node in self.kept
        return written and self.kernel.passes[node] < number

    def write_start(self, node: Node) -> None:
        """Declares the accumulator of a reduction."""
        kind, name = self.type_of_accumulator(node), f"{self.names[node]}_acc"
        self.write(f"{kind} {name} = {ACCUMULATORS[node.op].start};")

    def element(self, node: Node, number: int) -> None:
        """Computes the value of a node for one element, or reads it back, or writes it."""
        if self.is_there(node, number):
            self.define(node, self.place(node))
            return
        self.statement(node)
        if self.kernel.passes[node] == number:
            self.store(node)
            if node in self.kept:
                self.write(f"{self.row_place(node)} = {self.names[node]};")

    def place(self, node: Node) -> str:
        """Where the value of a node is kept."""
        if node in self.kept:
            return self.row_place(node)
        return f"{self.arrays[node]}[{index(0, self.kernel.strides[node], self.counters)}]"

    def row_place(self, node: Node) -> str:
        sizes, outer = self.kernel.sizes, self.kernel.outer
        steps = [math.prod(sizes[i + 1 :]) for i in range(outer, len(sizes))]
        return f"{self.names[node]}_row[{index(0, steps, self.counters[outer:])}]"

    # Statements.

    def statement(self, node: Node) -> None:
        """Computes the value of a node."""
        operands = self.kernel.operands[node]
        texts = [self.value(x) for x in operands]
        typed = [x.base if isinstance(x, Load) else x for x in operands]
        self.define(node, expression(node, typed, texts))

    def define(self, node: Node, text: str) -> None:
        self.write(f"const {self.c_type(node)} {self.names[node]} = {text};")

    def store(self, node: Node) -> None:
        if node in self.arrays:
            place = index(0, self.kernel.strides[node], self.counters)
            self.write(f"{self.arrays[node]}[{place}] = {self.names[node]};")

    def value(self, x: Any) -> str | None:
        """The variable with an operand's value; None for a number."""
        if isinstance(x, Load):
            if x not in self.loads:
                self.loads[x] = f"x{next(self.fresh)}"
                place = index(x.offset, x.strides, self.counters)
                kind = self.c_type(x.base)
                self.write(f"const {kind} {self.loads[x]} = {self.arrays[x.base]}[{place}];")
            return self.loads[x]
        return self.names[x] if isinstance(x, Node) else None

    def dtype_of(self, x: Any) -> np.dtype:
        return x.base.dtype if isinstance(x, Load) else x.dtype


if __name__ == "__main__":
    import ctypes

    import numpy as np

    from tinytorch.compiler.build import CompilerError, build
    from tinytorch.compiler.capture import Trace
    from tinytorch.compiler.fuse import fuse
    from tinytorch.compiler.graph import Graph
    from tinytorch.compiler.tracer import Tracer, tracing_device
    from tinytorch.core.device import cpu

    def graph_of(function, *arrays):
        """The graph of a function of arrays, whose functions are those of xp (step tracer05)."""
        inputs = [Node("input", (), {}, array.shape, array.dtype) for array in arrays]
        with Trace(cpu) as trace:
            found = function(tracing_device.xp, *map(Tracer, arrays, inputs))
        results = found if isinstance(found, tuple) else (found,)
        return Graph(inputs, trace.nodes, [result.node for result in results])

    def run(function, *arrays):
        """The C of a function of arrays, and its results; without a compiler, those of NumPy."""
        graph = graph_of(function, *arrays)
        kernels, values = fuse(graph), dict(zip(graph.inputs, arrays, strict=True))
        source = c_source(kernels)
        functions = source[source.index("void k") :].rstrip()
        try:
            library = build(source, [*FLAGS, *LIBRARIES])
        except CompilerError:
            return functions, *graph.run(np, arrays)
        for kernel in kernels:
            values |= {node: np.empty(node.shape, node.dtype) for node in kernel.outputs}
            order = [values[node] for node in (*kernel.inputs, *kernel.outputs)]
            library[kernel.name](*(ctypes.c_void_p(x.ctypes.data) for x in order))
        return functions, *[values[node] for node in graph.outputs]

    def lines(functions):
        """Without the long first line, which names the parameters."""
        return functions.partition("\n")[2]

    # Two sums, one after the other: the variance of each row. x - mean is computed twice.
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 100)).astype(np.float32)

    def normed(xp, x):
        distance = x - x.sum(1, keepdims=True) * 0.01
        return distance / xp.sqrt(xp.square(distance).sum(1, keepdims=True) * 0.01)

    functions, got = run(normed, a)
    print(lines(functions))
    # ->     for (long i0 = 0; i0 < 3; i0++) {
    # ->         double sum_0_acc = 0;
    # ->         for (long i1 = 0; i1 < 100; i1++) {
    # ->             const float x0 = in0[i0 * 100 + i1];
    # ->             sum_0_acc += x0;
    # ->         }
    # ->         const float sum_0 = (float)sum_0_acc;
    # ->         const float multiply_1 = sum_0 * 0.01f;
    # ->         double sum_4_acc = 0;
    # ->         for (long i1 = 0; i1 < 100; i1++) {
    # ->             const float x1 = in0[i0 * 100 + i1];
    # ->             const float subtract_2 = x1 - multiply_1;
    # ->             const float square_3 = subtract_2 * subtract_2;
    # ->             sum_4_acc += square_3;
    # ->         }
    # ->         const float sum_4 = (float)sum_4_acc;
    # ->         const float multiply_5 = sum_4 * 0.01f;
    # ->         const float sqrt_6 = sqrtf(multiply_5);
    # ->         for (long i1 = 0; i1 < 100; i1++) {
    # ->             const float x2 = in0[i0 * 100 + i1];
    # ->             const float subtract_2 = x2 - multiply_1;
    # ->             const float divide_7 = subtract_2 / sqrt_6;
    # ->             out0[i0 * 100 + i1] = divide_7;
    # ->         }
    # ->     }
    # -> }
    print(np.allclose(got, (a - a.mean(1, keepdims=True)) / a.std(1, keepdims=True), atol=1e-5))
    # -> True

    # Where a reduction comes last, nothing is left for a last pass: two loops, no third.
    def spread(xp, x):
        return xp.square(x - x.sum(1, keepdims=True) * 0.01).sum(1)

    functions, got = run(spread, a)
    print(functions.count("i1 = 0"), np.allclose(got, 100 * a.var(1)))  # -> 2 True

    # A softmax to the base of 2. A power takes long: a buffer keeps it for the second pass.
    def softmax(xp, x):
        power = xp.exp2(x)
        return power / power.sum(1, keepdims=True)

    functions, got = run(softmax, a)
    print(lines(functions))
    # ->     for (long i0 = 0; i0 < 3; i0++) {
    # ->         float exp2_0_row[100];
    # ->         double sum_1_acc = 0;
    # ->         for (long i1 = 0; i1 < 100; i1++) {
    # ->             const float x0 = in0[i0 * 100 + i1];
    # ->             const float exp2_0 = exp2f(x0);
    # ->             exp2_0_row[i1] = exp2_0;
    # ->             sum_1_acc += exp2_0;
    # ->         }
    # ->         const float sum_1 = (float)sum_1_acc;
    # ->         for (long i1 = 0; i1 < 100; i1++) {
    # ->             const float exp2_0 = exp2_0_row[i1];
    # ->             const float divide_2 = exp2_0 / sum_1;
    # ->             out0[i0 * 100 + i1] = divide_2;
    # ->         }
    # ->     }
    # -> }
    print(np.allclose(got, 2**a / (2**a).sum(1, keepdims=True)))  # -> True

    # What has been written anyway is read back from there.
    def softmax_and_power(xp, x):
        power = xp.exp2(x)
        return power / power.sum(1, keepdims=True), power

    functions, got, _ = run(softmax_and_power, a)
    print("\n".join(line.strip() for line in functions.splitlines() if "exp2_0 =" in line))
    # -> const float exp2_0 = exp2f(x0);
    # -> const float exp2_0 = out0[i0 * 100 + i1];
    print(np.allclose(got, 2**a / (2**a).sum(1, keepdims=True)))  # -> True
