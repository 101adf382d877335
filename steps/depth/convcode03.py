"""Step convcode03: A convolution in C: a vector of output channels

The seven loops of step convcode01 take about 40 times as long as eager's products of matrices.
Where are vectors possible? Not over c, r and s: these are the sum. But the sums of 16 output
channels at one position are independent, and all of them read the same numbers of the input:

    sums[0..15] += x[n, c, i + r, j + s] * w[o..o+15, c, r, s]
      vector            one number              vector

So 16 numbers are multiplied and added by one instruction. The weights have to lie side by side for
that. In w the channel o is the slowest dimension, so PACK writes the weights in the order in which
the loops read them, once for each call:

    [OUT_CHANNELS][CHANNELS][ROWS][COLUMNS]  ->  [BLOCKS][CHANNELS][ROWS][COLUMNS][16]

If the number of channels is not a multiple of 16, the last block has zeros, and their sums are not
stored. The type `vector` is an extension of C that GCC and Clang have: vector_size(64) is 64 bytes,
16 floats or 8 doubles, and + and * work on all elements.

FUSED lets the processor do the product and the sum in one instruction, with one rounding. The flags
of step ccode01 forbid that, since NumPy rounds twice. But a product of matrices does it, too.

The trap: a vector that is read through a pointer has to begin at a multiple of its size.

New: FUSED, PACK, blocked. Changed: CONVOLVE, ConvolutionKernel, convolution_source.
Try: leave FUSED's attribute out. How much slower is it?
"""

from collections.abc import Sequence

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
    for (long i = 0; i < OUT_HEIGHT; i++) {
        for (long j = 0; j < OUT_WIDTH; j++) {
            vector sums = {0};
            const vector *weights = (const void *)packed[m][b];
            for (long c = 0; c < CHANNELS; c++)
                for (long r = 0; r < ROWS; r++) {
                    const long row = i * ROW_STRIDE + r * ROW_DILATION;
                    const number *from = &x[n][m][c][row][j * COLUMN_STRIDE];
                    #pragma GCC unroll COLUMNS
                    for (long s = 0; s < COLUMNS; s++, weights++)
                        sums += from[s * COLUMN_DILATION] * *weights;
                }
            const number *sum = (const void *)&sums;
            for (long k = 0; k < BLOCK && b * BLOCK + k < OUT_CHANNELS; k++)
                y[n][m][b * BLOCK + k][i][j] = sum[k];
        }
    }
"""


def two(sizes: Sequence[int], missing: int) -> tuple[int, int]:
    """Sizes of two dimensions: a convolution in one dimension has pictures of one row."""
    return (*(missing,) * (2 - len(sizes)), *sizes)


def sizes_of(node: Node) -> dict[str, int]:
    """The sizes of a convolution, by their names in C."""
    geo = node.args[2]
    kernel, dilation = two(geo.kernel, 1), two(geo.dilation, 1)
    size, result, padded = two(geo.x_shape[2:], 1), two(geo.out, 1), two(geo.padded[2:], 1)
    before = two([part.start for part in geo.inside[1:]], 0)
    channels, out = geo.w_shape[1], geo.w_shape[0] // geo.groups
    names = "HEIGHT WIDTH PADDED_HEIGHT PADDED_WIDTH TOP LEFT ROWS COLUMNS OUT_HEIGHT OUT_WIDTH"
    names += " ROW_DILATION COLUMN_DILATION ROW_STRIDE COLUMN_STRIDE"
    values = *size, *padded, *before, *kernel, *result, *dilation, *two(geo.stride, 1)
    found = {"IMAGES": geo.x_shape[0], "GROUPS": geo.groups, "CHANNELS": channels}
    return found | {"OUT_CHANNELS": out} | dict(zip(names.split(), values, strict=True))


def blocked(node: Node, width: int) -> dict[str, int]:
    """The sizes of a convolution and of its blocks, for registers of `width` bytes."""
    c, lanes = sizes_of(node), width // node.dtype.itemsize
    return c | {"LANES": lanes, "BLOCK": lanes, "BLOCKS": -(-c["OUT_CHANNELS"] // lanes)}


class ConvolutionKernel(Kernel):
    """A convolution as a function in C.

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
    import functools
    import time

    import numpy as np

    from tinytorch.compiler.build import CompilerError, build
    from tinytorch.compiler.c_code import FLAGS, LIBRARIES, c_file
    from tinytorch.ops import convolution

    def kernel_of(x, w, stride=1, padding=0, dilation=1, groups=1):
        """The kernel of a convolution of these arrays."""
        n, inputs = x.ndim - 2, [Node("input", (), {}, a.shape, a.dtype) for a in (x, w)]
        options = (stride,) * n, ((padding, padding),) * n, (dilation,) * n, groups
        geo = convolution.geometry(x.shape, w.shape, *options)
        node = Node("convolve", (*inputs, geo), {}, geo.y_shape, x.dtype, "conv", "model.py:3")
        return ConvolutionKernel(node, "convolution0", blocked(node, 64))

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
    x = rng.normal(size=(4, 32, 28, 28)).astype(np.float32)
    w = rng.normal(size=(64, 32, 3, 3)).astype(np.float32)
    kernel = kernel_of(x, w)
    print({name: kernel.constants[name] for name in ("LANES", "BLOCK", "BLOCKS")})
    # -> {'LANES': 16, 'BLOCK': 16, 'BLOCKS': 4}
    y, ours, eager = run(kernel, x, w)
    expected = convolution.convolve(x, w, None, kernel.nodes[0].args[2])
    print(np.allclose(y, expected, atol=1e-3))  # -> True
    print(f"a vector: {ours} ms, products of matrices: {eager} ms")  # -> ...

    # 10 channels in float64 are two vectors of 8; those of the second are mostly zeros.
    x, w = rng.normal(size=(2, 8, 9, 9)), rng.normal(size=(10, 8, 3, 3))
    kernel = kernel_of(x, w, padding=1)
    y, *_ = run(kernel, x, w)
    print(kernel.constants["BLOCKS"], kernel.memory)
    # -> 2 {'packed': 9216, 'padded': 15488}
    print(np.allclose(y, convolution.convolve(x, w, None, kernel.nodes[0].args[2])))  # -> True
    print(repr(convolution_source([])))  # -> ''
