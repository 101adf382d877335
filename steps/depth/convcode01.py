"""Step convcode01: A convolution in C: seven loops

A graph has convolutions as operations (step tracer32), and the compiler leaves them to the array
library: eager copies windows of the input into large matrices and multiplies those (step conv01).
The copies take time, and the products do not know the sizes in advance. What does a convolution
take that is written in C, with all sizes as constants? The formula is seven loops:

    y[n, o, i, j] = sum over c, r, s of x[n, c, i * stride + r, j * stride + s] w[o, c, r, s]

over images n, output channels o, rows i, columns j, input channels c, rows r and columns s of the
kernel. The text of the loops is the same for all convolutions. Only the sizes are different: they
stand in an enum at the beginning, and the arrays get types with these sizes, so that C computes the
places of the elements:

    enum { IMAGES = 64, CHANNELS = 32, HEIGHT = 26, ... };
    const number (*x)[GROUPS][CHANNELS][HEIGHT][WIDTH] = (const void *)in0;
    x[n][m][c][i][j]

A convolution in one dimension has images of one row. Groups are a loop of their own.

The result is right, and slow. Each product waits for the sum of the one before, and the compiler
may not use vectors (step ccode13), since it would have to add in another order. The next lessons
change that.

(PyTorch calls oneDNN, which writes machine code for each size at run time.)

New: CONVOLVE, two, sizes_of, ConvolutionKernel, convolution_source.
Try: change the order of the loops, c before i, with a sum in y itself. Is it faster?
"""

from collections.abc import Sequence

from tinytorch.compiler.c_code import comment_of
from tinytorch.compiler.expressions import C_TYPES
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel

CONVOLVE = """\
    const number (*x)[GROUPS][CHANNELS][HEIGHT][WIDTH] = (const void *)in0;
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
    size, result = two(geo.x_shape[2:], 1), two(geo.out, 1)
    channels, out = geo.w_shape[1], geo.w_shape[0] // geo.groups
    names = "HEIGHT WIDTH ROWS COLUMNS OUT_HEIGHT OUT_WIDTH"
    names += " ROW_DILATION COLUMN_DILATION ROW_STRIDE COLUMN_STRIDE"
    values = *size, *kernel, *result, *dilation, *two(geo.stride, 1)
    found = {"IMAGES": geo.x_shape[0], "GROUPS": geo.groups, "CHANNELS": channels}
    return found | {"OUT_CHANNELS": out} | dict(zip(names.split(), values, strict=True))


class ConvolutionKernel(Kernel):
    """A convolution as a function in C.

    Attributes:
        constants: the sizes, by their names in C.
    """

    def __init__(self, node: Node, name: str, constants: dict[str, int]):
        super().__init__([node])
        self.name, self.constants = name, constants
        self.inputs, self.outputs, self.sizes = list(node.args[:2]), [node], node.shape

    def text(self) -> str:
        """The C function from the list of its parameters on."""
        node = self.nodes[0]
        kind = C_TYPES[node.dtype.name]
        given = [f"const {kind} *restrict in0", f"const {kind} *restrict in1"]
        given += [f"{kind} *restrict out0"]
        sizes = ", ".join(f"{name} = {value}" for name, value in self.constants.items())
        lines = [f"{', '.join([*given, 'int threads'])}) {{"]
        lines += [f"    enum {{ {sizes} }};", f"    typedef {kind} number;"]
        lines.append("    const number (*w)[OUT_CHANNELS][CHANNELS][ROWS][COLUMNS] = WEIGHTS;")
        text = "\n".join([*lines, CONVOLVE + "}\n"])
        return text.replace("WEIGHTS", "(const void *)in1")


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
    source = convolution_source([kernel])
    print("\n".join(line[:80] for line in source.splitlines()[:4]))
    # -> // conv, model.py:3
    # -> void convolution0(const float *restrict in0, const float *restrict in1, float *r
    # ->     enum { IMAGES = 4, GROUPS = 1, CHANNELS = 32, OUT_CHANNELS = 64, HEIGHT = 28
    # ->     typedef float number;
    y, ours, eager = run(kernel, x, w)
    expected = convolution.convolve(x, w, None, kernel.nodes[0].args[2])
    print(np.allclose(y, expected, atol=1e-3))  # -> True
    print(f"seven loops: {ours} ms, products of matrices: {eager} ms")  # -> ...

    # One dimension in float64, with a stride, a dilation and two groups.
    x, w = rng.normal(size=(2, 8, 20)), rng.normal(size=(6, 4, 3))
    kernel = kernel_of(x, w, stride=2, dilation=3, groups=2)
    y, *_ = run(kernel, x, w)
    print(y.shape, np.allclose(y, convolution.convolve(x, w, None, kernel.nodes[0].args[2])))
    # -> (2, 6, 7) True

    # Two layers with the same sizes share a function.
    twin = kernel_of(x, w, stride=2, dilation=3, groups=2)
    twin.name = "convolution1"
    print(
        convolution_source([kernel, twin]).count("void convolution"), twin.name
    )  # -> 1 convolution0
