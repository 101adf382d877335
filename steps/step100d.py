"""Step 100d: A kernel is a C function

Steps 99a to 99r give the C expression of each operation, and a Kernel with its nodes and the arrays
that it reads and writes. No compiler accepts that yet. What is missing is the function around the
expressions:

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

Here all arrays are contiguous, and a kernel has one loop. Step 100e lifts these limits.

New: HEAD, c_source, comment_of, CFunction.
Try: name the variables by the operation alone, and compile x + 1 + 2.
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
    import shutil
    import subprocess
    import sys
    import tempfile
    from pathlib import Path

    import numpy as np

    from tinytorch.compiler.fuse import fuse
    from tinytorch.compiler.graph import Graph, map_nodes, perform

    nodes = []

    def given(*shape, dtype=np.float32):
        return Node("input", (), {}, shape, np.dtype(dtype))

    def op(name, *args, **kwargs):
        """One more node of the graph; its shape and type are those of a first try."""
        tried = map_nodes(lambda x: np.ones(x.shape, x.dtype), args)
        tried = np.asarray(perform(np, name, tried, kwargs))
        nodes.append(Node(name, args, kwargs, tried.shape, tried.dtype))
        return nodes[-1]

    def graph_of(inputs, outputs):
        """The graph of what op() has noted; the next one begins anew."""
        graph = Graph(inputs, nodes, outputs)
        nodes.clear()
        return graph

    def run(graph, *arrays):
        """The generated C, and what it computes. Without `cc`, what NumPy computes."""
        kernels = fuse(graph)
        source = c_source(kernels)
        functions = source[source.index("void k") :].rstrip()
        if shutil.which("cc") is None or sys.platform != "linux":
            return functions, graph.run(np, arrays)
        values = dict(zip(graph.inputs, arrays, strict=True))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "kernels.c")
            path.write_text(source)
            command = [
                "cc",
                "-shared",
                "-fPIC",
                path,
                "-o",
                path.with_suffix(".so"),
                "-O3",
                "-ffp-contract=off",
                "-lm",
            ]
            subprocess.run(command, check=True)
            library = ctypes.CDLL(str(path.with_suffix(".so")))
            for kernel in kernels:
                values |= {node: np.empty(node.shape, node.dtype) for node in kernel.outputs}
                order = [values[node] for node in (*kernel.inputs, *kernel.outputs)]
                library[kernel.name](*(ctypes.c_void_p(x.ctypes.data) for x in order))
        return functions, [values[node] for node in graph.outputs]

    # relu(x * 2 + y). The operations know what the program called, and in which line.
    x, y = given(1000), given(1000)
    total = op("add", op("multiply", x, 2), y)
    total.made_by, total.line = "add", "model.py:7"
    relu = op("maximum", total, 0)
    relu.made_by, relu.line = "relu", "model.py:8"
    graph = graph_of([x, y], [relu])
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
    # ->         const float maximum_2 = (add_1 > 0.0f) | (add_1 != add_1) ? add_1 : 0.0f;
    # ->         out0[i0] = maximum_2;
    # ->     }
    # -> }

    # Compiled, it gives what NumPy gives, to the last bit.
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 1000)).astype(np.float32)
    _, (got,) = run(graph, a, b)
    print((got == np.maximum(a * 2 + b, 0)).all())  # -> True

    # Values that something else needs, too, are written by the same loop.
    x = given(1000)
    square = op("square", x)
    functions, (one, two) = run(graph_of([x], [square, op("sqrt", op("add", square, 1))]), a)
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
    x = y = given(1000)
    for number in range(20):
        y = op("add", y, number)
        y.made_by, y.line = "add", f"model.py:{number}"
    (kernel,) = fuse(graph_of([x], [y]))
    print(comment_of(kernel).splitlines()[-2:])  # -> ['// add, model.py:11', '// and 8 more']
