"""Step 101w: Convolutions in the program

The functions of steps 100w to 101v are faster than eager's products of matrices, mostly 2 to 4
times, but not for all convolutions. `covered` decides, from what was measured:

    in C                                      a call of the array library
    --------------------------------------    ------------------------------------------------
    one and two dimensions, float32, float64  three dimensions, halves
    sums of 32 products or more               the first layer of one or three channels, 3 x 3
    output channels for a quarter vector      a single channel in each group (depthwise)
    a stride, but not in the input's gradient the input's gradient with a stride

A first layer writes much and computes little: there the scattered writes of a block cost more than
the sums. The gradient of a weight has long sums always.

In the program such a node becomes a kernel like any other: it has inputs and outputs, and writes
into planned memory. What it needs for itself comes from the same plan. `scratch` takes the buffers
and gives them back at once, since the next step may have them.

The trap: two layers with the same sizes share a function and its name, but not their scratch
memory. Its names have the number of the node.

(PyTorch's Inductor has templates for some convolutions, and calls oneDNN or cuDNN for the others.)

New: SHORTEST_SUM, covered, convolution_kernel, Writer.scratch. Changed: Writer.kernel_call,
callers, compiled_c, compile_graph.
Try: SHORTEST_SUM = 1, and measure the first layer of the network in benchmarks/programs.py.
"""

import ctypes
import functools
import itertools
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.build import CompilerError, build, find_compiler, run_compiler
from tinytorch.compiler.c_code import FLAGS, LIBRARIES, c_source, comment_of
from tinytorch.compiler.cuda_code import cuda_source, launch_of
from tinytorch.compiler.expressions import C_TYPES
from tinytorch.compiler.fuse import fuse
from tinytorch.compiler.graph import (
    EFFECTS,
    VIEWS,
    CheckFailed,
    Graph,
    Node,
    perform,
)
from tinytorch.compiler.kernel import Kernel
from tinytorch.compiler.memory import Lives, Memory, array_at, block, makes, reads
from tinytorch.compiler.numpy_code import Text
from tinytorch.threads import blas_libraries

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
    return long and c["COLUMNS"] <= 16 and 4 * c["OUT_CHANNELS"] * node.dtype.itemsize >= width


def convolution_kernel(node: Node, name: str) -> ConvolutionKernel | None:
    """The kernel of a node of the graph; None where it is to stay a call of the array library."""
    if node.op not in ("convolve", "convolve_input", "convolve_weight"):
        return None
    width, count = registers(tuple(find_compiler()))
    if not covered(node, width):
        return None
    return ConvolutionKernel(node, name, blocked(node, width, count))


class Writer:
    """Writes the text of a program. A value's name says where it is:

        x3  an input, as it was given            c4  a constant
        v5  in the program's own memory, or a view of what is there, made once for all runs
        o6  an array that leaves the program, new in each run
        t7  whatever else an operation gives in a run

    The number is that of the node in str(graph).

    Attributes:
        layout: for each value whose strides are known, an array that has them, too.
        head: what is done once: text, and the number of the buffer whose place stands in it.
        start, lines: what each run does, before all else and then.
        released, forgotten: the buffers and names that are not needed after a step.
    """

    def __init__(self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int]):
        self.graph, self.text, self.memory = graph, Text(xp, self.name_of), Memory()
        self.number = {node: i for i, node in enumerate((*graph.inputs, *graph.nodes))}
        self.steps = [x for x in steps if makes(x) and getattr(x, "op", "") != "constant"]
        self.by_kernels = {x for step in steps if isinstance(step, Kernel) for x in makes(step)}
        self.lives = Lives(graph, self.steps, shared, self.can_hold)
        self.names = {node: f"x{self.number[node]}" for node in graph.inputs}
        arrays = [node for node in self.number if node.shape is not None]
        size = max((math.prod(x.shape) * x.dtype.itemsize for x in arrays), default=0)
        self.paper = np.empty(size, np.uint8)  # all layouts are in it; never read or written
        self.layout: dict[Node, np.ndarray] = {}
        self.head: list[tuple[str, int]] = []
        self.start: list[str] = []
        self.lines: list[str] = []
        self.released: dict[int, list[int]] = defaultdict(list)
        self.forgotten: dict[int, list[str]] = defaultdict(list)
        self.write()

    def can_hold(self, node: Node) -> bool:
        """Whether a value can be computed into memory that is there already."""
        return node in self.by_kernels or self.text.writes_out(node)

    def name_of(self, node: Node) -> str:
        if node not in self.names:
            self.names[node] = self.text.named(f"c{self.number[node]}", node.args[0])
            if isinstance(node.args[0], np.ndarray):
                self.layout[node] = node.args[0]
        return self.names[node]

    def result(self, node: Node) -> str:
        """The name of an array that an operation is to write its result into."""
        self.layout[node] = np.ndarray(node.shape, node.dtype, self.paper)
        kind = f"{self.text.of(node.shape)}, {self.text.of(node.dtype)}"
        if node in self.lives.escaping:
            name = f"o{self.number[node]}"
            self.start.append(f"{name} = empty({kind})")
        else:
            name, buffer = f"v{self.number[node]}", self.memory.take(self.layout[node].nbytes)
            self.head.append((f"{name} = array_at(memory, {{}}, {kind})", buffer))
            self.released[self.lives.last[node]].append(buffer)
        self.names[node] = name
        return name

    def temporary(self, node: Node) -> str:
        """A name for what an operation gives in a run, deleted as soon as it is not needed."""
        name, roots = f"t{self.number[node]}", self.lives.roots[node]
        if not any(root.op == "input" for root in roots):
            self.forgotten[min(self.lives.last[root] for root in roots)].append(name)
        self.names[node] = name
        return name

    def write(self) -> None:
        for i, step in enumerate(self.steps):
            if isinstance(step, Node):
                line = self.statement(step)
                made = ", ".join(x for x in (step.made_by, step.line) if x)
            else:
                line = self.kernel_call(step)
                made = ", ".join(dict.fromkeys(x.made_by for x in step.nodes if x.made_by))
            if line:
                self.lines.append(f"{line}  # {made}" if made else line)
            self.memory.free += self.released.pop(i, [])
            if i in self.forgotten:
                self.lines.append(f"del {', '.join(self.forgotten.pop(i))}")
        outputs = [self.output(*numbered) for numbered in enumerate(self.graph.outputs)]
        self.lines.append(f"return [{', '.join(outputs)}]")

    def statement(self, node: Node) -> str:
        """The text of one operation; none where it is done once, before all runs."""
        if node.op == "check":
            return self.text.expression(node)
        if node.op == "put" and self.can_hold(node):
            return self.put(node)
        if node.op in VIEWS or node.op == "view_as":
            return self.view(node)
        if self.can_hold(node):
            return self.text.expression(node, self.result(node))
        text = self.text.expression(node)
        return f"{self.temporary(node)} = {text}"

    def view(self, node: Node) -> str:
        base, text = node.args[0], self.text.expression(node)
        like, shows = self.layout.get(base), True
        if like is not None:
            self.layout[node] = perform(np, node.op, (like, *node.args[1:]), {})
            shows = 0 in node.shape or np.may_share_memory(self.layout[node], like)
        if self.names[base][0] not in "vc" or not shows:  # a reshape may have to copy
            return f"{self.temporary(node)} = {text}"
        self.names[node] = f"v{self.number[node]}"
        self.head.append((f"{self.names[node]} = {text}", 0))
        return ""

    def put(self, node: Node) -> str:
        target, value, (*views, (_, (key,))) = node.args
        before = self.name_of(target)
        if node in self.lives.in_place:
            self.names[node], self.layout[node] = before, self.layout[target]
        else:
            self.lines.append(f"copyto({self.result(node)}, {before})")
        part = self.names[node]
        for op, args in views:
            part = self.text.view(part, op, args)
        if views and part[0] == "v":
            self.head.append((f"p{self.number[node]} = {part}", 0))
            part = f"p{self.number[node]}"
        return f"{part}[{self.text.key(key)}] = {self.text.of(value)}"

    def kernel_call(self, kernel: Kernel) -> str:
        arrays = [self.in_a_row(node) for node in kernel.inputs]
        arrays += [self.result(node) for node in kernel.outputs]
        arrays += self.scratch(kernel) if isinstance(kernel, ConvolutionKernel) else []
        return f"{kernel.name}(({', '.join(arrays)},), threads)"

    def scratch(self, kernel: ConvolutionKernel) -> list[str]:
        """The names of arrays that a kernel writes for itself. Others may have them after it."""
        names, buffers = [], [self.memory.take(size) for size in kernel.memory.values()]
        for (name, size), buffer in zip(kernel.memory.items(), buffers, strict=True):
            # The number of the node: kernels that are the same have one name.
            names.append(f"{name}{self.number[kernel.nodes[0]]}")
            kind = f"({size},), {self.text.of(np.dtype(np.uint8))}"
            self.head.append((f"{names[-1]} = array_at(memory, {{}}, {kind})", buffer))
        self.memory.free += buffers
        return names

    def in_a_row(self, node: Node) -> str:
        """The text of an array that has the elements of a value in a row, as kernels need it."""
        name, like = self.name_of(node), self.layout.get(node)
        known = like is not None and like.flags.c_contiguous
        return name if known else f"contiguous({name})"

    def output(self, number: int, node: Node) -> str:
        name = self.name_of(node) + ".copy()" * (number in self.lives.copied)
        return f"asarray({name})" if node.shape == () and name[0] == "t" else name

    def python_text(self) -> str:
        """The text of a module: the arrays in the program's memory, and the function `run`."""
        offsets = self.memory.offsets()
        head = [x.format(offsets[number]) if "{}" in x else x for x, number in self.head]
        given = "".join(f"x{i}, " for i in range(len(self.graph.inputs)))
        start = [f"{given}= arrays"] * bool(given) + self.start
        start += ["threads = threads_now()"] * bool(self.by_kernels)
        return "\n".join(
            [*head, "", "def run(arrays):", *(f"    {x}" for x in (*start, *self.lines)), ""]
        )


@functools.cache
def thread_counter() -> Callable[[], int]:
    """What get_num_threads asks, found once: the function of BLAS itself takes no microsecond."""
    try:
        library = blas_libraries().lib_controllers[0]
    except (ImportError, IndexError):
        return lambda: 1
    name = "scipy_openblas_get_num_threads64_"  # as in the packages of NumPy
    return getattr(library.dynlib, name, library.get_num_threads)


def threads_now() -> int:
    """The number of threads that get_num_threads() gives."""
    return thread_counter()()


def callers(kernels: Sequence[Kernel]) -> str:
    """A function in C for each kernel that takes the kernel's arrays in a tuple of Python.

    It reads their addresses where CPython and NumPy keep them: a ctypes call with one argument
    takes a third of the time of one with ten.

    Raises:
        CompilerError: they keep them elsewhere, in this version.
    """
    word, array = ctypes.sizeof(ctypes.c_void_p), np.empty(1)
    at, pair = ctypes.c_void_p.from_address, (None, array)
    item = at(id(pair) + tuple.__basicsize__ + word).value
    if item != id(array) or at(item + object.__basicsize__).value != array.ctypes.data:
        raise CompilerError("the addresses of arrays are not where they are expected")
    lines = [
        "\n// Arrays from a tuple of Python: its items, and where an array has its elements.",
        f"#define ITEM(i) (*(char **)(arrays + {tuple.__basicsize__} + {word} * i))",
        f"#define AT(i) (*(void **)(ITEM(i) + {object.__basicsize__}))",
    ]
    for name, kernel in {kernel.name: kernel for kernel in kernels}.items():
        count = len(kernel.inputs) + len(kernel.outputs) + len(getattr(kernel, "memory", ()))
        given = "".join(f"AT({i}), " for i in range(count))
        lines.append(f"void call_{name}(char *arrays, int threads) {{ {name}({given}threads); }}")
    return "\n".join([*lines, ""])


def build_kernels(source: str) -> ctypes.CDLL:
    """The library of generated C.

    Raises:
        CompilerError: see build. Where the compiler does not take a line, the message names the
            operations of the program that the line is made for.
    """
    try:
        return build(source, [*FLAGS, *LIBRARIES])
    except CompilerError as error:
        found = re.search(r"kernels\.c:(\d+)", str(error))
        before = source.splitlines()[: int(found[1])] if found else []
        comments = re.findall(r"((?:^// .*\n)+)", "\n".join(before), re.MULTILINE)
        raise CompilerError("\n".join([str(error), *comments[-1:]])) from error


def compiled_c(kernels: Sequence[Kernel]) -> tuple[str, dict[str, Callable]]:
    """The text of kernels in C, and what calls them: name -> function(arrays, threads)."""
    loops = [kernel for kernel in kernels if not isinstance(kernel, ConvolutionKernel)]
    direct = [kernel for kernel in kernels if isinstance(kernel, ConvolutionKernel)]
    source = c_source(loops) + convolution_source(direct) + callers(kernels)
    library, functions = build_kernels(source), {}
    for kernel in kernels:
        function = functions[kernel.name] = library[f"call_{kernel.name}"]
        function.argtypes, function.restype = [ctypes.py_object, ctypes.c_int], None
    return source, functions


def compiled_cuda(xp: Any, kernels: Sequence[Kernel]) -> tuple[str, dict[str, Callable]]:
    """The text of kernels in CUDA, and what starts them, as in compiled_c.

    Raises:
        CompilerError: NVIDIA's compiler does not take it.
    """
    source = cuda_source(kernels)

    def launcher(function: Callable, blocks: int, threads: int) -> Callable:
        return lambda arrays, _: function((blocks,), (threads,), arrays)

    try:
        module = xp.RawModule(code=source)
        found = {kernel.name: module.get_function(kernel.name) for kernel in kernels}
    except Exception as error:
        raise CompilerError(f"the CUDA compiler failed: {error}") from error
    return source, {
        kernel.name: launcher(found[kernel.name], *launch_of(kernel)) for kernel in kernels
    }


class Program:
    """Computes what a graph computes: program(arrays) gives the list of its outputs.

    Attributes:
        schedule: the kernels and nodes that a run goes through.
        python_source, c_source: the generated texts.
        bytes: the memory that a run needs for what does not leave the program.
        bytes_of_all: what it would need if no memory were used again.
        idle: functions that run the program, each with memory of its own.
    """

    count = itertools.count()

    def __init__(self, graph: Graph, steps: Sequence, xp: Any, shared: Collection[int]):
        self.schedule, self.xp, self.idle = list(steps), xp, []
        self.names: dict[str, Any] = {"array_at": array_at, "threads_now": thread_counter()}
        self.c_source = ""
        if kernels := [step for step in steps if isinstance(step, Kernel)]:
            found = compiled_c(kernels) if xp is np else compiled_cuda(xp, kernels)
            self.c_source, functions = found
            self.names |= functions
        writer = Writer(graph, steps, xp, shared)
        self.python_source = writer.python_text()
        self.bytes, self.bytes_of_all = writer.memory.offsets()[-1], writer.memory.asked
        self.names |= {"empty": xp.empty, "asarray": xp.asarray, "copyto": xp.copyto}
        self.names |= {"contiguous": xp.ascontiguousarray, **writer.text.names}
        self.file = f"<program {next(Program.count)}>"
        self.code = compile(self.python_source, self.file, "exec")

    @property
    def source(self) -> str:
        """Both texts."""
        return f"{self.python_source}\n{self.c_source}"

    def prepared(self) -> Callable:
        """A function that runs the program, with memory of its own."""
        names = {**self.names, "memory": block(self.xp, self.bytes)}
        exec(self.code, names)
        return names.pop("run")  # no cycle: the memory goes with the program

    def __call__(self, arrays: Sequence) -> list:
        """The graph's outputs for these inputs, which are not changed. Threads may call it.

        Raises:
            CheckFailed: see Graph.run.
        """
        try:
            run = self.idle.pop()
        except IndexError:
            run = self.prepared()
        try:
            return run(arrays)
        except Exception as error:
            self.explain(error)
            raise
        finally:
            self.idle.append(run)

    def explain(self, error: Exception) -> None:
        """Adds to an error the line of the generated code, which names the program's operation."""
        step = error.__traceback__
        while step is not None:
            if step.tb_frame.f_code.co_filename == self.file:
                line = self.python_source.splitlines()[step.tb_lineno - 1].strip()
                if isinstance(error, CheckFailed):
                    error.args = (f"{error}: {line}",)
                error.add_note(f"in the compiled program: {line}")
            step = step.tb_next


def soon(steps: Sequence[Node | Kernel]) -> list[Node | Kernel]:
    """The steps in an order in which those that no other step reads, such as the product that
    gives the gradient of a weight, run as soon as they can: what they read is in the cache then,
    and its memory is free afterwards. So do views, which cost nothing.

    The key of a step is its number. That of a step which runs early is the largest key of what it
    reads: it follows that at once.
    """
    read = {node for step in steps for node in reads(step)}
    made: dict[Node, int] = {}
    keys = []
    for i, step in enumerate(steps):
        last = not any(x in read or x.op in EFFECTS for x in makes(step))
        early = last or getattr(step, "op", "") in VIEWS
        keys.append(max((made.get(x, -1) for x in reads(step)), default=i) if early else i)
        made.update(dict.fromkeys(makes(step), keys[-1]))
    return [steps[i] for i in sorted(range(len(steps)), key=lambda i: (keys[i], i))]


def compile_graph(
    graph: Graph, backend: str = "c", xp: Any = np, shared: Collection[int] = ()
) -> Program:
    """A program that gives what the graph gives.

    Args:
        backend: "c" on the CPU, "cuda" on a GPU: kernels, and what they cannot do in calls of the
            array library; "numpy": calls of the array library only.
        shared: the numbers of outputs that may show the memory of inputs and of other outputs,
            because nothing writes into them. All others have memory of their own.

    Raises:
        CompilerError: the backend has kernels, and there is no compiler, or it does not work.
    """
    steps = graph.nodes if backend == "numpy" else fuse(graph)
    if backend == "c":
        numbered = ((f"convolution{i}", step) for i, step in enumerate(steps))
        steps = [x if isinstance(x, Kernel) else convolution_kernel(x, n) or x for n, x in numbered]
    return Program(graph, soon(steps), xp, shared)


if __name__ == "__main__":
    import importlib
    import time

    from tinytorch.compiler.capture import capture
    from tinytorch.compiler.simplify import simplify
    from tinytorch.nn.activation import relu
    from tinytorch.nn.conv import conv1d, conv2d, conv3d
    from tinytorch.ops.random import manual_seed, randn

    for name in "comparison indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods

    # Two layers with the same sizes and the loops between them.
    def f(x, v, w):
        return relu(conv2d(relu(conv2d(x, v, padding=1)), w, padding=1))

    manual_seed(0)
    x, v, w = randn(8, 32, 16, 16), randn(32, 32, 3, 3), randn(32, 32, 3, 3)
    graph = simplify(capture(f, (x, v, w), {}, [x, v, w]).graph)
    program, plain = compile_graph(graph), compile_graph(graph, "numpy")
    lines = [line.partition("  # ")[0].strip() for line in program.python_source.splitlines()]
    print("\n".join(line for line in lines if line.startswith(("packed", "conv", "k"))))
    # -> packed3 = array_at(memory, 262144, (36864,), uint8)
    # -> packed5 = array_at(memory, 262144, (36864,), uint8)
    # -> convolution0((contiguous(x0), contiguous(x1), v3, packed3, padded3,), threads)
    # -> k0((v3, v4,), threads)
    # -> convolution0((v4, contiguous(x2), v5, packed5, padded5,), threads)
    # -> k0((v5, o6,), threads)
    arrays = [x.array, v.array, w.array]
    expected = f(x, v, w).array
    for function in (program, plain):
        print(abs(function(arrays)[0] - expected).max() < 1e-2)  # -> True

    def milliseconds(function):
        function(arrays)
        start = time.perf_counter()
        for _ in range(10):
            function(arrays)
        return (time.perf_counter() - start) * 100

    print(f"C: {milliseconds(program):.1f} ms, NumPy: {milliseconds(plain):.1f} ms")  # -> ...

    # What stays a call of the array library.
    def steps(function, *tensors):
        tensors = [x.requires_grad_() for x in tensors]
        captured = capture(function, tensors, {}, tensors)
        return [
            step.op if isinstance(step, Node) else step.name.rstrip("0123456789")
            for graph in (captured.graph, captured.backward)
            for step in compile_graph(graph).schedule
            if "conv" in getattr(step, "op", "conv")
        ]

    print(steps(conv2d, randn(2, 32, 8, 8), randn(32, 32, 3, 3)))
    # -> ['convolution', 'convolution', 'convolution']
    print(steps(conv2d, randn(2, 1, 8, 8), randn(32, 1, 3, 3)))  # a first layer
    # -> ['convolve', 'convolve_input', 'convolution']
    print(steps(lambda x, w: conv1d(x, w, stride=2), randn(2, 32, 9), randn(32, 32, 3)))
    # -> ['convolution', 'convolve_input', 'convolution']
    print(steps(conv3d, randn(2, 32, 4, 4, 4), randn(32, 32, 3, 3, 3)))
    # -> ['convolve', 'convolve_input', 'convolve_weight']
