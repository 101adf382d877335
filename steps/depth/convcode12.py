"""Step convcode12: A product of matrices in C: which matrix is packed

Packing takes time, too: for 64 rows of X and a W of 256 x 784 it copies 200,000 numbers, each for
64 products only. But Y^T = W X^T is the same product. With the roles exchanged X is packed, a
quarter as many numbers, and a block's columns are rows of Y. `arranged` counts for both ways what
has to be copied:

    what is packed: 1 for each number, 3 where columns do not lie side by side in memory
    rows that do not lie along the terms: 1 for each number (below)
    the transposed result: 2 for each number, as its vectors are stored one by one

In G^T X, the gradient of a weight, the rows are columns of G: the 12 numbers of one term are
adjacent, and those of the next term are a row of G further. There TURN transposes the rows of a
block first, so that the inner loop reads one stretch of memory.

A single block of adjacent columns, such as a head's 32 values in attention, is not packed. Its
vectors may begin at any number: `aligned(4)` tells the compiler.

(OpenBLAS and MKL always pack, except for small matrices.)

If all blocks are full, whole vectors are stored (STORE_VECTORS): GCC compiles that much faster than
loops over their numbers.

New: TURN, STORE_VECTORS, STORE_NUMBERS, nested. Changed: PACK, TILE, ProductKernel, arranged.
Try: let `arranged` always say turned=False, and measure the first product of the demo.
"""

import itertools
import math

from tinytorch.compiler.c_code import index
from tinytorch.compiler.convolution_code import divisor
from tinytorch.compiler.expressions import C_TYPES
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel, Load
from tinytorch.compiler.layout import Layouts

LOOP = "        for (long n{0} = 0; n{0} < {1}; n{0}++)\n"
# The columns of a block lie together.
PACK = """\
        #pragma omp for collapse(NESTED)
BATCHES
        for (long b = 0; b < BLOCKS; b++) {
            const number *from = COLUMN_MATRIX + b * BLOCK * COLUMN;
            number (*to)[BLOCK] = packed[BATCH][b];
            const long width = WIDTH;
            if (width < BLOCK) memset(to, 0, TERMS * sizeof *to);
            OUTER
                INNER to[k][j] = from[k * COLUMN_TERM + j * COLUMN];
        }
"""
MULTIPLY = """\
        #pragma omp for collapse(NESTED)
BATCHES
        for (long i = 0; i < ROWS; i += TALL) {
            const number *rows = ROW_MATRIX + i * ROW;
            number *result = RESULT + i * OUT_ROW;
TILES
        }
"""
# The numbers of some rows that belong to one term lie side by side.
TURN = """\
            number turned[TERMS][HEIGHT];
            for (long k = 0; k < TERMS; k++)
                for (int p = 0; p < HEIGHT; p++) turned[k][p] = rows[k * ROW_TERM + p * ROW];
"""
TILE = """\
            for (long b = 0; b < BLOCKS; b++) {
                const number *columns = BLOCK_OF_COLUMNS;
                number *to = result + b * BLOCK * OUT_COLUMN;
                vector sums[HEIGHT][VECTORS];
                for (int p = 0; p < HEIGHT; p++)
                    for (int v = 0; v < VECTORS; v++) sums[p][v] = (vector){0};
                for (long k = 0; k < TERMS; k++, columns += NEXT) {
                    #pragma GCC unroll HEIGHT
                    for (int p = 0; p < HEIGHT; p++) {
                        const number x = NUMBER;
                        #pragma GCC unroll VECTORS
                        for (int v = 0; v < VECTORS; v++)
                            sums[p][v] += x * *(const vector *)&columns[v * LANES];
                    }
                }
STORE
            }
"""
STORE_VECTORS = """\
                for (int p = 0; p < HEIGHT; p++)
                    for (int v = 0; v < VECTORS; v++) {
                        vector *at = (void *)&to[p * OUT_ROW + v * LANES];
                        *at = sums[p][v];
                    }
"""
STORE_NUMBERS = """\
                const number (*sum)[BLOCK] = (const void *)sums;
                const long width = WIDTH;
                OUTER
                    INNER to[p * OUT_ROW + j * OUT_COLUMN] = sum[p][j];
"""
OVER_TERMS = "for (long k = 0; k < TERMS; k++)"
OVER_COLUMNS = "for (long j = 0; j < width; j++)"
OVER_ROWS = "for (int p = 0; p < HEIGHT; p++)"


def nested(text: str, loop: str, stride: int) -> str:
    """The text with a loop around that over the columns, or inside of it where the columns do not
    lie side by side."""
    outer, inner = (loop, OVER_COLUMNS) if stride == 1 else (OVER_COLUMNS, loop)
    return text.replace("OUTER", outer).replace("INNER", inner)


class ProductKernel(Kernel):
    """A product of matrices, or of many pairs of matrices, as a function in C.

    Attributes:
        rows, columns: the matrix that is read by rows, and the one whose columns are packed. The
            last two of their strides are those of a row or column, and of a term.
        constants: sizes and strides, by their names in C.
        packs: whether columns are packed: one block of columns side by side is read where it is.
        memory: arrays that the function writes for itself: name -> bytes.
    """

    def __init__(self, node: Node, name: str, rows: Load, columns: Load, constants: dict[str, int]):
        super().__init__([node])
        self.name, self.rows, self.columns, self.constants = name, rows, columns, constants
        self.inputs, self.outputs = [*dict.fromkeys((rows.base, columns.base))], [node]
        self.sizes, self.batch, c = node.shape, node.shape[:-2], constants
        self.packs = (c["COLUMN"], c["COLUMNS"]) != (1, c["BLOCK"])
        size = math.prod(self.batch) * c["BLOCKS"] * c["TERMS"] * c["BLOCK"]
        self.memory = {"packed": size * node.dtype.itemsize} if self.packs else {}

    def text(self) -> str:
        """The C function from the list of its parameters on."""
        node, c = self.nodes[0], self.constants
        kind, turned = C_TYPES[node.dtype.name], c["ROW_TERM"] != 1
        whole = c["COLUMNS"] % c["BLOCK"] == 0 and c["OUT_COLUMN"] == 1
        given = [f"const {kind} *restrict in{i}" for i in range(len(self.inputs))]
        given += [f"{kind} *restrict out0", *(f"{kind} *restrict {x}_memory" for x in self.memory)]
        sizes = ", ".join(f"{name} = {value}" for name, value in c.items())
        bytes_of = f"vector_size(LANES * sizeof(number)), aligned({node.dtype.itemsize})"
        lines = [f"{', '.join([*given, 'int threads'])}) {{", "    #pragma STDC FP_CONTRACT ON"]
        lines += [f"    enum {{ {sizes} }};", f"    typedef {kind} number;"]
        lines += [f"    typedef number vector __attribute__(({bytes_of}));"]
        lines += [
            "    number (*packed)[BLOCKS][TERMS][BLOCK] = (void *)packed_memory;"
        ] * self.packs
        lines += ["    #pragma omp parallel num_threads(threads) if(threads > 1)"]
        lines += ["    {"]
        stores = STORE_VECTORS if whole else nested(STORE_NUMBERS, OVER_ROWS, c["OUT_COLUMN"])
        tile = TURN * turned + TILE.replace("STORE\n", stores)
        tiles = tile.replace("HEIGHT", "TALL")
        pack = nested(PACK, OVER_TERMS, c["COLUMN"]) if self.packs else ""
        text = pack + MULTIPLY.replace("TILES\n", tiles) + "    }\n}\n"
        for name, meaning in self.meanings(turned).items():
            text = text.replace(name, meaning)
        return "\n".join([*lines, text])

    def meanings(self, turned: bool) -> dict[str, str]:
        """What stands for the names in the text that are no constants."""
        counters = [f"n{i}" for i in range(len(self.batch))]
        before = [math.prod(self.batch[i + 1 :]) for i in range(len(self.batch))]
        where = "COLUMN_MATRIX"
        return {
            "BLOCK_OF_COLUMNS": "packed[BATCH][b][0]" if self.packs else where,
            "NEXT": "BLOCK" if self.packs else "COLUMN_TERM",
            "NUMBER": "turned[k][p]" if turned else "rows[k * ROW_TERM + p * ROW]",
            "ROW_MATRIX": self.place(self.rows, counters),
            "COLUMN_MATRIX": self.place(self.columns, counters),
            "RESULT": f"out0 + ({index(0, before, counters)}) * ROWS * COLUMNS",
            "WIDTH": "COLUMNS - b * BLOCK < BLOCK ? COLUMNS - b * BLOCK : BLOCK",
            "BATCHES\n": "".join(itertools.starmap(LOOP.format, enumerate(self.batch))),
            "BATCH": index(0, before, counters),
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


def block_of(c: dict[str, int], lanes: int, count: int) -> dict[str, int]:
    """The size of a block of the result: with up to 3/4 of the `count` registers for its sums."""
    vectors = -(-c["COLUMNS"] // lanes)
    several = vectors if vectors <= 3 else 2
    tall = divisor(c["ROWS"], 3 * count // 4 // several)
    sizes = {"LANES": lanes, "VECTORS": several, "BLOCK": several * lanes}
    return sizes | {"BLOCKS": -(-vectors // several), "TALL": tall}


def arranged(node: Node, loads: tuple[Load, Load], turned: bool) -> tuple:
    """One of two ways to compute a product: how long it takes to arrange the matrices for it, in
    copied numbers; the one that is read by rows; the one that is packed; the sizes and strides.

    Args:
        turned: the transposed product, whose rows are columns of the result.
    """
    (a, b), (m, n), terms = loads, node.shape[-2:], node.args[0].shape[-1]
    b = Load(b.base, b.offset, (*b.strides[:-2], *b.strides[:-3:-1]))
    values = (m, n, terms, *a.strides[-2:], *b.strides[-2:], n, 1)
    if turned:
        a, b, values = b, a, (n, m, terms, *b.strides[-2:], *a.strides[-2:], 1, n)
    names = "ROWS COLUMNS TERMS ROW ROW_TERM COLUMN COLUMN_TERM OUT_ROW OUT_COLUMN".split()
    c = dict(zip(names, values, strict=True))
    copied = c["COLUMNS"] * terms * (1 if c["COLUMN"] == 1 else 3)
    copied += c["ROWS"] * terms * (c["ROW_TERM"] != 1) + 2 * m * n * turned
    return copied, a, b, c


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

    def kernels_of(x, y):
        """Both ways to compute x @ y, the shorter one first."""
        node = node_of(x, y)
        loads = tuple(load_of(operand, x.ndim, layouts) for operand in node.args)
        ways = [arranged(node, loads, turned) for turned in (False, True)]
        print([way[0] for way in ways])
        ways.sort(key=lambda way: way[0])
        return [
            ProductKernel(node, "product0", rows, columns, c | block_of(c, 16, 32))
            for _, rows, columns, c in ways
        ]

    x, w = array(64, 784), array(256, 784)
    first, second = kernels_of(x, w.T)  # a layer: few rows
    # -> [602112, 183296]
    print(first.constants["OUT_ROW"], first.memory, second.memory)
    # -> 1 {'packed': 200704} {'packed': 802816}
    for kernel in (first, second):
        z, ours, blas = run(kernel, x, w.T)
        print(np.allclose(z, x @ w.T, atol=1e-2))  # -> True
        print(f"C: {ours} ms, BLAS: {blas} ms")  # -> ...
    g = array(768, 96)
    first, second = kernels_of(g.T, array(768, 64))  # the gradient of a weight
    # -> [122880, 135168]
    print("turned" in first.text(), "turned" in second.text())  # -> True True
    for kernel in (first, second):
        z, ours, blas = run(kernel, g.T, array(768, 64))
        print(np.allclose(z, g.T @ array(768, 64), atol=1e-2))  # -> True
    p, v = array(8, 64, 64), array(8, 64, 32)
    first, _ = kernels_of(p, v)  # attention: P V with 32 columns
    # -> [2048, 18432]
    print(first.packs, first.memory)  # -> False {}
    print(np.allclose(run(first, p, v)[0], p @ v, atol=1e-3))  # -> True
