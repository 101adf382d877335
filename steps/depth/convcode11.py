"""Step convcode11: A product of matrices in C: packed columns, sums in registers

The loops of step convcode10 read two numbers for each product, and add to one sum. What helped a
convolution (step convcode04) helps here as well: a vector holds the sums of 16 columns of one row,
and a block of 12 x 2 vectors stays in registers while all terms are added.

    for each term:  2 vectors of the second matrix, 12 numbers of the first, 24 products

A processor with two units for products does these 24 in 12 cycles; the 14 reads take 7.

The vectors of one block have to lie one behind the other, or each read touches another line of the
cache. So the second matrix is packed once, block by block: [BLOCKS][TERMS][BLOCK]. The last block
is filled up with zeros. What is packed is read again for each 12 rows, and stays in the cache; the
first matrix is read where it is.

The height of a block divides the number of rows, for now: step convcode13 takes what is left over.

(BLAS libraries are built like this: K. Goto, R. van de Geijn, Anatomy of high-performance matrix
multiplication, 2008. They pack both matrices, and write the inner loop in assembly language.)

New: PACK, TILE, block_of. Changed: MULTIPLY, ProductKernel.
Try: 4, and then 16, in place of `3 * count // 4 // several`. Both take nearly twice as long. Why?
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
            for (long k = 0; k < TERMS; k++)
                for (long j = 0; j < width; j++) to[k][j] = from[k * COLUMN_TERM + j * COLUMN];
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
TILE = """\
            for (long b = 0; b < BLOCKS; b++) {
                const number *columns = packed[BATCH][b][0];
                number *to = result + b * BLOCK * OUT_COLUMN;
                vector sums[TALL][VECTORS];
                for (int p = 0; p < TALL; p++)
                    for (int v = 0; v < VECTORS; v++) sums[p][v] = (vector){0};
                for (long k = 0; k < TERMS; k++, columns += BLOCK) {
                    #pragma GCC unroll TALL
                    for (int p = 0; p < TALL; p++) {
                        const number x = rows[k * ROW_TERM + p * ROW];
                        #pragma GCC unroll VECTORS
                        for (int v = 0; v < VECTORS; v++)
                            sums[p][v] += x * *(const vector *)&columns[v * LANES];
                    }
                }
                const number (*sum)[BLOCK] = (const void *)sums;
                const long width = WIDTH;
                for (int p = 0; p < TALL; p++)
                    for (long j = 0; j < width; j++) to[p * OUT_ROW + j * OUT_COLUMN] = sum[p][j];
            }
"""


class ProductKernel(Kernel):
    """A product of matrices, or of many pairs of matrices, as a function in C.

    Attributes:
        rows, columns: the matrix that is read by rows, and the one whose columns are packed. The
            last two of their strides are those of a row or column, and of a term.
        constants: sizes and strides, by their names in C.
        memory: arrays that the function writes for itself: name -> bytes.
    """

    def __init__(self, node: Node, name: str, rows: Load, columns: Load, constants: dict[str, int]):
        super().__init__([node])
        self.name, self.rows, self.columns, self.constants = name, rows, columns, constants
        self.inputs, self.outputs = [*dict.fromkeys((rows.base, columns.base))], [node]
        self.sizes, self.batch, c = node.shape, node.shape[:-2], constants
        size = math.prod(self.batch) * c["BLOCKS"] * c["TERMS"] * c["BLOCK"]
        self.memory = {"packed": size * node.dtype.itemsize}

    def text(self) -> str:
        """The C function from the list of its parameters on."""
        node, c = self.nodes[0], self.constants
        kind = C_TYPES[node.dtype.name]
        given = [f"const {kind} *restrict in{i}" for i in range(len(self.inputs))]
        given += [f"{kind} *restrict out0", *(f"{kind} *restrict {x}_memory" for x in self.memory)]
        sizes = ", ".join(f"{name} = {value}" for name, value in c.items())
        lines = [f"{', '.join([*given, 'int threads'])}) {{", "    #pragma STDC FP_CONTRACT ON"]
        lines += [f"    enum {{ {sizes} }};", f"    typedef {kind} number;"]
        lines += ["    typedef number vector __attribute__((vector_size(LANES * sizeof(number))));"]
        lines += ["    number (*packed)[BLOCKS][TERMS][BLOCK] = (void *)packed_memory;"]
        lines += ["    #pragma omp parallel num_threads(threads) if(threads > 1)"]
        lines += ["    {"]
        text = PACK + MULTIPLY.replace("TILES\n", TILE) + "    }\n}\n"
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
        rows, columns, c = arranged(node, loads)
        return ProductKernel(node, "product0", rows, columns, c | block_of(c, 16, 32))

    x, y = array(768, 512), array(512, 128)
    kernel = kernel_of(x, y)
    print({name: kernel.constants[name] for name in ("TALL", "VECTORS", "BLOCK", "BLOCKS")})
    # -> {'TALL': 12, 'VECTORS': 2, 'BLOCK': 32, 'BLOCKS': 4}
    print(kernel.memory)  # -> {'packed': 262144}
    z, ours, blas = run(kernel, x, y)
    print(np.allclose(z, x @ y, atol=1e-2))  # -> True
    print(f"C: {ours} ms, BLAS: {blas} ms")  # -> ...

    # 40 columns: half of the second block is empty. Ten rows: one block of ten.
    x, y = array(3, 10, 30, dtype=np.float64), array(3, 30, 40, dtype=np.float64)
    kernel = kernel_of(x, y)
    print(kernel.constants["TALL"], kernel.constants["BLOCKS"] * kernel.constants["BLOCK"])
    # -> 5 48
    print(np.allclose(run(kernel, x, y)[0], x @ y))  # -> True
