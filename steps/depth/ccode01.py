"""Step ccode01: A kernel is a C function

Steps expressions01 to fuse13 give the C expression of each operation, and a Kernel with its nodes
and the arrays that it reads and writes. No compiler accepts that yet. What is missing is the
function around the expressions:

    void k0(const float *restrict in0, float *restrict out0) {      parameters: inputs, outputs
        for (long i0 = 0; i0 < 1000; i0++) {                        the loop
            const float add_0 = in0[i0] + 1.0f;                     a statement for each node
            out0[i0] = add_0;                                       a store for each output
        }
    }

Each node becomes a constant with a name of its own, "operation_number". This costs nothing: the
compiler keeps most of them in registers. The names help the reader, and so does the comment above
the function, which lists the lines of the program that the loop comes from.

The trap: `restrict` promises that no two arrays overlap. Without it, C must assume that a write to
out0 changes in0, and may not read several numbers ahead. But C does not check the promise: a call
with out0 = in0 + 1 may compute anything. So the outputs always get memory of their own.

(PyTorch's compiler writes such loops in C++; TORCH_LOGS=output_code prints them.)

Here all arrays are contiguous, and a kernel has one loop. Step ccode02 lifts these limits.

New: HEAD, c_source, comment_of, CFunction.
Try: name the variables by the operation alone, compile x + 1 + 2, and print the error that
the demo catches.
"""

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


class CFunction:
    """Writes the C function of one kernel."""

    def __init__(self, kernel: Kernel):
        self.kernel, self.lines, self.depth = kernel, [], 1
        self.arrays = {node: f"in{i}" for i, node in enumerate(kernel.inputs)}
        self.arrays |= {node: f"out{i}" for i, node in enumerate(kernel.outputs)}
        self.names = {node: f"{node.op}_{i}" for i, node in enumerate(kernel.nodes)}

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

    def close(self) -> None:
        self.depth -= 1
        self.write("}")

    def write_rows(self) -> None:
        """The loop, and in it what is computed for an element."""
        self.open(f"for (long i0 = 0; i0 < {self.kernel.sizes[0]}; i0++)")
        for node in self.kernel.nodes:
            self.statement(node)
            self.store(node)
        self.close()

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
            self.write(f"{self.arrays[node]}[i0] = {self.names[node]};")

    def value(self, x: Any) -> str | None:
        """The variable with an operand's value; None for a number."""
        if isinstance(x, Load):
            return f"{self.arrays[x.base]}[i0]"
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

    # relu(x * 2 + y). The operations know what the program called, and in which line.
    def f(xp, x, y):
        return xp.maximum(x * 2 + y, 0)

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 1000)).astype(np.float32)
    graph = graph_of(f, a, b)
    for node, text in zip(graph.nodes[1:], ("add model.py:7", "relu model.py:8"), strict=True):
        node.made_by, node.line = text.split()
    print(c_source(fuse(graph)))
    # -> #include <math.h>
    # -> #include <stdbool.h>
    # -> #include <stdint.h>
    # -> // add, model.py:7
    # -> // relu, model.py:8
    # -> void k0(const float *restrict in0, const float *restrict in1, float *restrict out0) {
    # ->     for (long i0 = 0; i0 < 1000; i0++) {
    # ->         const float multiply_0 = in0[i0] * 2.0f;
    # ->         const float add_1 = multiply_0 + in1[i0];
    # ->         const float maximum_2 = (add_1 <= 0.0f) | (0.0f != 0.0f) ? 0.0f : add_1;
    # ->         out0[i0] = maximum_2;
    # ->     }
    # -> }

    # Compiled, it gives what NumPy gives, to the last bit.
    _, got = run(f, a, b)
    print((got == np.maximum(a * 2 + b, 0)).all())  # -> True

    # Values that something else needs, too, are written by the same loop.
    def both(xp, x):
        square = xp.square(x)
        return square, xp.sqrt(square + 1)

    functions, one, two = run(both, a)
    print(functions)
    # -> void k0(const float *restrict in0, float *restrict out0, float *restrict out1) {
    # ->     for (long i0 = 0; i0 < 1000; i0++) {
    # ->         const float square_0 = in0[i0] * in0[i0];
    # ->         out0[i0] = square_0;
    # ->         const float add_1 = square_0 + 1.0f;
    # ->         const float sqrt_2 = sqrtf(add_1);
    # ->         out1[i0] = sqrt_2;
    # ->     }
    # -> }
    print((one == a * a).all() and (two == np.sqrt(a * a + 1)).all())  # -> True

    # A long chain: the comment ends after twelve lines.
    graph = graph_of(lambda xp, x: sum((x for _ in range(20)), x), a)
    for number, node in enumerate(graph.nodes):
        node.made_by, node.line = "add", f"model.py:{number}"
    (kernel,) = fuse(graph)
    print(comment_of(kernel).splitlines()[-2:])  # -> ['// add, model.py:11', '// and 8 more']
