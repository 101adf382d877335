"""Step cudacode02: CUDA: a thread for each element

So far the kernels of this topic are loops in C, for a CPU. A GPU does not need a loop over
elements: it starts a thread for each of them (the run kernel). So the same Kernel gets another
text, without loops. Each thread computes the indices of its element from its number:

    for (long i0 = 0; i0 < 6; i0++)              i  = blockIdx.x * blockDim.x + threadIdx.x
        for (long i1 = 0; i1 < 50; i1++)         i1 = i % 50
            out0[i0 * 50 + i1] = ...             i0 = i / 50

The last line is the same for both, and so is all that CFunction does for loads, values and stores.
CUDAFunction inherits from it, and replaces the text around that line.

`launch_of` returns the number of blocks of 256 threads. 300 elements take two blocks, 512 threads;
the threads beyond the last element return at once. CUDA has most of C's functions; HEAD and
`helpers` supply the rest.

The trap: blockIdx.x and blockDim.x are unsigned ints of 32 bits. Without the cast to (long long),
element number 2 ** 32 would be element 0.

The demo runs the kernels on the simulator, as step cudacode01 does. (PyTorch's compiler writes
Triton for a GPU. There a program has a block of elements instead of one, and finds it with
tl.program_id.)

New: THREADS, HEAD, cuda_source, helpers, launch_of, CUDAFunction.
Try: remove the line with `return;`. Which index does the simulator report?
"""

import math
import re
from collections.abc import Iterator, Sequence

from tinytorch.compiler.c_code import CFunction, comment_of
from tinytorch.compiler.expressions import DIVISIONS
from tinytorch.compiler.kernel import Kernel

THREADS = 256  # of a block

HEAD = """\
__device__ inline float erf_float(float x) { return erff(x); }
__device__ inline double erf_double(double x) { return erf(x); }
__device__ inline float exp_float(float x) { return expf(x); }
__device__ inline double exp_double(double x) { return exp(x); }
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
    for t in sorted(set(re.findall(r"\b(?:floor_divide|remainder)_(\w+)\(", body))):
        kind = "float" if t in ("float", "double") else "int"
        text = DIVISIONS[kind].format(t=t, f="f" if t == "float" else "")
        yield text.replace("static inline", "__device__ inline")


def launch_of(kernel: Kernel) -> tuple[int, int]:
    """How many blocks a kernel runs in, and how many threads each of them has."""
    return math.ceil(math.prod(kernel.sizes) / THREADS), THREADS


class CUDAFunction(CFunction):
    """Writes the CUDA function of one kernel.

    Each thread has one element.
    """

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
        self.write("const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;")
        self.write(f"if (i >= {math.prod(kernel.sizes)}) return;")
        self.count_out("i", range(len(kernel.sizes)))
        self.write_outer(0)
        self.write_pass(0, alone=False)

    def open_row(self, clauses: list[str], alone: bool) -> None:
        """There is nothing to open: the threads are the loops."""


if __name__ == "__main__":
    import importlib

    import numpy as np

    from tinytorch.compiler.capture import capture
    from tinytorch.compiler.fuse import fuse
    from tinytorch.compiler.simplify import simplify
    from tinytorch.core.tensor import tensor
    from tinytorch.kernels.simulator import launch
    from tinytorch.kernels.translation import kernels_of
    from tinytorch.nn.modules.activation import relu

    for name in "elementwise indexing reduction shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods

    def play(function, *tensors):
        """Runs the kernels of a function on the simulator. Returns them, their text, and whether
        they give what NumPy gives."""
        captured = capture(function, tensors, {}, list(tensors))
        graph, arrays = simplify(captured.graph), [x.array for x in captured.sources]
        kernels, values = fuse(graph), dict(zip(graph.inputs, arrays, strict=True))
        source = cuda_source(kernels)
        functions = kernels_of(source)
        for kernel in kernels:
            values |= {node: np.empty(node.shape, node.dtype) for node in kernel.outputs}
            memory = [values[node].ravel() for node in (*kernel.inputs, *kernel.outputs)]
            launch(functions[kernel.name], *launch_of(kernel), *memory)
        pairs = zip(graph.outputs, graph.run(np, arrays), strict=True)
        return kernels, source, all((values[node] == want).all() for node, want in pairs)

    rng = np.random.default_rng(0)
    x, y, z = (tensor(rng.normal(size=s).astype("f4")) for s in ((6, 50), (50,), (4, 6, 1)))
    (kernel,), source, right = play(lambda x, y: relu(x * 2 + y), x, y)
    print(source[source.index("extern") :].strip())
    # -> extern "C" __global__ void k0(const float* in0, const float* in1, float* out0) {
    # ->     const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    # ->     if (i >= 300) return;
    # ->     const long long i1 = i % 50;
    # ->     const long long i0 = i / 50;
    # ->     const float x0 = in0[i0 * 50 + i1];
    # ->     const float multiply_0 = x0 * 2.0f;
    # ->     const float x1 = in1[i1];
    # ->     const float add_1 = multiply_0 + x1;
    # ->     const float maximum_2 = (add_1 <= 0.0f) | (0.0f != 0.0f) ? 0.0f : add_1;
    # ->     out0[i0 * 50 + i1] = maximum_2;
    # -> }
    print(kernel, launch_of(kernel), right)  # -> k0: 6 x 50 (multiply, add, maximum) (2, 256) True

    # Three counters: the one in the middle is divided, then wrapped.
    _, source, right = play(lambda x, z: (z + x[:4, None, :3]).exp(), x, z)
    print(re.findall(r"i\d = .*", source), right)
    # -> ['i2 = i % 3;', 'i1 = i / 3 % 6;', 'i0 = i / 18;'] True

    # What CUDA does not have; and a text that two kernels share.
    _, source, right = play(lambda x, y: x // y, x, y)
    print(source.count("__device__ inline float floor_divide_float("), right)  # -> 1 True
    kernels, source, right = play(lambda x, y: (x.exp(), y.exp()), x, x + 1)
    print(kernels, source.count("extern"), right)
    # -> [k0: 300 (exp), k0: 300 (exp)] 1 True
