"""C for products of matrices: a block of the result stays in the processor's registers.

A vector holds the sums of several columns in one row, as in convolution_code.py. The columns of one
matrix are packed; the numbers of the other are read, some rows at a time. Both are read where they
are, with whatever strides: a transposed matrix is not copied.
"""

import itertools
import math
from collections.abc import Sequence

from tinytorch.compiler.build import find_compiler
from tinytorch.compiler.c_code import index
from tinytorch.compiler.convolution_code import balanced, convolution_source, registers
from tinytorch.compiler.expressions import C_TYPES
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel, Load
from tinytorch.compiler.layout import Layouts

SMALLEST = 2**18  # multiplications: with fewer, a call of the array library is as fast,
FEWEST = 16  # and with fewer rows or columns
LARGEST = 5 * 2**15  # numbers that are packed at a time: more do not stay in the cache
DEEPEST = 192  # terms that are added before a result is written
LOOP = "        for (long n{0} = 0; n{0} < {1}; n{0}++)\n"
# The columns of a block lie together, for some terms of the sums.
PACK = """\
        #pragma omp for collapse(NESTED)
BATCHES
        for (long b = 0; b < BLOCKS; b++) {
            const number *from = COLUMN_MATRIX + first * COLUMN_TERM + b * BLOCK * COLUMN;
            number (*to)[BLOCK] = packed[BATCH][b];
            const long width = WIDTH;
            if (width < BLOCK) memset(to, 0, depth * sizeof *to);
            OUTER
                #pragma omp simd
                INNER to[k][j] = from[k * COLUMN_TERM + j * COLUMN];
        }
"""
MULTIPLY = """\
        #pragma omp for collapse(NESTED)
BATCHES
        for (long i = 0; i < ROWS; i += TALL) {
            const number *rows = ROW_MATRIX + first * ROW_TERM + i * ROW;
            number *result = RESULT + i * OUT_ROW;
TILES
        }
"""
# The numbers of some rows that belong to one term lie side by side.
TURN = """\
            number turned[DEEP][HEIGHT];
            for (long k = 0; k < depth; k++)
                #pragma omp simd
                for (int p = 0; p < HEIGHT; p++) turned[k][p] = rows[k * ROW_TERM + p * ROW];
"""
TILE = """\
            for (long b = 0; b < BLOCKS; b++) {
                const number *columns = BLOCK_OF_COLUMNS;
                number *to = result + b * BLOCK * OUT_COLUMN;
                vector sums[HEIGHT][VECTORS];
                for (int p = 0; p < HEIGHT; p++)
                    for (int v = 0; v < VECTORS; v++) {
                        sums[p][v] = (vector){0};
                        __builtin_prefetch(&to[p * OUT_ROW + v * LANES * OUT_COLUMN], 1);
                    }
                for (long k = 0; k < depth; k++, columns += NEXT) {
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
                        *at = first > 0 ? *at + sums[p][v] : sums[p][v];
                    }
"""
STORE_NUMBERS = """\
                const number (*sum)[BLOCK] = (const void *)sums;
                const long width = WIDTH;
                OUTER
                    INNER {
                        number *at = &to[p * OUT_ROW + j * OUT_COLUMN];
                        *at = sum[p][j] + (first > 0 ? *at : 0);
                    }
"""
OVER_TERMS = "for (long k = 0; k < depth; k++)"
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
        size = math.prod(self.batch) * c["BLOCKS"] * c["DEEP"] * c["BLOCK"]
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
        lines += ["    number (*packed)[BLOCKS][DEEP][BLOCK] = (void *)packed_memory;"] * self.packs
        lines += ["    #pragma omp parallel num_threads(threads) if(threads > 1)"]
        lines += ["    for (long first = 0; first < TERMS; first += DEEP) {"]
        lines += ["        const long depth = TERMS - first < DEEP ? TERMS - first : DEEP;"]
        stores = STORE_VECTORS if whole else nested(STORE_NUMBERS, OVER_ROWS, c["OUT_COLUMN"])
        tile = TURN * turned + TILE.replace("STORE\n", stores)
        tiles = tile.replace("HEIGHT", "TALL")
        if c["REST"]:
            tiles = f"            if (ROWS - i >= TALL) {{\n{tiles}            }} else {{\n"
            tiles += tile.replace("HEIGHT", "REST") + "            }\n"
        pack = nested(PACK, OVER_TERMS, c["COLUMN"]) if self.packs else ""
        text = pack + MULTIPLY.replace("TILES\n", tiles) + "    }\n}\n"
        for name, meaning in self.meanings(turned).items():
            text = text.replace(name, meaning)
        return "\n".join([*lines, text])

    def meanings(self, turned: bool) -> dict[str, str]:
        """What stands for the names in the text that are no constants."""
        counters = [f"n{i}" for i in range(len(self.batch))]
        before = [math.prod(self.batch[i + 1 :]) for i in range(len(self.batch))]
        where = "COLUMN_MATRIX + first * COLUMN_TERM"
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


def product_source(kernels: Sequence[ProductKernel]) -> str:
    """The functions of the kernels. With -O2 they are as fast, and compiled in half of the time."""
    source = convolution_source(kernels).replace("FUSED", "FUSED_O2")
    return source.replace('"fp-contract=fast"', '"fp-contract=fast", "O2"')


def load_of(x: Node, dims: int, layouts: Layouts) -> Load:
    """The elements of an operand, in a product with so many dimensions."""
    base, offset, strides = layouts[x]
    return Load(base, offset, (*[0] * (dims - len(strides)), *strides))


def block_of(c: dict[str, int], lanes: int, count: int) -> dict[str, int]:
    """The size of a block of the result: with up to 3/4 of the `count` registers for its sums."""
    vectors = -(-c["COLUMNS"] // lanes)
    several = vectors if vectors <= 3 else 2
    tall = balanced(c["ROWS"], 3 * count // 4 // several)
    deep = balanced(c["TERMS"], DEEPEST)
    sizes = {"LANES": lanes, "VECTORS": several, "BLOCK": several * lanes}
    sizes |= {"BLOCKS": -(-vectors // several), "TALL": tall, "REST": c["ROWS"] % tall}
    return sizes | {"DEEP": deep}


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


def product_kernel(node: Node, name: str, layouts: Layouts) -> ProductKernel | None:
    """The kernel of a node of the graph; None where it is to stay a call of the array library.

    Args:
        layouts: where the elements of the operands are (see layout.py).
    """
    if node.op != "matmul" or any(x.dtype != node.dtype for x in node.args):
        return None
    if node.dtype.char not in "fd" or min(len(x.shape) for x in node.args) < 2:
        return None
    count = math.prod(node.shape) * node.args[0].shape[-1]
    if count < SMALLEST or min(node.shape[-2:]) < FEWEST:
        return None
    width, count = registers(tuple(find_compiler()))
    loads, found = tuple(load_of(x, len(node.shape), layouts) for x in node.args), []
    for turned in (False, True):
        copied, rows, columns, c = arranged(node, loads, turned)
        c |= block_of(c, width // node.dtype.itemsize, count)
        full = c["BLOCKS"] * c["BLOCK"]
        few_empty = 5 * full <= 6 * c["COLUMNS"]  # at most a sixth of the sums
        if full * c["DEEP"] <= LARGEST and few_empty:
            found.append((copied, turned, rows, columns, c))
    best = min(found, key=lambda way: way[:2], default=None)
    return None if best is None else ProductKernel(node, name, *best[2:])
