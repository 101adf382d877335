"""Step convcode09: Which convolutions are faster in C

The functions of steps convcode01 to convcode08 mostly take 0.2 to 0.7 of the time of eager's
products of matrices, but not for all convolutions. `covered` decides, by what was measured:

    in C                                      a call of the array library
    --------------------------------------    ------------------------------------------------
    one and two dimensions, float32, float64  three dimensions, halves
    sums of 32 products or more               a first layer: one or three channels, 3 x 3
    output channels for a quarter of a vector a single channel in each group (depthwise)
    kernels of up to 16 columns               longer ones: a row of sums does not fit
    a stride, but not in the input's gradient the input's gradient with a stride

A first layer writes much and computes little. There a block is stored more slowly than summed: its
16 channels go to 16 places in memory. The gradient of a weight has long sums always.

The gradient of the input is also left out where there is more padding than the kernel reaches: then
parts of g are cut off, rather than zeros put around it.

The trap: a rule that was fitted to one shape. benchmarks/README.md has the shapes, and the times.

(PyTorch's Inductor measures the choices while it compiles, with mode="max-autotune".)

New: SHORTEST_SUM, covered, convolution_kernel.
Try: SHORTEST_SUM = 1, and measure the first layer of the network in benchmarks/programs.py.
"""

import functools
import os
from collections.abc import Sequence

from tinytorch.compiler.build import CompilerError, find_compiler, run_compiler
from tinytorch.compiler.c_code import comment_of
from tinytorch.compiler.expressions import C_TYPES
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel

# Shorter sums are no faster than the array library's products of matrices.
SHORTEST_SUM = 32
FUSED = """
// A product and a sum may be rounded once, as in matrix products.
#if defined(__clang__)
#define FUSED
#else
#define FUSED __attribute__((optimize("fp-contract=fast")))
#endif
"""
# A copy of the input with zeros around it.
PAD = """\
    const number (*inside)[GROUPS * CHANNELS][HEIGHT][WIDTH] = (const void *)in0;
    number (*padded)[GROUPS * CHANNELS][PADDED_HEIGHT][PADDED_WIDTH] = (void *)padded_memory;
    #pragma omp parallel for collapse(2) num_threads(threads) if(threads > 1)
    for (long n = 0; n < IMAGES; n++)
        for (long c = 0; c < GROUPS * CHANNELS; c++) {
            memset(padded[n][c], 0, sizeof padded[n][c]);
            for (long i = 0; i < HEIGHT; i++)
                memcpy(&padded[n][c][i + TOP][LEFT], inside[n][c][i], sizeof inside[n][c][i]);
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
                    packed[m][b][c][r][s][k] = o < OUT_CHANNELS ? WEIGHT : 0;
                }
"""
CONVOLVE = """\
    const number (*x)[GROUPS][CHANNELS][PADDED_HEIGHT][PADDED_WIDTH] = (const void *)SOURCE;
    number (*y)[GROUPS][OUT_CHANNELS][OUT_HEIGHT][OUT_WIDTH] = (void *)out0;
    #pragma omp parallel for collapse(4) num_threads(threads) if(threads > 1)
    for (long n = 0; n < IMAGES; n++)
    for (long m = 0; m < GROUPS; m++)
    for (long b = 0; b < BLOCKS; b++)
    for (long top = 0; top < OUT_HEIGHT; top += TALL) {
        const long i = top < OUT_HEIGHT - TALL ? top : OUT_HEIGHT - TALL;  // the last overlaps
        for (long left = 0; left < OUT_WIDTH; left += LONG) {
            const long j = left < OUT_WIDTH - LONG ? left : OUT_WIDTH - LONG;
            vector sums[TALL][LONG][VECTORS];
            for (int p = 0; p < TALL; p++)
                for (int q = 0; q < LONG; q++)
                    for (int v = 0; v < VECTORS; v++) sums[p][q][v] = (vector){0};
            const vector *weights = (const void *)packed[m][b];
            for (long c = 0; c < CHANNELS; c++)
                for (long r = 0; r < ROWS; r++) {
                    const long row = i * ROW_STRIDE + r * ROW_DILATION;
                    if (TALL == 1 && (row < TOP || row >= TOP + HEIGHT)) {  // zeros
                        weights += COLUMNS * VECTORS;
                        continue;
                    }
                    const number *from = &x[n][m][c][row][j * COLUMN_STRIDE];
                    #pragma GCC unroll COLUMNS
                    for (long s = 0; s < COLUMNS; s++, weights += VECTORS) {
                        #pragma GCC unroll TALL
                        for (int p = 0; p < TALL; p++)
                            #pragma GCC unroll LONG
                            for (int q = 0; q < LONG; q++) {
                                const long at = p * ROW_STRIDE * PADDED_WIDTH + q * COLUMN_STRIDE;
                                const number a = from[at + s * COLUMN_DILATION];
                                #pragma GCC unroll VECTORS
                                for (int v = 0; v < VECTORS; v++) sums[p][q][v] += a * weights[v];
                            }
                    }
                }
            const number (*sum)[LONG][BLOCK] = (const void *)sums;
            for (long k = 0; k < BLOCK && b * BLOCK + k < OUT_CHANNELS; k++)
                for (int p = 0; p < TALL; p++)
                    for (int q = 0; q < LONG; q++)
                        y[n][m][b * BLOCK + k][i + p][j + q] = sum[p][q][k];
        }
    }
"""
# The sums run over all positions of some images at a time. For that, g is turned: the channels of a
# position lie side by side.
CONVOLVE_WEIGHT = """\
    const number (*x)[GROUPS][CHANNELS][PADDED_HEIGHT][PADDED_WIDTH] = (const void *)SOURCE;
    const number (*g)[GROUPS][OUT_CHANNELS][OUT_HEIGHT * OUT_WIDTH] = (const void *)in1;
    number (*gw)[OUT_CHANNELS][CHANNELS][ROWS][COLUMNS] = (void *)out0;
    vector (*packed)[BLOCKS][CHANNELS][ROWS][COLUMNS][VECTORS] = (void *)packed_memory;
    number (*turned)[GROUPS][OUT_HEIGHT * OUT_WIDTH][BLOCKS * BLOCK] = (void *)turned_memory;
    memset(packed, 0, GROUPS * sizeof *packed);
    #pragma omp parallel num_threads(threads) if(threads > 1)
    for (long first = 0; first < IMAGES; first += SOME) {
        const long last = first + SOME < IMAGES ? first + SOME : IMAGES;
        #pragma omp for collapse(3)
        for (long n = first; n < last; n++)
        for (long m = 0; m < GROUPS; m++)
        for (long o = 0; o < BLOCKS * BLOCK; o += LANES)
            for (long p = 0; p < OUT_HEIGHT * OUT_WIDTH; p++)
                for (long k = o; k < o + LANES; k++)
                    turned[n - first][m][p][k] = k < OUT_CHANNELS ? g[n][m][k][p] : 0;
        #pragma omp for collapse(4)
        for (long m = 0; m < GROUPS; m++)
        for (long b = 0; b < BLOCKS; b++)
        for (long c = 0; c < CHANNELS; c += DEEP)
        for (long r = 0; r < ROWS; r += TALL) {
            vector sums[DEEP * TALL * COLUMNS][VECTORS], (*sum)[VECTORS] = packed[m][b][c][r];
            for (int a = 0; a < DEEP * TALL * COLUMNS; a++)
                for (int v = 0; v < VECTORS; v++) sums[a][v] = sum[a][v];
            for (long n = first; n < last; n++)
                for (long i = 0; i < OUT_HEIGHT; i++) {
                    const number *from = x[n][m][c][i * ROW_STRIDE + r * ROW_DILATION];
                    for (long j = 0; j < OUT_WIDTH; j++, from += COLUMN_STRIDE) {
                        const number *position = turned[n - first][m][i * OUT_WIDTH + j];
                        const vector *grad = (const void *)(position + b * BLOCK);
                        #pragma GCC unroll DEEP
                        for (int d = 0; d < DEEP; d++)
                            #pragma GCC unroll TALL
                            for (int t = 0; t < TALL; t++)
                                #pragma GCC unroll COLUMNS
                                for (int s = 0; s < COLUMNS; s++) {
                                    const long row = d * PADDED_HEIGHT + t * ROW_DILATION;
                                    const number a = from[row * PADDED_WIDTH + s * COLUMN_DILATION];
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
    for (long o = 0; o < OUT_CHANNELS; o++)
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
    """Sizes of two dimensions: a convolution in one dimension has pictures of one row."""
    return (*(missing,) * (2 - len(sizes)), *sizes)


def sizes_of(node: Node) -> dict[str, int]:
    """The sizes of a convolution, by their names in C.

    The gradient of the input is a convolution, too: of the gradient of the output, with zeros
    around it and with the kernels turned.
    """
    geo = node.args[2]
    kernel, dilation = two(geo.kernel, 1), two(geo.dilation, 1)
    size, result, padded = two(geo.x_shape[2:], 1), two(geo.out, 1), two(geo.padded[2:], 1)
    before = two([part.start for part in geo.inside[1:]], 0)
    channels, out = geo.w_shape[1], geo.w_shape[0] // geo.groups
    if node.op == "convolve_input":
        reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
        before = [r - b for r, b in zip(reach, before, strict=True)]
        padded = [n + r for n, r in zip(size, reach, strict=True)]
        size, result, channels, out = result, size, out, channels
    names = "HEIGHT WIDTH PADDED_HEIGHT PADDED_WIDTH TOP LEFT ROWS COLUMNS OUT_HEIGHT OUT_WIDTH"
    names += " ROW_DILATION COLUMN_DILATION ROW_STRIDE COLUMN_STRIDE"
    values = *size, *padded, *before, *kernel, *result, *dilation, *two(geo.stride, 1)
    found = {"IMAGES": geo.x_shape[0], "GROUPS": geo.groups, "CHANNELS": channels}
    return found | {"OUT_CHANNELS": out} | dict(zip(names.split(), values, strict=True))


def output_block(c: dict[str, int], lanes: int, count: int) -> dict[str, int]:
    """The size of a block of outputs: with up to 5/8 of the `count` registers for its sums. The
    others are for weights, and for what the compiler loads in advance."""
    vectors, limit = -(-c["OUT_CHANNELS"] // lanes), 5 * count // 8
    several = next(v for v in (2, 3, 1) if vectors % v == 0)
    long = balanced(c["OUT_WIDTH"], limit // several)
    tall = balanced(c["OUT_HEIGHT"], limit // several // long)
    return {"TALL": tall, "LONG": long, "VECTORS": several}


def weight_block(c: dict[str, int], lanes: int, count: int) -> dict[str, int]:
    """The size of a block of weights: of those with up to 3/4 of the `count` registers for their
    sums, the one with most. So many images at a time that what is turned fits the cache."""
    vectors, limit = -(-c["OUT_CHANNELS"] // lanes), 3 * count // 4
    found = []
    for v in (1, 2, 3):
        tall = divisor(c["ROWS"], limit // (v * c["COLUMNS"]))
        deep = limit // (v * c["COLUMNS"] * tall) if tall == c["ROWS"] else 1
        deep = divisor(c["CHANNELS"], deep)
        sums = v * c["COLUMNS"] * tall * deep
        if vectors % v == 0 and (sums <= limit or v == 1):
            found.append((sums, v, tall, deep))
    _, v, tall, deep = max(found)
    each = c["GROUPS"] * c["OUT_HEIGHT"] * c["OUT_WIDTH"] * vectors * lanes
    some = min(max(2**16 // each, 1), c["IMAGES"])
    return {"VECTORS": v, "TALL": tall, "DEEP": deep, "SOME": some}


def blocked(node: Node, width: int, count: int) -> dict[str, int]:
    """The sizes of a convolution and of its blocks, for `count` registers of `width` bytes."""
    c, lanes = sizes_of(node), width // node.dtype.itemsize
    block = weight_block if node.op == "convolve_weight" else output_block
    c |= {"LANES": lanes, **block(c, lanes, count)}
    vectors = -(-c["OUT_CHANNELS"] // lanes)
    return c | {"BLOCK": c["VECTORS"] * lanes, "BLOCKS": vectors // c["VECTORS"]}


class ConvolutionKernel(Kernel):
    """A convolution, or one of its derivatives, as a function in C.

    Attributes:
        constants: the sizes, by their names in C.
        memory: arrays that the function writes for itself: name -> bytes.
    """

    def __init__(self, node: Node, name: str, constants: dict[str, int]):
        super().__init__([node])
        self.name, self.constants, c = name, constants, constants
        self.inputs, self.outputs, self.sizes = list(node.args[:2]), [node], node.shape
        images = c["IMAGES"] * c["GROUPS"] * c["CHANNELS"]
        out = c["GROUPS"] * c["BLOCKS"] * c["BLOCK"]
        sizes = {"packed": out * c["CHANNELS"] * c["ROWS"] * c["COLUMNS"]}
        if (c["PADDED_HEIGHT"], c["PADDED_WIDTH"]) != (c["HEIGHT"], c["WIDTH"]):
            sizes["padded"] = images * c["PADDED_HEIGHT"] * c["PADDED_WIDTH"]
        if node.op == "convolve_weight":
            sizes["turned"] = c["SOME"] * out * c["OUT_HEIGHT"] * c["OUT_WIDTH"]
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
        body, source = "", "in0"
        if "padded" in self.memory:
            body, source = PAD, "padded"
        if node.op == "convolve_weight":
            body += CONVOLVE_WEIGHT
        elif node.op == "convolve_input":
            lines.append("    const number (*w)[CHANNELS][OUT_CHANNELS][ROWS][COLUMNS] = WEIGHTS;")
            turned = "w[m][c][o][ROWS - 1 - r][COLUMNS - 1 - s]"
            body += PACK.replace("WEIGHT", turned) + CONVOLVE
        else:
            lines.append("    const number (*w)[OUT_CHANNELS][CHANNELS][ROWS][COLUMNS] = WEIGHTS;")
            body += PACK.replace("WEIGHT", "w[m][o][c][r][s]") + CONVOLVE
        text = "\n".join([*lines, body + "}\n"])
        return text.replace("WEIGHTS", "(const void *)in1").replace("SOURCE", source)


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


def covered(node: Node, width: int) -> bool:
    """Whether the generated code does a convolution, and is faster than the products of matrices
    of the array library. It is not where sums are short, or where most of a vector is empty."""
    geo = node.args[2]
    if len(geo.kernel) > 2 or min(geo.x_shape) < 1 or node.dtype.char not in "fd":
        return False
    c = sizes_of(node)
    if node.op == "convolve_input" and (
        max(geo.stride) > 1
        or min(c["TOP"], c["LEFT"]) < 0
        or c["TOP"] + c["HEIGHT"] > c["PADDED_HEIGHT"]
        or c["LEFT"] + c["WIDTH"] > c["PADDED_WIDTH"]
    ):
        return False
    products = c["CHANNELS"] * c["ROWS"] * c["COLUMNS"]
    long = node.op == "convolve_weight" or products >= SHORTEST_SUM
    wide = c["OUT_CHANNELS"] >= max(2, width // node.dtype.itemsize // 4)
    return long and wide and c["COLUMNS"] <= 16


def convolution_kernel(node: Node, name: str) -> ConvolutionKernel | None:
    """The kernel of a node of the graph; None where it is to stay a call of the array library."""
    if node.op not in ("convolve", "convolve_input", "convolve_weight"):
        return None
    width, count = registers(tuple(find_compiler()))
    if not covered(node, width):
        return None
    return ConvolutionKernel(node, name, blocked(node, width, count))


if __name__ == "__main__":
    import ctypes
    import sys
    import time

    import numpy as np

    from tinytorch.compiler.build import build
    from tinytorch.compiler.c_code import FLAGS, LIBRARIES, c_file
    from tinytorch.ops import convolution

    def node_of(op, a, b, like, stride=1, padding=0, dilation=1, groups=1):
        """The node of a convolution or of one of its derivatives for arrays a and b; `like` has
        the shape of the third array."""
        n, inputs = a.ndim - 2, [Node("input", (), {}, x.shape, x.dtype) for x in (a, b)]
        x, w = {"convolve": (a, b), "convolve_input": (like, b), "convolve_weight": (a, like)}[op]
        options = (stride,) * n, ((padding, padding),) * n, (dilation,) * n, groups
        geo = convolution.geometry(x.shape, w.shape, *options)
        shape = geo.y_shape if op == "convolve" else like.shape
        return Node(op, (*inputs, geo), {}, shape, a.dtype, "conv", "model.py:3")

    def run(kernel, *arrays):
        """What a kernel gives for these arrays, the milliseconds that it takes, and those of
        eager's form; without a compiler, that form's only."""
        op, geo = kernel.nodes[0].op, kernel.nodes[0].args[2]
        given = (*arrays, *[None] * (op != "convolve_weight"), geo)
        out = np.empty(kernel.nodes[0].shape, arrays[0].dtype)
        try:
            library = build(c_file(convolution_source([kernel])), [*FLAGS, *LIBRARIES])
        except CompilerError:
            return getattr(convolution, op)(*given), 0, 0
        places = [x.ctypes.data for x in (*arrays, out)]
        blocks = [np.empty(size + 64, np.uint8) for size in kernel.memory.values()]
        places += [x.ctypes.data + -x.ctypes.data % 64 for x in blocks]
        call = functools.partial(
            library[kernel.name], *(ctypes.c_void_p(place) for place in places), 1
        )
        return out, milliseconds(call), milliseconds(lambda: getattr(convolution, op)(*given))

    def milliseconds(call):
        """The shortest of three times."""
        times = []
        for _ in range(3):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return round(min(times) * 1e3, 1)

    def array(*shape, dtype=np.float32):
        return np.random.default_rng(0).normal(size=shape).astype(dtype)

    def forms(x, w, g, **options):
        """Which of the three forms are done in C."""
        nodes = (
            node_of("convolve", x, w, g, **options),
            node_of("convolve_input", g, w, x, **options),
        )
        nodes = *nodes, node_of("convolve_weight", x, g, w, **options)
        return [covered(node, 64) for node in nodes]

    print(forms(array(2, 32, 9, 9), array(32, 32, 3, 3), array(2, 32, 7, 7)))
    # -> [True, True, True]
    print(forms(array(2, 1, 9, 9), array(32, 1, 3, 3), array(2, 32, 7, 7)))  # a first layer
    # -> [False, False, True]
    print(forms(array(2, 32, 9, 9), array(32, 32, 3, 3), array(2, 32, 4, 4), stride=2))
    # -> [True, False, True]
    print(forms(array(2, 32, 9, 9), array(32, 32, 3, 3), array(2, 32, 13, 13), padding=3))
    # -> [True, False, True]
    print(forms(*(array(2, 32, *[5] * 3), array(32, 32, *[3] * 3), array(2, 32, *[3] * 3))))
    # -> [False, False, False]

    compiler = [sys.executable, "-c", "print('__AVX512F__')"]
    find_compiler = lambda: compiler  # noqa: E731
    x, w, g = array(4, 64, 16, 16), array(64, 64, 3, 3), array(4, 64, 14, 14)
    kernel = convolution_kernel(node_of("convolve", x, w, g), "convolution7")
    print(kernel)  # -> convolution7: 4 x 64 x 14 x 14 (convolve)
    y, ours, eager = run(kernel, x, w)
    print(np.allclose(y, convolution.convolve(x, w, None, kernel.nodes[0].args[2]), atol=1e-3))
    # -> True
    print(f"C: {ours} ms, eager: {eager} ms")  # -> ...
    print(convolution_kernel(Node("add", kernel.inputs), "sum"))  # -> None
    print(convolution_kernel(node_of("convolve", x, w[:3], g[:, :3]), "narrow"))  # -> None
