"""C for convolutions: each thread keeps a block of the result in the processor's registers.

The C library's loops over a convolution would read and write a sum in memory for each product. Here
a vector holds the sums of several output channels at one position, and a block of vectors, for some
positions side by side, stays in registers until it is complete. One number of the input is
multiplied by a vector of weights, which are packed so that they lie one behind the other.
"""

import functools
import os
from collections.abc import Sequence
from typing import Any

from tinytorch.compiler.build import CompilerError, find_compiler, run_compiler
from tinytorch.compiler.c_code import comment_of
from tinytorch.compiler.expressions import C_TYPES
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel

# Shorter sums are no faster than the array library's products.
SHORTEST_SUM = 32
FUSED = """
// A product and a sum may be rounded once, as in matrix products.
#if defined(__clang__)
#define FUSED
#else
#define FUSED __attribute__((optimize("fp-contract=fast")))
#endif
"""
PAD = """\
    #pragma omp parallel for collapse(2) num_threads(threads) if(threads > 1)
    for (long n = 0; n < IMAGES; n++)
        for (long c = 0; c < GROUPS * CHANNELS; c++) {
            number *to = padded_memory + (n * GROUPS * CHANNELS + c) * HIGH * WIDE;
            const number *from = in0 + (n * GROUPS * CHANNELS + c) * HEIGHT * WIDTH;
            memset(to, 0, HIGH * WIDE * sizeof(number));
            for (long i = 0; i < HEIGHT; i++)
                memcpy(to + (i + TOP) * WIDE + LEFT, from + i * WIDTH, WIDTH * sizeof(number));
        }
"""
# The weights of a block of output channels, in the order in which they are read.
PACK = """\
    number (*packed)[BLOCKS][CHANNELS][ROWS][COLUMNS][BLOCK] = (void *)packed_memory;
    #pragma omp parallel for collapse(3) num_threads(threads) if(threads > 1)
    for (long m = 0; m < GROUPS; m++)
        for (long b = 0; b < BLOCKS; b++)
            for (long c = 0; c < CHANNELS; c++)
                for (long r = 0; r < ROWS; r++)
                    for (long s = 0; s < COLUMNS; s++)
                        for (long k = 0; k < BLOCK; k++) {
                            const long o = b * BLOCK + k;
                            packed[m][b][c][r][s][k] = o < OUT ? WEIGHT : 0;
                        }
"""
CONVOLVE = """\
    const number (*x)[GROUPS][CHANNELS][HIGH][WIDE] = (const void *)padded;
    number (*y)[GROUPS][OUT][DOWN][ACROSS] = (void *)out0;
    #pragma omp parallel for collapse(4) num_threads(threads) if(threads > 1)
    for (long n = 0; n < IMAGES; n++)
    for (long m = 0; m < GROUPS; m++)
    for (long b = 0; b < BLOCKS; b++)
    for (long top = 0; top < DOWN; top += TALL) {
        const long i = top < DOWN - TALL ? top : DOWN - TALL;  // the last block overlaps
        for (long left = 0; left < ACROSS; left += LONG) {
            const long j = left < ACROSS - LONG ? left : ACROSS - LONG;
            vector sums[TALL][LONG][VECTORS];
            for (int p = 0; p < TALL; p++)
                for (int q = 0; q < LONG; q++)
                    for (int v = 0; v < VECTORS; v++) sums[p][q][v] = (vector){0};
            const vector *weights = (const void *)packed[m][b];
            for (long c = 0; c < CHANNELS; c++)
                for (long r = 0; r < ROWS; r++) {
                    const long row = i * DOWN_STEP + r * ROW_STEP;
                    if (TALL == 1 && (row < TOP || row >= TOP + HEIGHT)) {  // zeros
                        weights += COLUMNS * VECTORS;
                        continue;
                    }
                    const number *from = &x[n][m][c][row][j * ACROSS_STEP];
                    #pragma GCC unroll UNROLL
                    for (long s = 0; s < COLUMNS; s++, weights += VECTORS) {
                        #pragma GCC unroll TALL
                        for (int p = 0; p < TALL; p++)
                            #pragma GCC unroll LONG
                            for (int q = 0; q < LONG; q++) {
                                const long at = p * DOWN_STEP * WIDE + q * ACROSS_STEP;
                                const number a = from[at + s * COLUMN_STEP];
                                #pragma GCC unroll VECTORS
                                for (int v = 0; v < VECTORS; v++) sums[p][q][v] += a * weights[v];
                            }
                    }
                }
            const number (*sum)[LONG][BLOCK] = (const void *)sums;
            for (long k = 0; k < BLOCK && b * BLOCK + k < OUT; k++)
                for (int p = 0; p < TALL; p++)
                    for (int q = 0; q < LONG; q++)
                        y[n][m][b * BLOCK + k][i + p][j + q] = sum[p][q][k];
        }
    }
"""
# The sums of a block of weights run over all positions of some images. The gradient of the output
# is turned for that: the channels of a position lie side by side.
CONVOLVE_WEIGHT = """\
    const number (*x)[GROUPS][CHANNELS][HIGH][WIDE] = (const void *)padded;
    const number (*g)[GROUPS][OUT][DOWN * ACROSS] = (const void *)in1;
    number (*gw)[OUT][CHANNELS][ROWS][COLUMNS] = (void *)out0;
    vector (*packed)[BLOCKS][CHANNELS][ROWS][COLUMNS][VECTORS] = (void *)packed_memory;
    number (*turned)[GROUPS][DOWN * ACROSS][BLOCKS * BLOCK] = (void *)turned_memory;
    memset(packed, 0, GROUPS * sizeof *packed);
    #pragma omp parallel num_threads(threads) if(threads > 1)
    for (long first = 0; first < IMAGES; first += SOME) {
        const long last = first + SOME < IMAGES ? first + SOME : IMAGES;
        #pragma omp for collapse(3)
        for (long n = first; n < last; n++)
        for (long m = 0; m < GROUPS; m++)
        for (long o = 0; o < BLOCKS * BLOCK; o += LANES)
            for (long p = 0; p < DOWN * ACROSS; p++)
                for (long k = o; k < o + LANES; k++)
                    turned[n - first][m][p][k] = k < OUT ? g[n][m][k][p] : 0;
        #pragma omp for collapse(4)
        for (long m = 0; m < GROUPS; m++)
        for (long b = 0; b < BLOCKS; b++)
        for (long c = 0; c < CHANNELS; c += DEEP)
        for (long r = 0; r < ROWS; r += TALL) {
            vector sums[DEEP * TALL * COLUMNS][VECTORS], (*sum)[VECTORS] = packed[m][b][c][r];
            for (int a = 0; a < DEEP * TALL * COLUMNS; a++)
                for (int v = 0; v < VECTORS; v++) sums[a][v] = sum[a][v];
            for (long n = first; n < last; n++)
                for (long i = 0; i < DOWN; i++) {
                    const number *from = x[n][m][c][i * DOWN_STEP + r * ROW_STEP];
                    for (long j = 0; j < ACROSS; j++, from += ACROSS_STEP) {
                        const vector *grad =
                            (const void *)&turned[n - first][m][i * ACROSS + j][b * BLOCK];
                        #pragma GCC unroll DEEP
                        for (int d = 0; d < DEEP; d++)
                            #pragma GCC unroll TALL
                            for (int t = 0; t < TALL; t++)
                                #pragma GCC unroll COLUMNS
                                for (int s = 0; s < COLUMNS; s++) {
                                    const long at = (d * HIGH + t * ROW_STEP) * WIDE;
                                    const number a = from[at + s * COLUMN_STEP];
                                    #pragma GCC unroll VECTORS
                                    for (int v = 0; v < VECTORS; v++)
                                        sums[(d * TALL + t) * COLUMNS + s][v] += a * grad[v];
                                }
                    }
                }
            for (int a = 0; a < DEEP * TALL * COLUMNS; a++)
                for (int v = 0; v < VECTORS; v++) sum[a][v] = sums[a][v];
        }
    }
    for (long m = 0; m < GROUPS; m++)
        for (long o = 0; o < OUT; o++)
            for (long c = 0; c < CHANNELS; c++)
                for (long r = 0; r < ROWS; r++)
                    for (long s = 0; s < COLUMNS; s++) {
                        const number *sum = (const void *)packed[m][o / BLOCK][c][r][s];
                        gw[m][o][c][r][s] = sum[o % BLOCK];
                    }
"""


def balanced(n: int, most: int) -> int:
    """The size of a part where n is cut into as few parts as parts of `most` would be."""
    return -(-n // -(-n // max(most, 1)))


def divisor(n: int, most: int) -> int:
    """The largest number up to `most` that divides n; at least 1."""
    return max(d for d in range(1, n + 1) if n % d == 0 and d <= max(most, 1))


@functools.cache
def registers(compiler: tuple[str, ...]) -> tuple[int, int]:
    """The bytes of this processor's vector registers, and how many it has."""
    try:
        macros = run_compiler((*compiler, "-march=native", "-dM", "-E", "-x", "c", os.devnull))
    except CompilerError:
        macros = ""
    if "__AVX512F__" in macros:
        return 64, 32
    if "__AVX2__" in macros:
        return 32, 16
    return 16, 32 if "__aarch64__" in macros else 16


def two(sizes: Sequence[int], missing: int) -> tuple[int, int]:
    """Sizes of two dimensions: of a convolution in one dimension, pictures of one row."""
    return (*(missing,) * (2 - len(sizes)), *sizes)


def sizes_of(node: Node) -> dict[str, int] | None:
    """The sizes of a convolution, by their names in C; None where the code does not do it.

    The gradient of the input is a convolution, too: of the gradient of the output, with zeros
    around it and with the kernels turned.
    """
    geo = node.args[2]
    if len(geo.kernel) > 2 or min(geo.x_shape) < 1 or node.dtype.char not in "fd":
        return None
    kernel, dilation = two(geo.kernel, 1), two(geo.dilation, 1)
    size, result = two(geo.x_shape[2:], 1), two(geo.out, 1)
    before, padded = two([x.start for x in geo.inside[1:]], 0), two(geo.padded[2:], 1)
    channels, out = geo.w_shape[1], geo.w_shape[0] // geo.groups
    if node.op == "convolve_input":
        reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
        before = tuple(r - b for r, b in zip(reach, before, strict=True))
        padded = tuple(n + r for n, r in zip(size, reach, strict=True))
        size, result, channels, out = result, size, out, channels
        ends = zip(before, size, padded, strict=True)
        if max(geo.stride) > 1 or any(b < 0 or b + n > p for b, n, p in ends):
            return None
    names = "HEIGHT WIDTH HIGH WIDE TOP LEFT ROWS COLUMNS DOWN ACROSS".split()
    names += "ROW_STEP COLUMN_STEP DOWN_STEP ACROSS_STEP".split()
    values = (*size, *padded, *before, *kernel, *result, *dilation, *two(geo.stride, 1))
    first = {"IMAGES": geo.x_shape[0], "GROUPS": geo.groups, "CHANNELS": channels, "OUT": out}
    return first | dict(zip(names, values, strict=True))


def blocked(c: dict[str, int], op: str, itemsize: int, width: int, count: int) -> dict | None:
    """The sizes of the blocks, for `count` registers of `width` bytes; None where the convolution
    does not fill them."""
    lanes = width // itemsize
    vectors, limit = -(-c["OUT"] // lanes), 3 * count // 4
    found = {"LANES": lanes, "UNROLL": min(c["COLUMNS"], 8)}
    several = [v for v in (2, 3, 1) if vectors % v == 0]
    if 4 * c["OUT"] < lanes:
        return None
    if op == "convolve_weight":
        chosen = (0, 0, 0, 0)
        for v in several:
            tall = divisor(c["ROWS"], limit // (v * c["COLUMNS"]))
            deep = limit // (v * c["COLUMNS"] * tall) if tall == c["ROWS"] else 1
            deep = divisor(c["CHANNELS"], deep)
            sums = v * c["COLUMNS"] * tall * deep
            chosen = max(chosen, (sums, v, tall, deep) if sums <= limit else chosen)
        _, v, found["TALL"], found["DEEP"] = chosen
        each = c["GROUPS"] * c["DOWN"] * c["ACROSS"] * vectors * lanes
        found["SOME"] = min(max(2**16 // each, 1), c["IMAGES"])
        if not v:
            return None
    else:
        v, limit = several[0], 5 * count // 8
        found["LONG"] = balanced(c["ACROSS"], limit // v)
        found["TALL"] = balanced(c["DOWN"], limit // v // found["LONG"])
        if c["CHANNELS"] * c["ROWS"] * c["COLUMNS"] < SHORTEST_SUM:
            return None
    return c | found | {"VECTORS": v, "BLOCK": v * lanes, "BLOCKS": vectors // v}


class ConvolutionKernel(Kernel):
    """A convolution, or one of its derivatives, as a function in C.

    Attributes:
        constants: the sizes, by their names in C.
        memory: arrays that the function writes for itself: name -> bytes.
    """

    def __init__(self, node: Node, name: str, constants: dict[str, int]):
        super().__init__([node])
        self.name, self.constants = name, constants
        self.inputs, self.outputs, self.sizes = list(node.args[:2]), [node], node.shape
        c = constants
        images, out = c["GROUPS"] * c["CHANNELS"], c["GROUPS"] * c["BLOCKS"] * c["BLOCK"]
        sizes = {"packed": out * c["CHANNELS"] * c["ROWS"] * c["COLUMNS"]}
        if c["HIGH"] * c["WIDE"] > c["HEIGHT"] * c["WIDTH"]:
            sizes["padded"] = c["IMAGES"] * images * c["HIGH"] * c["WIDE"]
        if node.op == "convolve_weight":
            sizes["turned"] = c["SOME"] * out * c["DOWN"] * c["ACROSS"]
        self.memory = {name: size * node.dtype.itemsize for name, size in sizes.items()}

    def text(self) -> str:
        """The C function from the list of its parameters on."""
        node = self.nodes[0]
        kind = C_TYPES[node.dtype.name]
        given = [f"const {kind} *restrict in0", f"const {kind} *restrict in1"]
        given += [f"{kind} *restrict out0", *(f"{kind} *restrict {x}_memory" for x in self.memory)]
        sizes = ", ".join(f"{name} = {value}" for name, value in self.constants.items())
        lines = [f"{', '.join([*given, 'int threads'])}) {{", "    #pragma STDC FP_CONTRACT ON"]
        lines += [f"    enum {{ {sizes} }};", f"    typedef {kind} number;"]
        lines += ["    typedef number vector __attribute__((vector_size(LANES * sizeof(number))));"]
        source = "padded_memory" if "padded" in self.memory else "in0"
        body = PAD * ("padded" in self.memory) + f"    const number *padded = {source};\n"
        if node.op == "convolve":
            lines.append("    const number (*w)[OUT][CHANNELS][ROWS][COLUMNS] = (const void *)in1;")
            body += PACK.replace("WEIGHT", "w[m][o][c][r][s]") + CONVOLVE
        elif node.op == "convolve_input":
            lines.append("    const number (*w)[CHANNELS][OUT][ROWS][COLUMNS] = (const void *)in1;")
            turned = "w[m][c][o][ROWS - 1 - r][COLUMNS - 1 - s]"
            body += PACK.replace("WEIGHT", turned) + CONVOLVE
        else:
            body += CONVOLVE_WEIGHT
        return "\n".join([*lines, body + "}\n"])


def convolution_source(kernels: Sequence[ConvolutionKernel]) -> str:
    """The functions of the kernels. As in c_source, kernels that are the same share one."""
    names: dict[str, str] = {}
    functions = []
    for kernel in kernels:
        text = kernel.text()
        if text not in names:
            names[text] = kernel.name
            functions.append(f"{comment_of(kernel)}FUSED\nvoid {kernel.name}({text}")
        kernel.name = names[text]
    return "\n".join([FUSED, *functions]) if functions else ""


def convolution_kernel(node: Any, number: int) -> ConvolutionKernel | None:
    """The kernel of a node of the graph; None where it is to stay a call of the array library."""
    if getattr(node, "op", "") not in ("convolve", "convolve_input", "convolve_weight"):
        return None
    sizes = sizes_of(node)
    if sizes is not None:
        found = registers(tuple(find_compiler()))
        sizes = blocked(sizes, node.op, node.dtype.itemsize, *found)
    return None if sizes is None else ConvolutionKernel(node, f"convolution{number}", sizes)
