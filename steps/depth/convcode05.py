"""Step convcode05: The gradient of a convolution's input, in C

Step convcode04 ends with a convolution as a function in C. Training needs its two derivatives, too.
The gradient of the input adds at each position what the outputs around it have got from there:

    gx[c, p] = sum over o, k of w[o, c, k] g[o, p - k]

This is a convolution of g: p - k where the convolution has p + k, so the kernels are turned, the
last row and column first. The sum runs over the output channels, so w's two dimensions of channels
change places. And g needs K - 1 zeros around it, less the padding of the convolution:

    a 3 x 3 kernel, no padding:     g 24 x 24  ->  28 x 28 with zeros  ->  gx 26 x 26

So nothing but sizes_of and the order of the weights in PACK is new. Rows of zeros need no products:
CONVOLVE leaves them out, in blocks of one row.

The trap: this is right for a stride of 1 only. With stride 2 each second p has other weights.

(PyTorch: oneDNN's backward by data. The output of a transposed convolution is this gradient.)

Changed: sizes_of, ConvolutionKernel.text, CONVOLVE.
Try: take the three lines about zeros out of CONVOLVE. The result stays; what is the time?
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


def blocked(node: Node, width: int, count: int) -> dict[str, int]:
    """The sizes of a convolution and of its blocks, for `count` registers of `width` bytes."""
    c, lanes = sizes_of(node), width // node.dtype.itemsize
    c |= {"LANES": lanes, **output_block(c, lanes, count)}
    vectors = -(-c["OUT_CHANNELS"] // lanes)
    return c | {"BLOCK": c["VECTORS"] * lanes, "BLOCKS": vectors // c["VECTORS"]}


class ConvolutionKernel(Kernel):
    """A convolution, or the gradient of its input, as a function in C.

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
        if node.op == "convolve_input":
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
    kernel = kernel_of("convolve_input", g, w, x)
    print({name: kernel.constants[name] for name in ("CHANNELS", "OUT_CHANNELS", "TOP", "TALL")})
    # -> {'CHANNELS': 64, 'OUT_CHANNELS': 32, 'TOP': 2, 'TALL': 1}
    gx, ours, eager = run(kernel, g, w)
    expected = convolution.convolve_input(g, w, None, kernel.nodes[0].args[2])
    print(gx.shape, np.allclose(gx, expected, atol=1e-3))  # -> (4, 32, 26, 26) True
    print(f"turned kernels: {ours} ms, eager: {eager} ms")  # -> ...

    # With padding, dilation and groups; the convolution itself is as before.
    x, w = rng.normal(size=(2, 8, 9, 9)), rng.normal(size=(12, 4, 3, 3))
    g = rng.normal(size=(2, 12, 7, 7))
    kernel = kernel_of("convolve_input", g, w, x, padding=1, dilation=2, groups=2)
    gx, *_ = run(kernel, g, w)
    print(kernel.constants["TOP"], kernel.memory)  # -> 3 {'packed': 6912, 'padded': 32448}
    expected = convolution.convolve_input(g, w, None, kernel.nodes[0].args[2])
    print(np.allclose(gx, expected))  # -> True
    kernel = kernel_of("convolve", x, w, g, padding=1, dilation=2, groups=2)
    y, *_ = run(kernel, x, w)
    print(np.allclose(y, convolution.convolve(x, w, None, kernel.nodes[0].args[2])))  # -> True
