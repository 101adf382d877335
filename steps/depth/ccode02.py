"""Step ccode02: Index expressions: the position of an element

(x + bias) * y.t() is one kernel, but step ccode01 writes a wrong loop for it: 3 iterations for 15
elements. The kernel has the information (step fuse08): for each array, how many elements further
each loop moves. C needs no more:

    x       5, 1    in0[i0 * 5 + i1]
    bias    0, 1    in1[i1]                 the same for each row
    y.t()   1, 3    in2[i0 + i1 * 3]        transposed, without a copy

These are strides (step 69a), written into a program. `index` writes the text between the
brackets, and `loop` writes a loop for each size of the kernel.

The trap: in a loop, in0[...] may stand in several lines. Each element is read once, into x0, x1,
...: CFunction.loads is a dictionary with Loads as keys, and equal Loads share a variable. Otherwise
C would have to find out that nothing has written to the array in between.

(PyTorch's compiler keeps index expressions as formulas of sympy, and simplifies them.)

New: index, CFunction.loop. Changed: CFunction.
Try: in `index`, remove the condition `if s`, so that strides of 0 are written, too. Are the results
the same?
"""

import itertools
from collections.abc import Sequence
from typing import Any

from tinytorch.compiler.expressions import C_TYPES, expression
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel, Load

HEAD = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
"""


def c_source(kernels: Sequence[Kernel]) -> str:
    """One file with a function `void NAME(inputs, outputs)` for each kernel."""
    functions = [f"{comment_of(k)}void {k.name}({CFunction(k).text()}" for k in kernels]
    return "\n".join([HEAD, *functions])


def comment_of(kernel: Kernel) -> str:
    lines = [f"// {text}\n" for text in kernel.made_by[:12]]
    more = len(kernel.made_by) - len(lines)
    return "".join([*lines, f"// and {more} more\n" * (more > 0)])


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
            library = build(source, "-O3 -ffp-contract=off -lm".split())
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

    # A bias is repeated for each row, and y is transposed: none of them is copied.
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=s).astype(np.float32) for s in ((3, 5), 5, (5, 3)))
    functions, got = run(lambda xp, x, bias, y: (x + bias) * y.T, a, b, c)
    print(lines(functions))
    # ->     for (long i0 = 0; i0 < 3; i0++) {
    # ->         for (long i1 = 0; i1 < 5; i1++) {
    # ->             const float x0 = in0[i0 * 5 + i1];
    # ->             const float x1 = in1[i1];
    # ->             const float add_0 = x0 + x1;
    # ->             const float x2 = in2[i0 + i1 * 3];
    # ->             const float multiply_1 = add_0 * x2;
    # ->             out0[i0 * 5 + i1] = multiply_1;
    # ->         }
    # ->     }
    # -> }
    print((got == (a + b) * c.T).all())  # -> True

    # The second half of each row begins at 3. The first two loops run on in all arrays: one loop.
    a = rng.normal(size=(4, 3, 6)).astype(np.float32)
    functions, got = run(lambda xp, x: x[..., 3:] * 2, a)
    print(lines(functions))
    # ->     for (long i0 = 0; i0 < 12; i0++) {
    # ->         for (long i1 = 0; i1 < 3; i1++) {
    # ->             const float x0 = in0[i0 * 6 + i1 + 3];
    # ->             const float multiply_0 = x0 * 2.0f;
    # ->             out0[i0 * 3 + i1] = multiply_0;
    # ->         }
    # ->     }
    # -> }
    print((got == a[..., 3:] * 2).all())  # -> True

    # An element that is used twice is read once. An array without dimensions has one: number 0.
    a, b = np.arange(6, dtype=np.float32), np.array(2, np.float32)
    functions, got = run(lambda xp, x, scale: xp.square(x) * (x + scale), a, b)
    print(lines(functions))
    # ->     for (long i0 = 0; i0 < 6; i0++) {
    # ->         const float x0 = in0[i0];
    # ->         const float square_0 = x0 * x0;
    # ->         const float x1 = in1[0];
    # ->         const float add_1 = x0 + x1;
    # ->         const float multiply_2 = square_0 * add_1;
    # ->         out0[i0] = multiply_2;
    # ->     }
    # -> }
    print(got)  # -> [  0.   3.  16.  45.  96. 175.]
