"""Step ccode13: Vectors: several elements at once

A processor core has instructions that add 8 or 16 floats at once. Such a group of numbers is called
a vector, and the technique SIMD: single instruction, multiple data. The compiler uses them by
itself only where it can prove that the result stays the same. For a sum it does not: eight partial
sums round differently from one. A pragma permits it:

    #pragma omp simd reduction(+ : sum_0_acc)     an accumulator for each place of the vector
    for (long i1 = 0; i1 < 500; i1++) {           elements 0 to 7, 8 to 15, ...

It stands in front of the innermost loop, beside `parallel for` if that is the same loop. A last
loop of 3 iterations would fill a vector only in part. It is unrolled (written out three times), and
the loop around it is vectorized. The compiler unrolls the loops over vectors, too: with two vectors
in an iteration, GELU of a million numbers takes 0.83 of the time, since each operation of one has
to wait for the operation before it, and the other can be computed meanwhile.

The trap: -mprefer-vector-width=512 asks for 16 floats; without it, GCC takes 8 even where the
processor has more. Other machines do not know the flag, so it is only for x86.

(PyTorch: at::vec::Vectorized, a class for a vector with the operators + and *.)

New: X86, CFunction.unrolled. Changed: FLAGS, CFunction.over_columns, .open_row.
Try: take "simd" out of open_row, and measure the sum of a million numbers with and without it.
"""

import itertools
import math
import platform
import re
from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.expressions import C_TYPES, DIVISIONS, cast, expression, literal
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel, Load
from tinytorch.compiler.operations import ACCUMULATORS

X86 = platform.machine() in ("x86_64", "AMD64")
# What the generated code is compiled with. Not -ffast-math: nan and infinity must stay what they
# are, and a result must be rounded as NumPy rounds it (so no fused multiplications and additions).
# That nothing listens to the processor's floating-point exceptions is needed for loops with `?`.
# Each loop is unrolled once: the processor overlaps two long chains of operations better than one.
FLAGS = (
    "-O3 -march=native -fopenmp -fopenmp-simd -ffp-contract=off -fno-math-errno -fno-trapping-math "
    "-fwrapv -funroll-loops --param=max-unroll-times=2" + " -mprefer-vector-width=512" * X86
).split()
LIBRARIES = ["-lm"]
# Loops over fewer elements than these (times their cost) are not worth a second thread.
WORTH_THREADS = 32768
BLOCK = 256  # columns that are reduced side by side


HEAD = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
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
# exp of float32: 2 to the power of a whole number, times a polynomial in the rest. It is right to
# 1e-7. The library's expf takes ten times as long where the result is 0, as it is behind a mask.
EXP = """\
static inline float power_of_two(int32_t n) {
    const int32_t bits = (n + 127) << 23;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}
static inline float exp_float(float x) {
    const float inside = x > 89.0f ? 89.0f : x < -104.0f ? 0.0f : x;
    const float n = plus_times(12582912.0f, inside, 1.442695f) - 12582912.0f;  // rounded
    const float r = plus_times(plus_times(inside, n, -0.693359375f), n, 2.1219444e-4f);
    float p = plus_times(0.008363187f, r, 0.0013933661f);
    p = plus_times(0.041666463f, r, p);
    p = plus_times(0.16666576f, r, p);
    p = plus_times(0.5f, r, p);
    p = plus_times(1.0f, r, p);
    p = plus_times(1.0f, r, p);
    const int32_t k = (int32_t)n, half = k >> 1;
    return x < -104.0f ? 0.0f : p * power_of_two(half) * power_of_two(k - half);
}
static inline double exp_double(double x) { return exp(x); }
"""
OWN = {"erf": ERF, "exp": EXP}


def c_source(kernels: Sequence[Kernel]) -> str:
    """One file with a function `void NAME(inputs, outputs, int threads)` for each kernel.

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
        self.in_blocks = kernel.columns  # what is of a row is an array with a place for each column
        self.arrays = {node: f"in{i}" for i, node in enumerate(kernel.inputs)}
        self.arrays |= {node: f"out{i}" for i, node in enumerate(kernel.outputs)}
        self.names = {node: f"{node.op}_{i}" for i, node in enumerate(kernel.nodes)}
        self.counters = [f"i{i}" for i in range(len(kernel.sizes))]
        self.loads: dict[Load, str] = {}
        self.here: Container[Node] = ()  # the nodes that the present loop computes
        self.fresh = itertools.count()  # numbers for names: those of two loops may meet in a row
        self.reductions = [n for n in kernel.nodes if n.op in ACCUMULATORS]
        self.later = self.needed_later()
        self.last = max(kernel.passes.values(), default=0)
        self.width = min(BLOCK, kernel.sizes[-1]) if kernel.columns else 1
        inner = kernel.sizes[kernel.outer : len(kernel.sizes) - kernel.columns]
        self.count = math.prod(inner)
        work = math.prod(kernel.sizes) * (1 + len(kernel.nodes) // 8)
        self.threads = work >= WORTH_THREADS

    def parameters(self) -> list[str]:
        given = [f"const {self.c_type(x)} *restrict {self.arrays[x]}" for x in self.kernel.inputs]
        given += [f"{self.c_type(x)} *restrict {self.arrays[x]}" for x in self.kernel.outputs]
        return [*given, "int threads"]

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
        blocks = kernel.columns and kernel.sizes[-1] > self.width
        depth = self.depth
        parallel = self.threads and (kernel.outer > 0 or blocks)
        if parallel:
            deep = min(2, kernel.outer + blocks) if kernel.sizes[0] < 16 else 1
            together = f" collapse({deep})" * (deep > 1)
            self.write(f"#pragma omp parallel for{together} num_threads(threads) if(threads > 1)")
        for i in range(kernel.outer):
            self.loop(i)
        if blocks:
            size, width = kernel.sizes[-1], self.width
            self.open(f"for (long first = 0; first < {size}; first += {width})")
            self.write(f"const long width = {size} - first < {width} ? {size} - first : {width};")
            self.counters[-1] = "(first + j)"
        elif kernel.columns:
            self.counters[-1] = "j"
        for node in kernel.nodes:
            if node in self.kept:
                self.write(f"{self.c_type(node)} {self.names[node]}_row[{self.count}];")
        self.write_outer(0)
        for number in range(self.last + 1):
            self.write_pass(number, alone=not parallel)
        self.close(self.depth - depth)

    def over_columns(self) -> None:
        """With columns, opens the loop over those of a block."""
        if self.in_blocks:
            width = "width" if self.counters[-1] != "j" else str(self.width)
            self.write("#pragma omp simd")
            self.open(f"for (long j = 0; j < {width}; j++)")

    def write_outer(self, number: int) -> None:
        """What is computed once for a row before pass `number`."""
        kernel = self.kernel
        nodes = [n for n in kernel.nodes if n not in kernel.full and kernel.passes[n] == number]
        if not nodes:
            return
        if self.in_blocks:
            for node in nodes:
                if node in self.later:
                    self.write(f"{self.c_type(node)} {self.names[node]}_of[{self.width}];")
        self.over_columns()
        self.loads, self.here = {}, nodes
        for node in nodes:
            if node in self.reductions:
                self.define(node, self.reduced(node))
            else:
                self.statement(node)
            if self.in_blocks and node in self.later:
                self.write(f"{self.names[node]}_of[j] = {self.names[node]};")
            self.store(node)
        if self.in_blocks:
            self.close()

    def needed_later(self) -> set[Node]:
        """The values of a row that are used outside of the loop that computes them."""
        kernel, found = self.kernel, set()
        for node in kernel.nodes:
            for x in kernel.operands[node]:
                if x in kernel.full or not isinstance(x, Node):
                    continue
                if node in kernel.full or kernel.passes[x] < kernel.passes[node]:
                    found.add(x)
        return found

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
        return f"{self.names[node]}_acc" + "[j]" * self.in_blocks

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

    def write_pass(self, number: int, alone: bool) -> None:
        """One round over the elements of a row.

        Args:
            alone: no loop outside of it runs on several threads.
        """
        kernel = self.kernel
        closing = [n for n in self.reductions if kernel.passes[n] == number + 1]
        roots = {x for node in closing for x in kernel.operands[node] if isinstance(x, Node)}
        made = [n for n in kernel.full if kernel.passes[n] == number]
        roots |= {n for n in made if n in self.arrays or n in self.kept}
        needed = self.needed(roots, number)
        if not roots and not closing:
            return self.write_outer(number + 1)
        clauses = []
        for node in closing:
            clauses += self.write_start(node)
        depth = self.depth
        self.open_row(clauses, alone)
        self.loads, self.here = {}, needed
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

    def open_row(self, clauses: list[str], alone: bool) -> None:
        """The loops over the elements of a row."""
        kernel = self.kernel
        loops = range(kernel.outer, len(kernel.sizes))
        alone = alone and self.threads and not kernel.columns
        simd = loops.stop - 1 - self.unrolled(loops)
        for i in loops:
            first, last = i == loops[0] and alone, i == simd
            if i > simd:
                self.write(f"#pragma GCC unroll {kernel.sizes[i]}")
            pragma = "omp" + " parallel for" * first + " simd" * last
            if pragma != "omp":
                threads = " num_threads(threads) if(parallel: threads > 1)" if first else ""
                self.write(f"#pragma {pragma}{threads}{''.join(clauses)}")
            if last and kernel.columns:
                self.lines.pop()
                self.over_columns()
            else:
                self.loop(i)

    def unrolled(self, loops: range) -> bool:
        """Whether the last loop is so short that it is better written out in the one around it."""
        return len(loops) > 1 and not self.kernel.columns and self.kernel.sizes[-1] <= 4

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

    def write_start(self, node: Node) -> list[str]:
        """Declares the accumulator of a reduction. Returns OpenMP's clauses for it."""
        kind, name = self.type_of_accumulator(node), f"{self.names[node]}_acc"
        variables = [(kind, name, self.start(node), ACCUMULATORS[node.op].sign)]
        if self.loses_nan(node):
            variables.append(("int", name.replace("_acc", "_nan"), "0", "|"))
        for kind, name, start, _ in variables:
            if self.in_blocks:
                self.write(f"{kind} {name}[{self.width}];")
                self.write(f"for (long j = 0; j < {self.width}; j++) {name}[j] = {start};")
            else:
                self.write(f"{kind} {name} = {start};")
        return [f" reduction({sign} : {name})" for _, name, _, sign in variables]

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
        if not isinstance(x, Node):
            return None
        if self.in_blocks and x not in self.here:  # of an earlier loop over the columns
            return f"{self.names[x]}_of[j]"
        return self.names[x]

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

    def run(function, *arrays, threads=1):
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
            library[kernel.name](*(ctypes.c_void_p(x.ctypes.data) for x in order), threads)
        return functions, *[values[node] for node in graph.outputs]

    def pragmas(functions):
        """The loops, and what is said to the compiler; in short."""
        functions = functions.replace("num_threads(threads) if(parallel: threads > 1)", "...")
        functions = functions.replace("num_threads(threads) if(threads > 1)", "...")
        return "\n".join(x.strip() for x in functions.splitlines() if "#" in x or "for (" in x)

    # A long chain: each thread takes a part of the loop, and in it vectors.
    rng = np.random.default_rng(0)
    a = rng.normal(size=100_000).astype(np.float32)
    functions, got = run(lambda xp, x: x * 3, a, threads=2)
    print(functions)
    # -> void k0(const float *restrict in0, float *restrict out0, int threads) {
    # ->     #pragma omp parallel for simd num_threads(threads) if(parallel: threads > 1)
    # ->     for (long i0 = 0; i0 < 100000; i0++) {
    # ->         const float x0 = in0[i0];
    # ->         const float multiply_0 = x0 * 3.0f;
    # ->         out0[i0] = multiply_0;
    # ->     }
    # -> }
    print((got == a * 3).all())  # -> True

    # The sum of everything: each place of each thread's vector has an accumulator.
    functions, *got = run(lambda xp, x: (x.sum(), x.max()), a, threads=2)
    print(pragmas(functions))
    # -> #pragma omp parallel for simd ... reduction(+ : sum_0_acc)
    # -> for (long i0 = 0; i0 < 100000; i0++) {
    # -> #pragma omp parallel for simd ... reduction(max : max_0_acc) reduction(| : max_0_nan)
    # -> for (long i0 = 0; i0 < 100000; i0++) {
    print(np.allclose(got, [a.sum(dtype=float), a.max()]))  # -> True

    # Rows: the threads divide the outer loop, the vectors the inner ones.
    a = a.reshape(4, 50, 500)
    functions, got = run(lambda xp, x: x - x.sum(2, keepdims=True), a, threads=2)
    print(pragmas(functions))
    # -> #pragma omp parallel for ...
    # -> for (long i0 = 0; i0 < 200; i0++) {
    # -> #pragma omp simd reduction(+ : sum_0_acc)
    # -> for (long i1 = 0; i1 < 500; i1++) {
    # -> #pragma omp simd
    # -> for (long i1 = 0; i1 < 500; i1++) {
    print(np.allclose(got, a - a.sum(2, keepdims=True), atol=1e-4))  # -> True
    # Columns: a vector is a piece of a row.
    functions, got = run(lambda xp, x: x.sum(0), a.reshape(200, 500), threads=2)
    print(pragmas(functions))
    # -> #pragma omp parallel for ...
    # -> for (long first = 0; first < 500; first += 256) {
    # -> for (long j = 0; j < 256; j++) sum_0_acc[j] = 0;
    # -> for (long i0 = 0; i0 < 200; i0++) {
    # -> #pragma omp simd
    # -> for (long j = 0; j < width; j++) {
    # -> #pragma omp simd
    # -> for (long j = 0; j < width; j++) {
    print(np.allclose(got, a.reshape(200, 500).sum(0), atol=1e-4))  # -> True

    # A last loop of three rounds is written out: the one around it has the vectors.
    a = a.ravel()[:99_000].reshape(33_000, 3)
    functions, got = run(lambda xp, x, y: x + y, a, a[:, :1].copy(), threads=2)
    print(pragmas(functions))
    # -> #pragma omp parallel for simd ...
    # -> for (long i0 = 0; i0 < 33000; i0++) {
    # -> #pragma GCC unroll 3
    # -> for (long i1 = 0; i1 < 3; i1++) {
    print((got == a + a[:, :1]).all())  # -> True
