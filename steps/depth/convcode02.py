"""Step convcode02: A convolution in C: zeros around an image

The loops of step convcode01 read outside of an image where a convolution has padding. There are two
ways to get the zeros. A test at each element, "is this position inside?", costs more than the
product for which it is made. So the function first makes a copy of the input with zeros around it,
as eager does (Geometry.pad), and the loops read the copy:

    memory      [IMAGES][CHANNELS][PADDED_HEIGHT][PADDED_WIDTH]
    for each image and channel: zeros everywhere, then each row of the input to its place

The function does not allocate the memory. It says in `memory` how much it needs, and gets it as a
further argument: a program can plan it, and use the same memory for other things before and after
(step program04).

The trap: the function may not keep the copy in a static array. Two threads may run it at once.

(PyTorch's oneDNN has no copy: it has other loops for the border.)

New: PAD. Changed: CONVOLVE reads what SOURCE stands for; sizes_of, ConvolutionKernel.
Try: leave the memset out. Which elements of the result become wrong, and do they always?
"""

from collections.abc import Sequence

from tinytorch.compiler.c_code import comment_of
from tinytorch.compiler.expressions import C_TYPES
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel

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
CONVOLVE = """\
    const number (*x)[GROUPS][CHANNELS][PADDED_HEIGHT][PADDED_WIDTH] = (const void *)SOURCE;
    number (*y)[GROUPS][OUT_CHANNELS][OUT_HEIGHT][OUT_WIDTH] = (void *)out0;
    #pragma omp parallel for collapse(3) num_threads(threads) if(threads > 1)
    for (long n = 0; n < IMAGES; n++)
    for (long m = 0; m < GROUPS; m++)
    for (long o = 0; o < OUT_CHANNELS; o++)
    for (long i = 0; i < OUT_HEIGHT; i++)
        for (long j = 0; j < OUT_WIDTH; j++) {
            number sum = 0;
            for (long c = 0; c < CHANNELS; c++)
                for (long r = 0; r < ROWS; r++) {
                    const number *row = x[n][m][c][i * ROW_STRIDE + r * ROW_DILATION];
                    for (long s = 0; s < COLUMNS; s++)
                        sum += row[j * COLUMN_STRIDE + s * COLUMN_DILATION] * w[m][o][c][r][s];
                }
            y[n][m][o][i][j] = sum;
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
        sizes = {}
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
        lines = [f"{', '.join([*given, 'int threads'])}) {{"]
        lines += [f"    enum {{ {sizes} }};", f"    typedef {kind} number;"]
        body, source = "", "in0"
        if "padded" in self.memory:
            body, source = PAD, "padded"
        lines.append("    const number (*w)[OUT_CHANNELS][CHANNELS][ROWS][COLUMNS] = WEIGHTS;")
        body += CONVOLVE
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
            functions.append(f"{comment_of(kernel)}void {kernel.name}({text}")
        kernel.name = names[text]
    return "\n".join(functions)


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
        return ConvolutionKernel(node, "convolution0", sizes_of(node))

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
    x = rng.normal(size=(2, 8, 9, 9)).astype(np.float32)
    w = rng.normal(size=(16, 8, 3, 3)).astype(np.float32)
    kernel = kernel_of(x, w)
    print(kernel.memory)  # -> {}
    kernel = kernel_of(x, w, padding=1)
    print(kernel.memory, 2 * 8 * 11 * 11 * 4)  # -> {'padded': 7744} 7744
    y, ours, eager = run(kernel, x, w)
    expected = convolution.convolve(x, w, None, kernel.nodes[0].args[2])
    print(y.shape, np.allclose(y, expected, atol=1e-4))  # -> (2, 16, 9, 9) True
    print(convolution_source([kernel]).count("padded_memory"))  # -> 2
