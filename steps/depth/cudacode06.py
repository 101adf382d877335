"""Step cudacode06: CUDA: a tile of columns

The gradient of a bias is the sum over the batch: x.sum(0). A "row" of this reduction is a column
of the array. With a block for each column, the 32 threads of a warp would read 32 places that are
a row apart. Each read brings 32 bytes, of which 4 are used. For sums like this, kernel.columns
says that the last loop belongs to the results.

So a block takes 32 columns side by side, a tile:

    threads   0 ..  31    row 0, columns 0 .. 31         then row 8, 16, ...
    threads  32 ..  63    row 1                          then row 9, 17, ...
    ...
    threads 224 .. 255    row 7

A warp reads 128 contiguous bytes, and uses all of them. `combined` stops halving at a width of 32
numbers, one for each column: thread j and thread j + 32 k add for the same column.

The trap is the last tile. Threads beyond the last column must not return, as they do in step
cudacode02: the other threads would wait for them at the barrier. So they take the last column once
more, and write the same number to the same place as the thread that it belongs to, which is
harmless.

The module is finished. Its text has been compiled by NVIDIA's compiler, and by a C++ compiler with
a simulation of the threads (tests/compiler/test_cuda_code.py).

Changed: COMBINED, launch_of, CUDAFunction. New: TILE. Rows of at most 32 elements get 32 threads.
Try: let threads beyond the last column return, and read what the simulator says.
"""

import math
import re
from collections.abc import Iterator, Sequence

from tinytorch.compiler.c_code import CFunction, comment_of
from tinytorch.compiler.expressions import C_TYPES, DIVISIONS
from tinytorch.compiler.graph import Node
from tinytorch.compiler.kernel import Kernel
from tinytorch.compiler.operations import ACCUMULATORS

THREADS = 256  # of a block
TILE = 32  # columns of a block, where a block has several
SHARED_BYTES = 40 * 1024  # for the values of a row that a later pass needs

HEAD = """\
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT64_MIN (-9223372036854775807LL - 1)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#else
#include <stdint.h>
#endif
__device__ inline float erf_float(float x) { return erff(x); }
__device__ inline double erf_double(double x) { return erf(x); }
__device__ inline float exp_float(float x) { return expf(x); }
__device__ inline double exp_double(double x) { return exp(x); }
"""
# The threads of a block put their numbers side by side, and half of them add those of the others,
# until `width` numbers are left: one, or one for each column.
COMBINED = """\
template <class V> __device__ V combined_{name}(V value, int width) {{
    __shared__ V box[{threads}];
    box[threadIdx.x] = value;
    __syncthreads();
    for (int k = blockDim.x / 2; k >= width; k /= 2) {{
        if (threadIdx.x < k) {{
            const V a = box[threadIdx.x], b = box[threadIdx.x + k];
            box[threadIdx.x] = {formula};
        }}
        __syncthreads();
    }}
    const V result = box[threadIdx.x % width];
    __syncthreads();
    return result;
}}
"""


def cuda_source(kernels: Sequence[Kernel]) -> str:
    """One file with a function `NAME(inputs, outputs)` for each kernel; `launch_of` tells with how
    many threads it runs. Kernels that are the same, and run in as many, share a function."""
    names: dict[tuple, str] = {}
    functions = []
    for kernel in kernels:
        comment, text = comment_of(kernel), CUDAFunction(kernel).text()
        key = text, launch_of(kernel)
        if key not in names:
            names[key] = kernel.name
            functions.append(f'{comment}extern "C" __global__ void {kernel.name}({text}')
        kernel.name = names[key]
    body = "\n".join(functions)
    return "\n".join([HEAD, *helpers(body), body])


def helpers(body: str) -> Iterator[str]:
    """The functions that the kernels call and CUDA does not have."""
    for name in sorted(set(re.findall(r"\bcombined_(\w+)\(", body))):
        formula = ACCUMULATORS[name].combined("a", "b")
        yield COMBINED.format(name=name, formula=formula, threads=THREADS)
    for t in sorted(set(re.findall(r"\b(?:floor_divide|remainder)_(\w+)\(", body))):
        kind = "float" if t in ("float", "double") else "int"
        text = DIVISIONS[kind].format(t=t, f="f" if t == "float" else "")
        yield text.replace("static inline", "__device__ inline")


def launch_of(kernel: Kernel) -> tuple[int, int]:
    """How many blocks a kernel runs in, and how many threads each of them has."""
    rows = math.prod(kernel.sizes[: kernel.outer])
    elements = math.prod(kernel.sizes[kernel.outer :])
    if kernel.columns:
        return rows * math.ceil(kernel.sizes[-1] / TILE), THREADS
    if max(kernel.passes.values()) == 0:  # no rows: a thread for each element
        return math.ceil(rows * elements / THREADS), THREADS
    return rows, THREADS if elements > TILE else TILE


class CUDAFunction(CFunction):
    """Writes the CUDA function of one kernel.

    Without reductions, each thread has one element. With them, a block has a row (or a tile of
    columns), and each of its threads takes every 256th element of it (every 8th of its column).
    """

    def __init__(self, kernel: Kernel):
        super().__init__(kernel)
        self.in_blocks = False
        self.later: set[Node] = set()
        self.single = max(kernel.passes.values()) == 0 and not kernel.columns
        fits = self.count * sum(x.dtype.itemsize for x in kernel.kept) <= SHARED_BYTES
        self.kept = kernel.kept if fits else set()

    def text(self) -> str:
        given = []
        for x in (*self.kernel.inputs, *self.kernel.outputs):
            const = "const " * (x in self.kernel.inputs)
            given.append(f"{const}{self.c_type(x)}* {self.arrays[x]}")
        self.write_rows()
        return "\n".join([", ".join(given) + ") {", *self.lines, "}\n"])

    def count_out(self, number: str, loops: Sequence[int]) -> None:
        """The counters of some loops from the number of the round."""
        rest = 1
        for i in reversed(loops):
            size = self.kernel.sizes[i]
            value = number if rest == 1 else f"{number} / {rest}"
            wrapped = value if i == loops[0] else f"{value} % {size}"
            self.write(f"const long long {self.counters[i]} = {wrapped};")
            rest *= size

    def write_rows(self) -> None:
        kernel = self.kernel
        if self.single:
            self.write("const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;")
            self.write(f"if (i >= {math.prod(kernel.sizes)}) return;")
            self.count_out("i", range(len(kernel.sizes)))
        elif kernel.columns:
            tiles = math.ceil(kernel.sizes[-1] / TILE)
            last = kernel.sizes[-1] - 1
            self.counters[-1] = "column"
            self.write(f"const long long tile = blockIdx.x % {tiles};")
            self.write(f"const long long own = tile * {TILE} + threadIdx.x % {TILE};")
            self.write(f"const long long column = own < {last} ? own : {last};")
            if kernel.outer:
                self.write(f"const long long row = blockIdx.x / {tiles};")
                self.count_out("row", range(kernel.outer))
        else:
            self.write("const long long row = blockIdx.x;")
            self.count_out("row", range(kernel.outer))
        for node in kernel.nodes:
            if node in self.kept:
                name = f"{self.names[node]}_row[{self.count}]"
                self.write(f"__shared__ {self.c_type(node)} {name};")
        self.write_outer(0)
        for number in range(self.last + 1):
            self.write_pass(number, alone=False)

    def open_row(self, clauses: list[str], alone: bool) -> None:
        if self.single:
            return
        kernel = self.kernel
        loops = range(kernel.outer, len(kernel.sizes) - kernel.columns)
        first, step = "threadIdx.x", "blockDim.x"
        if kernel.columns:
            first, step = f"threadIdx.x / {TILE}", f"blockDim.x / {TILE}"
        self.open(f"for (long long i = {first}; i < {self.count}; i += {step})")
        self.count_out("i", loops)

    def write_start(self, node: Node) -> list[str]:
        """Each thread has an accumulator of its own."""
        name = f"{self.names[node]}_acc"
        self.write(f"{self.type_of_accumulator(node)} {name} = {self.start(node)};")
        if self.loses_nan(node):
            self.write(f"int {name.replace('_acc', '_nan')} = 0;")
        return []

    def reduced(self, node: Node) -> str:
        width = TILE if self.kernel.columns else 1
        acc = self.accumulator(node)
        self.write(f"{acc} = combined_{node.op}({acc}, {width});")
        if self.loses_nan(node):
            nan = acc.replace("_acc", "_nan")
            self.write(f"{nan} = combined_any({nan}, {width});")
        return super().reduced(node)

    def type_of_accumulator(self, node: Node) -> str:
        """float for float: each thread adds few numbers, and then sums are added to sums."""
        return "int" if ACCUMULATORS[node.op].of_truth else C_TYPES[node.dtype.name]


if __name__ == "__main__":
    import importlib

    import numpy as np

    from tinytorch.compiler.capture import capture
    from tinytorch.compiler.fuse import fuse
    from tinytorch.compiler.simplify import simplify
    from tinytorch.core.tensor import tensor
    from tinytorch.kernels.simulator import launch
    from tinytorch.kernels.translation import kernels_of

    for name in "comparison elementwise indexing reduction shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods

    def graph_of(function, *tensors):
        captured = capture(function, tensors, {}, list(tensors))
        return simplify(captured.graph), [source.array for source in captured.sources]

    def play(graph, arrays):
        """Runs the kernels of a graph on the simulator. Returns them, their text, and whether they
        give what NumPy gives."""
        kernels, values = fuse(graph), dict(zip(graph.inputs, arrays, strict=True))
        source = cuda_source(kernels)
        functions = kernels_of(source)
        for kernel in kernels:
            values |= {node: np.empty(node.shape, node.dtype) for node in kernel.outputs}
            memory = [values[node].ravel() for node in (*kernel.inputs, *kernel.outputs)]
            launch(functions[kernel.name], *launch_of(kernel), *memory)
        pairs = zip(graph.outputs, graph.run(np, arrays), strict=True)
        close = [np.allclose(values[node], x, 1e-5, 1e-6, equal_nan=True) for node, x in pairs]
        return kernels, source, all(close)

    def body(source):
        return source[source.index("void k0") :].strip()

    # What a warp of 32 threads reads, in pieces of 32 bytes: down a column, and side by side.
    down, side = {i * 70 * 4 // 32 for i in range(32)}, {j * 4 // 32 for j in range(32)}
    print(len(down), len(side))  # -> 32 4

    # 70 columns are three tiles. What a later pass needs (exp) goes through an array: shared memory
    # has no place for the columns of a long array.
    rng = np.random.default_rng(0)
    x = tensor(rng.normal(size=(30, 70)).astype("f4"))
    (kernel,), source, right = play(*graph_of(lambda x: x.exp() - x.sum(0), x))
    print(body(source))
    # -> void k0(const float* in0, float* out0, float* out1) {
    # ->     const long long tile = blockIdx.x % 3;
    # ->     const long long own = tile * 32 + threadIdx.x % 32;
    # ->     const long long column = own < 69 ? own : 69;
    # ->     float sum_1_acc = 0;
    # ->     for (long long i = threadIdx.x / 32; i < 30; i += blockDim.x / 32) {
    # ->         const long long i0 = i;
    # ->         const float x0 = in0[i0 * 70 + column];
    # ->         const float exp_0 = exp_float(x0);
    # ->         out1[i0 * 70 + column] = exp_0;
    # ->         sum_1_acc += x0;
    # ->     }
    # ->     sum_1_acc = combined_sum(sum_1_acc, 32);
    # ->     const float sum_1 = sum_1_acc;
    # ->     for (long long i = threadIdx.x / 32; i < 30; i += blockDim.x / 32) {
    # ->         const long long i0 = i;
    # ->         const float exp_0 = out1[i0 * 70 + column];
    # ->         const float subtract_2 = exp_0 - sum_1;
    # ->         out0[i0 * 70 + column] = subtract_2;
    # ->     }
    # -> }
    print(kernel, launch_of(kernel), right)  # -> k0: 30 x 70 (exp, sum, subtract) (3, 256) True

    # Several blocks of rows: two tiles for each of 6.
    y = tensor(rng.normal(size=(2, 3, 40, 33)).astype("f4"))
    (kernel,), source, right = play(*graph_of(lambda y: y.sum(2), y))
    print(kernel, re.findall(r"(?:row|i\d) = .*", source), launch_of(kernel), right)
    # -> k0: 6 x 40 x 33 (sum) ['row = blockIdx.x / 2;', 'i0 = row;', 'i1 = i;'] (12, 256) True

    # The nan of one column.
    graph, arrays = graph_of(lambda x: x.amax(0), x)
    arrays[0][3, 1] = np.nan
    (kernel,), source, right = play(graph, arrays)
    print(re.findall(r"= (combined_\w+\(max.*);", source), right)
    # -> ['combined_max(max_0_acc, 32)', 'combined_any(max_0_nan, 32)'] True

    # Short rows get 32 threads: others would have nothing to do.
    for n in (32, 33):
        (kernel,) = fuse(graph_of(lambda x: x.sum(1), x[:, :n])[0])
        print(launch_of(kernel))
    # -> (30, 32)
    # -> (30, 256)

    # Rows and elements, as before.
    for function in (lambda x: x / x.sum(1, keepdim=True), lambda x: x.exp()):
        (kernel,), source, right = play(*graph_of(function, x))
        print(kernel, launch_of(kernel), right)
    # -> k0: 30 x 70 (sum, divide) (30, 256) True
    # -> k0: 2100 (exp) (9, 256) True
