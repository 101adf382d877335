"""Step cudacode04: CUDA: a maximum with nan, and the other reductions

Step cudacode03 has sums, means and products. The table of step operations01 has a formula for each
other reduction: `combined_max` takes the larger of two numbers, `combined_any` a | b.

max needs more than a formula: every comparison with nan is false, so max would skip a nan, while
NumPy's result is nan. As in C (step ccode06), each thread has an int that records whether it has
seen one. At the end of the row there are two trees instead of one:

    max_0_acc = combined_max(max_0_acc);        256 numbers -> 1
    max_0_nan = combined_any(max_0_nan);        256 ints -> 1, and all threads know it
    const float max_0 = max_0_nan ? NAN : max_0_acc;

The trap: max starts from -INFINITY, and the result of any is a uint8_t. NVRTC, the compiler that a
program calls while it runs, has no header files, so HEAD defines these names. nvcc, the compiler
for files, has the header files, and would refuse a second definition; hence the #ifdef.

(PyTorch's reductions on a GPU are trees too; its max uses a comparison that knows nan.)

Changed: HEAD, CUDAFunction.write_start, .reduced, .type_of_accumulator.
Try: remove the line that writes `combined_any`. Which line of the demo becomes False, and why?
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
# until one number is left.
COMBINED = """\
template <class V> __device__ V combined_{name}(V value) {{
    __shared__ V box[{threads}];
    box[threadIdx.x] = value;
    __syncthreads();
    for (int k = blockDim.x / 2; k >= 1; k /= 2) {{
        if (threadIdx.x < k) {{
            const V a = box[threadIdx.x], b = box[threadIdx.x + k];
            box[threadIdx.x] = {formula};
        }}
        __syncthreads();
    }}
    const V result = box[0];
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
    if max(kernel.passes.values()) == 0:  # no rows: a thread for each element
        return math.ceil(rows * elements / THREADS), THREADS
    return rows, THREADS


class CUDAFunction(CFunction):
    """Writes the CUDA function of one kernel.

    Without reductions, each thread has one element. With them, a block has a row, and each of its
    threads takes every 256th element of it.
    """

    def __init__(self, kernel: Kernel):
        super().__init__(kernel)
        self.single = max(kernel.passes.values()) == 0
        self.kept: set[Node] = set()  # a later pass computes it again

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
        else:
            self.write("const long long row = blockIdx.x;")
            self.count_out("row", range(kernel.outer))
        self.write_outer(0)
        for number in range(self.last + 1):
            self.write_pass(number, alone=False)

    def open_row(self, clauses: list[str], alone: bool) -> None:
        if self.single:
            return
        kernel = self.kernel
        loops = range(kernel.outer, len(kernel.sizes))
        self.open(f"for (long long i = threadIdx.x; i < {self.count}; i += blockDim.x)")
        self.count_out("i", loops)

    def write_start(self, node: Node) -> list[str]:
        """Each thread has an accumulator of its own."""
        name = f"{self.names[node]}_acc"
        self.write(f"{self.type_of_accumulator(node)} {name} = {self.start(node)};")
        if self.loses_nan(node):
            self.write(f"int {name.replace('_acc', '_nan')} = 0;")
        return []

    def reduced(self, node: Node) -> str:
        acc = self.accumulator(node)
        self.write(f"{acc} = combined_{node.op}({acc});")
        if self.loses_nan(node):
            nan = acc.replace("_acc", "_nan")
            self.write(f"{nan} = combined_any({nan});")
        return super().reduced(node)

    def type_of_accumulator(self, node: Node) -> str:
        """float for float: each thread adds few numbers, and then sums are added to sums."""
        return "int" if ACCUMULATORS[node.op].of_truth else C_TYPES[node.dtype.name]


if __name__ == "__main__":
    import importlib

    import numpy as np

    from tinytorch.compiler.capture import capture
    from tinytorch.compiler.fuse import fuse
    from tinytorch.compiler.graph import Graph
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

    # The largest of each row: two accumulators.
    rng = np.random.default_rng(0)
    x = tensor(rng.normal(size=(3, 300)).astype("f4"))
    graph, arrays = graph_of(lambda x: x.amax(1), x)
    print(body(play(graph, arrays)[1]))
    # -> void k0(const float* in0, float* out0) {
    # ->     const long long row = blockIdx.x;
    # ->     const long long i0 = row;
    # ->     float max_0_acc = (-INFINITY);
    # ->     int max_0_nan = 0;
    # ->     for (long long i = threadIdx.x; i < 300; i += blockDim.x) {
    # ->         const long long i1 = i;
    # ->         const float x0 = in0[i0 * 300 + i1];
    # ->         max_0_acc = x0 > max_0_acc ? x0 : max_0_acc;
    # ->         max_0_nan |= x0 != x0;
    # ->     }
    # ->     max_0_acc = combined_max(max_0_acc);
    # ->     max_0_nan = combined_any(max_0_nan);
    # ->     const float max_0 = max_0_nan ? NAN : max_0_acc;
    # ->     out0[i0] = max_0;
    # -> }

    # One nan makes its row's result nan, and leaves those of other rows alone.
    arrays[0][1, 7] = np.nan
    print(play(graph, arrays)[2], graph.run(np, arrays)[0].round(4))
    # -> True [3.066     nan 2.4724]

    # The other reductions, of floats, integers and bools.
    arrays[0][2] = 0
    for op, kind in (("min", "f4"), ("max", "i8"), ("min", "i8"), ("any", "f4"), ("all", "bool")):
        array = arrays[0][[0, 2]].astype(kind)
        a = Node("input", (), {}, array.shape, array.dtype)
        bools = op in ("any", "all")
        node = Node(op, (a,), {"axis": (1,)}, (2,), np.dtype(bool) if bools else a.dtype)
        _, source, right = play(Graph([a], [node], [node]), [array])
        print(op, kind, re.search(r"\w+ \w+_acc = .*;", source)[0], right)
    # -> min f4 float min_0_acc = INFINITY; True
    # -> max i8 int64_t max_0_acc = INT64_MIN; True
    # -> min i8 int64_t min_0_acc = 9223372036854775807; True
    # -> any f4 int any_0_acc = 0; True
    # -> all bool int all_0_acc = 1; True
