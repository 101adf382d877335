"""Step ccode03: One file for all kernels: shared functions and helpers

In step ccode02, the C of x % 3 does not compile: it calls remainder_int64_t, which C does not have.
And a network of twelve equal layers has twelve equal functions, each of which is compiled.

The compiler gets one file. `c_source` joins in it the functions of all kernels, and what they need:

    HEAD        #include lines
    helpers     functions that C does not have, such as Python's // and % (step expressions07)
    k0, k1 ...  the kernels; k1 is left out where its text equals that of k0

A network has many equal layers. The function's name is added last, so equal kernels have equal
texts. They share one function, and there is less to compile.

FLAGS are the compiler's options. -O3 -march=native allow it the fastest code for this processor.
The others keep the results of NumPy, or allow what they do not change. `helpers` is a search for
the names in the text of the kernels, so a file has only the helpers that it calls.

The trap: kernels must have equal texts, not only equal operations. Sizes and strides are numbers in
the text, so the last, shorter batch of a data set needs other functions.

(PyTorch's compiler also finds equal kernels by their text.)

New: FLAGS, LIBRARIES, c_file, helpers. Changed: c_source.
Try: in `layers`, let the second layer add bias * 2. How many functions does the file have then?
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tinytorch.compiler.expressions import C_TYPES, DIVISIONS, expression
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel, Load

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
        self.fresh = itertools.count()  # numbers for names

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

    def write_rows(self) -> None:
        """The loops, and in them what is computed for an element."""
        for i in range(len(self.kernel.sizes)):
            self.loop(i)
        for node in self.kernel.nodes:
            self.statement(node)
            self.store(node)
        self.close(self.depth - 1)

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

    # Python's % (step ccode02: an unknown function). C has another sign than Python: -1 % 3 is -1.
    a = np.arange(-3, 3)
    functions, got = run(lambda xp, x: x % 3, a)
    print([line.strip() for line in functions.splitlines() if "remainder_0 =" in line], got)
    # -> ['const int64_t remainder_0 = remainder_int64_t(x0, 3);'] [0 1 2 0 1 2]
    source = c_source(fuse(graph_of(lambda xp, x: x % 3, a)))
    print("static inline int64_t remainder_int64_t(" in source)  # -> True

    # Two layers: both kernels are the same function, so its text is there once.
    def layers(xp, x, bias, weight):
        return xp.maximum(xp.matmul(xp.maximum(x + bias, 0), weight) + bias, 0)

    schedule = fuse(graph_of(layers, *(np.ones(size, "f4") for size in ((4, 5), 5, (5, 5)))))
    source = c_source([kernel for kernel in schedule if isinstance(kernel, Kernel)])
    print([x.name if isinstance(x, Kernel) else x.op for x in schedule], source.count("void"))
    # -> ['k0', 'matmul', 'k0'] 1
