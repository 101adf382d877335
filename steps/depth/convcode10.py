"""Step convcode10: A product of matrices in C: strides in place of copies

Most of a network's time is spent in products of matrices, and the compiler leaves them to the array
library, which calls BLAS (step dataset01). BLAS takes matrices whose rows or columns are contiguous
in memory. In attention, queries and keys are parts of one array, with the heads in between: NumPy
copies them before it multiplies, as it does with other such views.

A function that is written for one product can read any view. An element of a view is found by its
offset and strides (step 69a), and these are constants:

    x[row, term]  is  in0[offset + row * ROW + term * ROW_TERM]

A transposed matrix has its two strides exchanged. Many pairs of matrices ([12, 4, 64, 32] by
[12, 4, 32, 64]) are loops around the product; a matrix that is repeated has a stride of 0 there.
`load_of` gets offset and strides from the layout that fusion uses (step fuse04).

This first form is right, but many times slower than BLAS (0.7 ms against 0.02 in the demo), for the
reasons of step convcode01.

(PyTorch's Inductor writes such products in C++, too: its GEMM templates.)

New: MULTIPLY, ProductKernel, load_of, arranged.
Try: run(kernel, np.asfortranarray(x), w.T) for the first kernel. What does it read, and is there an
error?
"""

import itertools
import math

from tinytorch.compiler.c_code import index
from tinytorch.compiler.expressions import C_TYPES
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel, Load
from tinytorch.compiler.layout import Layouts

LOOP = "        for (long n{0} = 0; n{0} < {1}; n{0}++)\n"
MULTIPLY = """\
    #pragma omp parallel for collapse(NESTED) num_threads(threads) if(threads > 1)
BATCHES
        for (long i = 0; i < ROWS; i++) {
            const number *rows = ROW_MATRIX + i * ROW;
            number *result = RESULT + i * OUT_ROW;
            for (long j = 0; j < COLUMNS; j++) {
                const number *columns = COLUMN_MATRIX + j * COLUMN;
                number sum = 0;
                for (long k = 0; k < TERMS; k++)
                    sum += rows[k * ROW_TERM] * columns[k * COLUMN_TERM];
                result[j * OUT_COLUMN] = sum;
            }
        }
}
"""


class ProductKernel(Kernel):
    """A product of matrices, or of many pairs of matrices, as a function in C.

    Attributes:
        rows, columns: the matrix that is read by rows, and the one that is read by columns. The
            last two of their strides are those of a row or column, and of a term.
        constants: sizes and strides, by their names in C.
    """

    def __init__(self, node: Node, name: str, rows: Load, columns: Load, constants: dict[str, int]):
        super().__init__([node])
        self.name, self.rows, self.columns, self.constants = name, rows, columns, constants
        self.inputs, self.outputs = [*dict.fromkeys((rows.base, columns.base))], [node]
        self.sizes, self.batch = node.shape, node.shape[:-2]

    def text(self) -> str:
        """The C function from the list of its parameters on."""
        kind = C_TYPES[self.nodes[0].dtype.name]
        given = [f"const {kind} *restrict in{i}" for i in range(len(self.inputs))]
        given += [f"{kind} *restrict out0"]
        sizes = ", ".join(f"{name} = {value}" for name, value in self.constants.items())
        lines = [f"{', '.join([*given, 'int threads'])}) {{", "    #pragma STDC FP_CONTRACT ON"]
        lines += [f"    enum {{ {sizes} }};", f"    typedef {kind} number;"]
        text = MULTIPLY
        for name, meaning in self.meanings().items():
            text = text.replace(name, meaning)
        return "\n".join([*lines, text])

    def meanings(self) -> dict[str, str]:
        """What stands for the names in the text that are no constants."""
        counters = [f"n{i}" for i in range(len(self.batch))]
        before = [math.prod(self.batch[i + 1 :]) for i in range(len(self.batch))]
        return {
            "ROW_MATRIX": self.place(self.rows, counters),
            "COLUMN_MATRIX": self.place(self.columns, counters),
            "RESULT": f"out0 + ({index(0, before, counters)}) * ROWS * COLUMNS",
            "BATCHES\n": "".join(itertools.starmap(LOOP.format, enumerate(self.batch))),
            "NESTED": str(len(counters) + 1),
        }

    def place(self, load: Load, counters: list[str]) -> str:
        """Where the matrix of a pair begins."""
        at = index(load.offset, load.strides[:-2], counters)
        return f"in{self.inputs.index(load.base)} + {at}"


def load_of(x: Node, dims: int, layouts: Layouts) -> Load:
    """The elements of an operand, in a product with so many dimensions."""
    base, offset, strides = layouts[x]
    return Load(base, offset, (*[0] * (dims - len(strides)), *strides))


def arranged(node: Node, loads: tuple[Load, Load]) -> tuple:
    """The matrix that is read by rows, the one that is read by columns, the sizes and strides."""
    (a, b), (m, n), terms = loads, node.shape[-2:], node.args[0].shape[-1]
    b = Load(b.base, b.offset, (*b.strides[:-2], *b.strides[:-3:-1]))
    values = (m, n, terms, *a.strides[-2:], *b.strides[-2:], n, 1)
    names = "ROWS COLUMNS TERMS ROW ROW_TERM COLUMN COLUMN_TERM OUT_ROW OUT_COLUMN".split()
    return a, b, dict(zip(names, values, strict=True))


if __name__ == "__main__":
    import ctypes
    import functools
    import time

    import numpy as np

    from tinytorch.compiler.build import CompilerError, build
    from tinytorch.compiler.c_code import FLAGS, LIBRARIES, c_file
    from tinytorch.compiler.convolution_code import convolution_source

    def node_of(x, y):
        """The node of x @ y; an array that is no row of rows is a transposed one."""
        nodes = []
        for a in (x, y):
            plain = a.flags.c_contiguous
            base = Node("input", (), {}, a.shape if plain else a.T.shape, a.dtype)
            turned = Node("transpose", (base, (1, 0)), {}, a.shape, a.dtype)
            nodes.append(base if plain else turned)
        return Node("matmul", tuple(nodes), {}, (x @ y).shape, x.dtype, "matmul", "model.py:3")

    def run(kernel, x, y):
        """What a kernel gives, the milliseconds that it takes, and those of NumPy's product;
        without a compiler, NumPy's product only."""
        try:
            library = build(c_file(convolution_source([kernel])), [*FLAGS, *LIBRARIES])
        except CompilerError:
            return x @ y, 0, 0
        out, arrays = np.empty(kernel.sizes, x.dtype), {}
        for node, a in zip(kernel.nodes[0].args, (x, y), strict=True):
            arrays[node if node.op == "input" else node.args[0]] = a if node.op == "input" else a.T
        places = [arrays[node].ctypes.data for node in kernel.inputs] + [out.ctypes.data]
        blocks = [np.empty(n + 64, np.uint8) for n in getattr(kernel, "memory", {}).values()]
        places += [a.ctypes.data + -a.ctypes.data % 64 for a in blocks]
        call = functools.partial(
            library[kernel.name], *(ctypes.c_void_p(place) for place in places), 1
        )
        return out, milliseconds(call), milliseconds(lambda: np.matmul(x, y))

    def milliseconds(call):
        """The shortest of five times."""
        times = []
        for _ in range(5):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return round(min(times) * 1e3, 2)

    def array(*shape, dtype=np.float32):
        return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)

    layouts = Layouts()

    def kernel_of(x, y):
        node = node_of(x, y)
        loads = tuple(load_of(operand, x.ndim, layouts) for operand in node.args)
        return ProductKernel(node, "product0", *arranged(node, loads))

    # A linear layer: X W^T, where W^T is a view of W.
    x, w = array(96, 64), array(128, 64)
    kernel = kernel_of(x, w.T)
    print({name: n for name, n in kernel.constants.items() if name.startswith(("ROW", "COL"))})
    # -> {'ROWS': 96, 'COLUMNS': 128, 'ROW': 64, 'ROW_TERM': 1, 'COLUMN': 64, 'COLUMN_TERM': 1}
    y, ours, blas = run(kernel, x, w.T)
    print(np.allclose(y, x @ w.T, atol=1e-4))  # -> True
    print(f"C: {ours} ms, BLAS: {blas} ms")  # -> ...

    # The gradient of W: G^T X. Its rows are columns of G.
    g = array(96, 128)
    kernel = kernel_of(g.T, x)
    print(kernel.constants["ROW"], kernel.constants["ROW_TERM"])  # -> 1 128
    print(np.allclose(run(kernel, g.T, x)[0], g.T @ x, atol=1e-4))  # -> True

    # Pairs of matrices; the second one is the same for all.
    x, y = array(2, 3, 20, 30), array(1, 1, 30, 10)
    kernel = kernel_of(x, y)
    for line in kernel.text().splitlines()[1:]:
        if "in0" in line or "in1" in line:
            print(line.strip())
    # -> const number *rows = in0 + n0 * 1800 + n1 * 600 + i * ROW;
    # -> const number *columns = in1 + 0 + j * COLUMN;
    print(np.allclose(run(kernel, x, y)[0], x @ y, atol=1e-4))  # -> True

    # Keys of attention: a part of one array, with heads that change places.
    qkv = Node("input", (), {}, (12, 64, 384), np.dtype("f"))
    part = Node("view_at", (qkv, (slice(None), slice(None), slice(128, 256))), {}, (12, 64, 128))
    heads = Node("reshape", (part, (12, 64, 4, 32)), {}, (12, 64, 4, 32))
    keys = Node("transpose", (heads, (0, 2, 3, 1)), {}, (12, 4, 32, 64))
    load = load_of(keys, 4, layouts)
    print(load.base is qkv, load.offset, load.strides)  # -> True 128 (24576, 32, 1, 384)
