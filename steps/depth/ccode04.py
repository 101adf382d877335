"""Step ccode04: Reductions in C: an accumulator

Fusion puts the norm of a row, sqrt(sum(x * x)), into one kernel (step fuse06). Step ccode03 treats
each node as a value of one element and asks for the C expression of a sum: AttributeError. This
kernel has two kinds of values, one for each element and one for each row:

    for (long i0 = 0; i0 < 3; i0++) {                     the outer loop: rows
        ...                                               values of the row, before the inner loop
        double sum_1_acc = 0;
        for (long i1 = 0; i1 < 100; i1++) {               the elements of the row
            const float square_0 = x0 * x0;
            sum_1_acc += square_0;
        }
        const float sum_1 = (float)sum_1_acc;             values of the row, after the inner loop
        const float sqrt_2 = sqrtf(sum_1);
        out0[i0] = sqrt_2;
    }

A reduction is written in three places: its accumulator starts before the loop, takes up a value in
each iteration, and gives the result after the loop. The number to start from and the statement in
the loop are in the table of step operations01. The squares never go to memory.

The accumulator of floats is a double. A float has 24 bits, so once the sum is large, most bits of a
small number are lost. (NumPy adds in pairs, and pairs of pairs, for the same reason.)

The trap: NumPy's sum of int32 is int64. Each element is converted before it is added; to convert
the finished sum would be too late.

(PyTorch's compiler writes the same three pieces, with an accumulator named tmp_acc0.)

New: CFunction.write_outer, .reduced, .accumulator, .type_of_accumulator,
.write_pass, .open_row, .write_start, .dtype_of. Changed: CFunction.__init__, .write_rows.
Try: let type_of_accumulator return "float". What does the demo's last line print?
"""

import itertools
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
        self.arrays = {node: f"in{i}" for i, node in enumerate(kernel.inputs)}
        self.arrays |= {node: f"out{i}" for i, node in enumerate(kernel.outputs)}
        self.names = {node: f"{node.op}_{i}" for i, node in enumerate(kernel.nodes)}
        self.counters = [f"i{i}" for i in range(len(kernel.sizes))]
        self.loads: dict[Load, str] = {}
        self.fresh = itertools.count()  # numbers for names: those of two loops may meet in a row
        self.reductions = [n for n in kernel.nodes if n.op in ACCUMULATORS]

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
        """The outer loops, and in them the one over a row."""
        kernel = self.kernel
        depth = self.depth
        for i in range(kernel.outer):
            self.loop(i)
        self.write_outer(0)
        self.write_pass()
        self.write_outer(1)
        self.close(self.depth - depth)

    def write_outer(self, number: int) -> None:
        """What is computed once for a row, before its loop (0) or after it (1)."""
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

    # The loop over a row.

    def write_pass(self) -> None:
        """One round over the elements of a row."""
        kernel = self.kernel
        for node in self.reductions:
            self.write_start(node)
        depth = self.depth
        self.open_row()
        self.loads = {}
        for node in kernel.nodes:
            if node in kernel.full:
                self.statement(node)
                self.store(node)
        for node in self.reductions:
            (x,) = kernel.operands[node]
            value = cast(self.value(x), self.dtype_of(x), node.dtype)
            acc = self.accumulator(node)
            self.write(ACCUMULATORS[node.op].update(acc, value))
        self.close(self.depth - depth)

    def open_row(self) -> None:
        """The loops over the elements of a row."""
        for i in range(self.kernel.outer, len(self.kernel.sizes)):
            self.loop(i)

    def write_start(self, node: Node) -> None:
        """Declares the accumulator of a reduction."""
        kind, name = self.type_of_accumulator(node), f"{self.names[node]}_acc"
        self.write(f"{kind} {name} = {ACCUMULATORS[node.op].start};")

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

    # The norm of each row: in front of the loop, in it, and behind it.
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 100)).astype(np.float32), np.full((3, 1), 2, np.float32)

    def norm(xp, x, scale):
        return xp.sqrt(xp.square(x * xp.sqrt(scale)).sum(1, keepdims=True))

    functions, got = run(norm, a, b)
    print(lines(functions))
    # ->     for (long i0 = 0; i0 < 3; i0++) {
    # ->         const float x0 = in0[i0];
    # ->         const float sqrt_0 = sqrtf(x0);
    # ->         double sum_3_acc = 0;
    # ->         for (long i1 = 0; i1 < 100; i1++) {
    # ->             const float x1 = in1[i0 * 100 + i1];
    # ->             const float multiply_1 = x1 * sqrt_0;
    # ->             const float square_2 = multiply_1 * multiply_1;
    # ->             sum_3_acc += square_2;
    # ->         }
    # ->         const float sum_3 = (float)sum_3_acc;
    # ->         const float sqrt_4 = sqrtf(sum_3);
    # ->         out0[i0] = sqrt_4;
    # ->     }
    # -> }
    print(np.allclose(got, np.sqrt((a * a * 2).sum(1, keepdims=True))))  # -> True

    # The sum of everything has no outer loop. What is summed may be written, too.
    def total(xp, x):
        product = x * x
        return product.sum(), product

    functions, got, _ = run(total, a)
    print(lines(functions))
    # ->     double sum_1_acc = 0;
    # ->     for (long i0 = 0; i0 < 300; i0++) {
    # ->         const float x0 = in0[i0];
    # ->         const float multiply_0 = x0 * x0;
    # ->         out0[i0] = multiply_0;
    # ->         sum_1_acc += multiply_0;
    # ->     }
    # ->     const float sum_1 = (float)sum_1_acc;
    # ->     out1[0] = sum_1;
    # -> }
    print(np.allclose(got, (a * a).sum()))  # -> True

    # int32 becomes int64 before it is added: in int32 this sum would be -2.
    whole = np.full((1, 2), 2**31 - 1, np.int32)
    functions, got = run(lambda xp, x: x.sum(1), whole)
    print([line.strip() for line in functions.splitlines() if "+=" in line], got)
    # -> ['sum_0_acc += (int64_t)x0;'] [4294967294]

    # Why double: a million times 0.1, added one after the other.
    tenths = np.full(1_000_000, 0.1, np.float32)
    _, got = run(lambda xp, x: x.sum(), tenths)
    print(f"{np.cumsum(tenths)[-1]:.0f} in float32, {got:.0f} here")
    # -> 100958 in float32, 100000 here
