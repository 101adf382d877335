"""Step ccode06: The other reductions, and a maximum with nan

Step ccode04 has the sum. Most other reductions differ in two places: the line that combines, and
the number that the accumulator starts from. Both are in the table of step operations01:

    prod     acc *= x        from 1             mean    a sum, divided by the count at the end
    any      acc |= x        from 0             all     acc &= x, from 1; numbers != 0 first
    max      acc = x > acc ? x : acc            from the smallest number of the type

Only max and min need care. NumPy's max of a row with a nan is nan. But every comparison with nan is
false: with `x > acc`, a nan is never taken. And with `!(x <= acc)`, it is taken, and the next
number replaces it.

So a second accumulator records whether there was a nan, and the result is chosen at the end:

    float max_0_acc = -INFINITY;              max_0_acc = x > max_0_acc ? x : max_0_acc;
    int max_0_nan = 0;                        max_0_nan |= x != x;       nan alone is not itself
    const float max_0 = max_0_nan ? NAN : max_0_acc;

The accumulator of any and all is an int, and that of max has the type of its numbers: only what
adds or multiplies gains from a double (in_double).

The trap: -INFINITY is smaller than all floats, but an int64 has no infinity. `start` takes the
smallest number of the type.

(PyTorch's max has a mask for nan in its vectors, at::vec.)

New: CFunction.start, .loses_nan. Changed: CFunction.reduced, .type_of_accumulator, .write_pass,
.write_start.
Try: remove the line with `|=` and `!=` from write_pass. Which value of the demo's check is wrong?
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

    # All reductions, of floats with a nan, of integers, of a mask: values and types are NumPy's.
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 100)).astype(np.float32)
    a[1, 7] = np.nan
    whole, mask = rng.integers(-9, 9, (3, 100)), rng.normal(size=(3, 100)) > 2.5

    def reductions(xp, x, y, z):
        names = [*ACCUMULATORS]
        of_bools = ("max", "min", "any", "all", "sum")
        pairs = [(x, name) for name in names] + [(y, name) for name in names]
        pairs += [(z, name) for name in of_bools]
        return tuple(getattr(array, name)(1) for array, name in pairs)

    with np.errstate(all="ignore"):
        _, *got = run(reductions, a, whole, mask)
        want = reductions(np, a, whole, mask)
    for one, two in zip(got, want, strict=True):
        assert one.dtype == two.dtype and np.allclose(one, two, equal_nan=True), (one, two)
    print(len(got), "reductions as in NumPy; the largest of each row:", got[3])
    # -> 19 reductions as in NumPy; the largest of each row: [2.0023925       nan 3.0660367]

    # The maximum has two accumulators: one for the number, one says whether there was a nan.
    functions, _ = run(lambda xp, x: x.max(1), a)
    print(functions)
    # -> void k0(const float *restrict in0, float *restrict out0) {
    # ->     for (long i0 = 0; i0 < 3; i0++) {
    # ->         float max_0_acc = (-INFINITY);
    # ->         int max_0_nan = 0;
    # ->         for (long i1 = 0; i1 < 100; i1++) {
    # ->             const float x0 = in0[i0 * 100 + i1];
    # ->             max_0_acc = x0 > max_0_acc ? x0 : max_0_acc;
    # ->             max_0_nan |= x0 != x0;
    # ->         }
    # ->         const float max_0 = max_0_nan ? NAN : max_0_acc;
    # ->         out0[i0] = max_0;
    # ->     }
    # -> }
