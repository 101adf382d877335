"""Step ccode07: erf of our own: a polynomial

GELU calls erf for each element, and its file does not compile: the table of step expressions07
writes erf_float, a function that nothing defines. It could be the library's erff. A polynomial
takes less than half of its time, and the compiler can compute it for several numbers at once (step
ccode13):

    erf(x) = x * p(x * x) for |x| < 3.7, and 1 or -1 beyond

erf is an odd function, so p needs only even powers. u is x * x, moved to the range -1 ... 1, where
the coefficients of a polynomial are small and rounding does little harm. Skip the coefficients:
they are the result of a fit. `plus_times` is c + a * b, rounded once where the processor can do
that (FMA).

ERF is a text in front of the kernels that use it, as // and % are (step ccode03). OWN says which
text belongs to which function.

The trap: the usual way to evaluate a polynomial, (c u + b) u + a, is a chain in which each product
waits for the one before. Pairs of terms do not depend on each other, so the processor can compute
them side by side.

(PyTorch: at::vec::Vectorized, which calls the library Sleef.)

New: PLUS_TIMES, ERF, OWN. Changed: helpers.
Try: print the C of the GELU in the demo. How many lines has its loop?
"""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.expressions import C_TYPES, DIVISIONS, cast, expression, literal
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
PLUS_TIMES = """\
static inline float plus_times(float c, float a, float b) {
#ifdef __FMA__
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}"""
# erf of float32: x times a polynomial in u, which is x * x moved to -1 .. 1. It is right to 3e-7,
# and takes less than half of the time of the library's erff. Pairs of terms are added first, so
# that the processor can compute them side by side.
ERF = """\
static inline float erf_float(float x) {
    const float u = plus_times(-1.0f, x * x, 0.14609204f), u2 = u * u, u4 = u2 * u2;
    const float p0 = plus_times(0.38213748f, u, -0.19046828f);
    const float p2 = plus_times(0.14079544f, u, -0.1126281f);
    const float p4 = plus_times(0.09052162f, u, -0.07059386f);
    const float p6 = plus_times(0.052147515f, u, -0.0356011f);
    const float p8 = plus_times(0.023075499f, u, -0.015250478f);
    const float p10 = plus_times(0.008480485f, u, -0.0026881646f);
    const float p12 = plus_times(0.0013982587f, u, -0.0018244681f);
    const float high = plus_times(plus_times(p8, u2, p10), u4, plus_times(p12, u2, 0.0007684008f));
    const float low = plus_times(plus_times(p0, u2, p2), u4, plus_times(p4, u2, p6));
    const float y = x * plus_times(low, u4 * u4, high);
    return x > 3.7f ? 1.0f : x < -3.7f ? -1.0f : y;
}
static inline double erf_double(double x) { return erf(x); }
"""
OWN = {"erf": ERF}


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
    """The functions that the kernels call and C does not have: erf, and // and % of some types."""
    texts = {name: text for name, text in OWN.items() if re.search(rf"\b{name}_\w+\(", body)}
    yield from [PLUS_TIMES, *texts.values()] if texts else []
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
        value = f"{acc} / {self.count}" if node.op == "mean" else acc
        if self.loses_nan(node):
            nan = acc.replace("_acc", "_nan")
            return f"{nan} ? NAN : {value}"
        if self.type_of_accumulator(node) == self.c_type(node):
            return value
        return f"({self.c_type(node)})({value})"

    def accumulator(self, node: Node) -> str:
        return f"{self.names[node]}_acc"

    def type_of_accumulator(self, node: Node) -> str:
        reduction = ACCUMULATORS[node.op]
        if reduction.of_truth:
            return "int"
        in_double = reduction.in_double and node.dtype.kind == "f"
        return "double" if in_double else self.c_type(node)

    def loses_nan(self, node: Node) -> bool:
        """Whether the accumulator passes over nan: no comparison with it is true."""
        return ACCUMULATORS[node.op].compare != "" and node.dtype.kind == "f"

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
            kind = np.dtype(bool) if ACCUMULATORS[node.op].of_truth else node.dtype
            value = cast(self.value(x), self.dtype_of(x), kind)
            acc = self.accumulator(node)
            self.write(ACCUMULATORS[node.op].update(acc, value))
            if self.loses_nan(node):
                self.write(f"{acc.replace('_acc', '_nan')} |= {value} != {value};")
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
        variables = [(kind, name, self.start(node))]
        if self.loses_nan(node):
            variables.append(("int", name.replace("_acc", "_nan"), "0"))
        for kind, name, start in variables:
            self.write(f"{kind} {name} = {start};")

    def start(self, node: Node) -> str:
        reduction = ACCUMULATORS[node.op]
        if reduction.start is not None:
            return str(reduction.start)
        lowest = -math.inf if reduction.compare == ">" else math.inf
        if node.dtype.kind in "iu":
            limits = np.iinfo(node.dtype)
            lowest = limits.min if reduction.compare == ">" else limits.max
        return literal(lowest > 0 if node.dtype.kind == "b" else lowest, node.dtype)

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
    from tinytorch.compiler.tracer import Tracer, traced, tracing_device
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

    erf = math.erf

    # How far it is from the result in float64; and the special values.
    numbers = np.linspace(-4, 4, 20_001, dtype=np.float32)
    _, got = run(lambda xp, x: traced("erf", (x,)), numbers)
    print((abs(got - [erf(x) for x in numbers]) < 4e-7).all())  # -> True
    numbers[:4] = np.nan, -np.inf, np.inf, -1000
    _, got = run(lambda xp, x: traced("erf", (x,)), numbers)
    print(got[:4])  # -> [nan -1.  1. -1.]

    # A GELU: the file gets the text of erf in front of the loop.
    functions, got = run(
        lambda xp, x: (traced("erf", (x * 0.70710678,)) + 1) * x * 0.5, numbers[4:]
    )
    want = [0.5 * x * (1 + erf(x / math.sqrt(2))) for x in numbers[4:].tolist()]
    print(np.allclose(got, want, atol=1e-5), "erf_float(" in functions)  # -> True True
    for body in ("erf_double(x)", "remainder_int64_t(x, y)", "x + y"):
        print(body, "needs", len([*helpers(body)]), "texts")
        # -> erf_double(x) needs 2 texts
        # -> remainder_int64_t(x, y) needs 1 texts
        # -> x + y needs 0 texts
