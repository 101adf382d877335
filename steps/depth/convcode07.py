"""Step convcode07: The gradient of a convolution's weight: vectors

The loops of step convcode06 are as slow as those of step convcode01, for the same reason: no
vectors. Again the output channels are independent, and all of them are multiplied by the same
number of x:

    sum[0..15] += x[n, c, i + r, j + s] * g[n, o..o+15, i, j]

Here it is g that has to be turned, so that the channels of a position lie side by side. A copy of
all images would not fit the processor's cache, and would be read once for each c, r and s. So the
function takes some images, turns them, adds to all sums, and goes on with the next ones. Between
these rounds the sums are in `packed`, which is no larger than the weight.

    all threads:   turn some images   |   add to the sums   |   turn the next ones   |   ...

Each `omp for` divides its loops among the threads, and waits until all of them are through: what
one thread has turned, all others read.

The trap: divided among the threads by images, each thread would add to the same sums.

New: weight_block. Changed: CONVOLVE_WEIGHT, blocked, ConvolutionKernel.
Try: 2**24 in place of 2**16, so that all images are turned at once.
"""

import functools
import os
from collections.abc import Sequence

from tinytorch.compiler.build import CompilerError, run_compiler
from tinytorch.compiler.c_code import comment_of
from tinytorch.compiler.expressions import C_TYPES
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel

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
        for (long c = 0; c < CHANNELS; c++)
        for (long r = 0; r < ROWS; r++)
            for (long s = 0; s < COLUMNS; s++) {
                vector sum = packed[m][b][c][r][s][0];
                for (long n = first; n < last; n++)
                    for (long i = 0; i < OUT_HEIGHT; i++) {
                        const number *from = x[n][m][c][i * ROW_STRIDE + r * ROW_DILATION];
                        from += s * COLUMN_DILATION;
                        for (long j = 0; j < OUT_WIDTH; j++, from += COLUMN_STRIDE) {
                            const number *position = turned[n - first][m][i * OUT_WIDTH + j];
                            sum += *from * *(const vector *)(position + b * BLOCK);
                        }
                    }
                packed[m][b][c][r][s][0] = sum;
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
    """One vector of weights; so many images at a time that what is turned fits the cache."""
    vectors = -(-c["OUT_CHANNELS"] // lanes)
    each = c["GROUPS"] * c["OUT_HEIGHT"] * c["OUT_WIDTH"] * vectors * lanes
    some = min(max(2**16 // each, 1), c["IMAGES"])
    return {"VECTORS": 1, "SOME": some}


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


if __name__ == "__main__":
    import ctypes
    import time

    import numpy as np

    from tinytorch.compiler.build import build
    from tinytorch.compiler.c_code import FLAGS, LIBRARIES, c_file
    from tinytorch.ops import convolution

    def kernel_of(op, a, b, like, stride=1, padding=0, dilation=1, groups=1):
        """The kernel of a convolution or of one of its derivatives for arrays a and b; `like` has
        the shape of the third array."""
        n, inputs = a.ndim - 2, [Node("input", (), {}, x.shape, x.dtype) for x in (a, b)]
        x, w = {"convolve": (a, b), "convolve_input": (like, b), "convolve_weight": (a, like)}[op]
        options = (stride,) * n, ((padding, padding),) * n, (dilation,) * n, groups
        geo = convolution.geometry(x.shape, w.shape, *options)
        shape = geo.y_shape if op == "convolve" else like.shape
        node = Node(op, (*inputs, geo), {}, shape, a.dtype, "conv", "model.py:3")
        return ConvolutionKernel(node, op, blocked(node, 64, 32))

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

    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 32, 26, 26)).astype(np.float32)
    w = rng.normal(size=(64, 32, 3, 3)).astype(np.float32)
    g = rng.normal(size=(4, 64, 24, 24)).astype(np.float32)
    kernel = kernel_of("convolve_weight", x, g, w)
    print({name: kernel.constants[name] for name in ("VECTORS", "BLOCKS", "SOME")})
    # -> {'VECTORS': 1, 'BLOCKS': 4, 'SOME': 1}
    gw, ours, eager = run(kernel, x, g)
    expected = convolution.convolve_weight(x, g, kernel.nodes[0].args[2])
    print(np.allclose(gw, expected, atol=1e-2))  # -> True
    print(f"a vector: {ours} ms, eager: {eager} ms")  # -> ...

    # Small images: several at a time.
    x, w = rng.normal(size=(50, 8, 9, 9)), rng.normal(size=(12, 4, 3, 3))
    g = rng.normal(size=(50, 12, 5, 5))
    kernel = kernel_of("convolve_weight", x, g, w, stride=2, padding=1, groups=2)
    print(kernel.constants["SOME"], kernel.memory)
    # -> 50 {'packed': 4608, 'padded': 387200, 'turned': 160000}
    gw, *_ = run(kernel, x, g)
    print(np.allclose(gw, convolution.convolve_weight(x, g, kernel.nodes[0].args[2])))  # -> True
