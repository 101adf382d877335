"""Step cudacode03: CUDA: a block for each row

The class of step cudacode02 gets the sum of a row wrong: every thread writes its own element to the
place of the sum, and the last one to write wins. The demo shows this first: a row of ones adds up
to 1.

The C code adds in a loop. On a GPU, a block takes the row, and its threads divide the loop:

    thread 0 takes elements 0, 256, 512 ...        each thread: an accumulator of its own
    thread 1 takes elements 1, 257, 513 ...
    ...
    combined: 256 numbers -> 128 -> 64 -> ... -> 1, eight steps in shared memory

Neighbouring threads read neighbouring elements, so the reads are coalesced (step kernel02). After
`combined_sum` all threads know the sum, and a later pass can go over the row again. The formula
for two numbers, a + b, is that of step operations01. CFunction writes the passes; only the loop
over a row and the end of a reduction are new.

The C code adds floats in a double. Here float is enough: a thread adds few numbers, then the sums
are added in pairs, and the error grows with the number of these steps, not with the length of the
row. On most GPUs, doubles are slow.

The trap is the last barrier of COMBINED. Without it, a fast thread could reach the next sum of the
kernel and overwrite box[0] before slow threads have read it.

Changed: helpers, launch_of, CUDAFunction. New: COMBINED, CUDAFunction.write_start,
.reduced, .type_of_accumulator.
Try: remove that barrier. Which line of the demo changes?
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
        return []

    def reduced(self, node: Node) -> str:
        acc = self.accumulator(node)
        self.write(f"{acc} = combined_{node.op}({acc});")
        return super().reduced(node)

    def type_of_accumulator(self, node: Node) -> str:
        """float for float: each thread adds few numbers, and then sums are added to sums."""
        return C_TYPES[node.dtype.name]


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

    def one_element(t, x, out):  # what step cudacode02 writes for a sum of rows
        if t.number < 900:
            out[t.number // 300] = x[t.number]

    out = np.zeros(3, int)
    launch(one_element, 4, 256, np.ones(900, int), out)
    print(out)  # -> [1 1 1]

    # A block for each row. The sum is there for all threads of the block, in the next pass, too.
    rng = np.random.default_rng(0)
    x = tensor(rng.normal(size=(3, 300)).astype("f4") + 1)
    (kernel,), source, right = play(*graph_of(lambda x: x / x.sum(1, keepdim=True), x))
    print(body(source))
    # -> void k0(const float* in0, float* out0) {
    # ->     const long long row = blockIdx.x;
    # ->     const long long i0 = row;
    # ->     float sum_0_acc = 0;
    # ->     for (long long i = threadIdx.x; i < 300; i += blockDim.x) {
    # ->         const long long i1 = i;
    # ->         const float x0 = in0[i0 * 300 + i1];
    # ->         sum_0_acc += x0;
    # ->     }
    # ->     sum_0_acc = combined_sum(sum_0_acc);
    # ->     const float sum_0 = sum_0_acc;
    # ->     for (long long i = threadIdx.x; i < 300; i += blockDim.x) {
    # ->         const long long i1 = i;
    # ->         const float x1 = in0[i0 * 300 + i1];
    # ->         const float divide_1 = x1 / sum_0;
    # ->         out0[i0 * 300 + i1] = divide_1;
    # ->     }
    # -> }
    print(kernel, launch_of(kernel), right)  # -> k0: 3 x 300 (sum, divide) (3, 256) True

    # Two reductions of the same kind, one after the other: here the last barrier counts.
    def variance(x):
        return (x - x.mean(1, keepdim=True)).square().sum(1) / 299

    (kernel,), source, right = play(*graph_of(variance, x))
    print(source.count("V combined_sum("), source.count("= combined_sum("), right)  # -> 1 2 True

    # A row may consist of several loops: the mean of a channel, over images and pixels.
    images = tensor(rng.normal(size=(2, 4, 30)).astype("f4"))
    (kernel,), source, right = play(*graph_of(lambda x: x.mean((0, 2)), images))
    print(kernel, re.findall(r"i\d = .*", source), right)
    # -> k0: 4 x 2 x 30 (sum, divide) ['i0 = row;', 'i2 = i % 30;', 'i1 = i / 30;'] True

    # The text for a row does not say how many rows there are. Kernels with the same text and other
    # numbers of blocks have functions of their own, so that a name has one launch.
    kernels, source, right = play(*graph_of(lambda x: (x.sum(1), x[:2].sum(1)), x))
    print(kernels, [launch_of(kernel) for kernel in kernels], right)
    # -> [k0: 3 x 300 (sum), k1: 2 x 300 (sum)] [(3, 256), (2, 256)] True

    # Other reductions; and without one, a thread has an element, as before.
    a = Node("input", (), {}, (3, 300), np.dtype("float32"))
    for op in ("mean", "prod"):
        node = Node(op, (a,), {"axis": (1,)}, (3,), a.dtype)
        (kernel,), source, right = play(Graph([a], [node], [node]), [x.array])
        print(kernel, right)
    # -> k0: 3 x 300 (mean) True
    # -> k0: 3 x 300 (prod) True
    (kernel,), source, right = play(*graph_of(lambda x: (x + 1).exp(), x))
    print(launch_of(kernel), "blockIdx.x * blockDim.x" in source, right)  # -> (4, 256) True True
