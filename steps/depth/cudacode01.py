"""Step cudacode01: CUDA without a GPU: its text as Python

From here on, kernels are written in CUDA as well. A text that has not run is not known to be right,
and you may not have a GPU. Step kernel01 has a simulator that runs a kernel thread by thread, but
its kernels are functions of Python.

CUDA that a program writes is very regular. It has a dozen forms of lines, and each has a twin in
Python. So a table of regular expressions translates it, line by line:

    extern "C" __global__ void k0(float* x)        def k0(t, x):           t: thread (step kernel01)
    const long long i = threadIdx.x;               i = t.threadIdx.x
    if (i >= n) return;                            if i >= n: return
    __shared__ float box[256];                     box = t.shared.setdefault('box', dict())
    __syncthreads();                               yield                   a barrier (step kernel04)

The indentation of the text is right already, since `write` of step ccode01 indents each line.
Braces, semicolons and types are removed.

The trap: this is not a translator of CUDA. A text written by hand has forms that the table does not
know, such as x++ or a line that goes on in the next one. It serves the demos of this topic and the
tests; a GPU has the last word.

(NVIDIA removed its own emulator in 2010; today numba.cuda has a simulator in Python.)

New: FORMS, halves, NAMES, python_of, kernels_of.
Try: translate a kernel with two statements in one line.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# For each form of line in CUDA, the same in Python. A barrier is a `yield`.
FORMS = (
    (r" *//.*", ""),
    (r'(extern "C" __global__ void|template.* V) (\w+)\((.*)\)', r"def \2(t, \3):"),
    (r"for \(int k = (.*); k >= (.*); k /= 2\)", r"for k in halves(\1, \2):"),
    (r"for \(long long i = (.*); i < (.*); i \+= (.*)\)", r"for i in range(\1, \2, \3):"),
    (r"if \((.*)\)", r"if \1:"),
    (r"const V a = (.*), b = (.*);", r"a, b = \1, \2"),
    (r"__shared__ \w+ (\w+).*;", r"\1 = t.shared.setdefault('\1', dict())"),
    (r"__syncthreads\(\);", "yield"),
    (r"= combined_(\w+)\(", r"= yield from combined_\1(t, "),
    (r"(long long \w+ = .*|(threadIdx|blockDim).x) / ", r"\1 // "),
    (r"const |\(long long\)|(long long|float|int|u?int\d+_t|V)\*? |(?<=\d)f\b|[;{}]", ""),
    (r"= (.*) \? (.*) : (.*)", r"= \2 if \1 else \3"),
    (r"\b(threadIdx|blockIdx|blockDim)", r"t.\1"),
)


def halves(k: int, last: int) -> Iterator[int]:
    """k, k / 2, k / 4, ... down to `last`."""
    while k >= last:
        yield k
        k //= 2


# What the kernels use, besides their own names.
NAMES: dict[str, Any] = {
    "halves": halves,
    "exp_float": np.exp,
    "floor_divide_float": np.floor_divide,
    "uint8_t": np.uint8,
    "INFINITY": np.inf,
    "NAN": np.nan,
    "INT64_MIN": -(2**63),
}


def python_of(cuda: str) -> str:
    """Kernels in CUDA as functions of Python, which take the thread first.

    Knows the forms of lines that tinytorch.compiler.cuda_code writes, not all of CUDA. Leaves out
    what stands in front of the first kernel or template: NAMES has the functions of that part.
    """
    text = cuda[re.search(r'^(extern "C"|template)', cuda, re.MULTILINE).start() :]
    for pattern, new in FORMS:
        text = re.sub(pattern, new, text)
    return text


def kernels_of(cuda: str) -> dict[str, Callable]:
    """The kernels of a text in CUDA by their names, for tinytorch.kernels.simulator.launch."""
    names = dict(NAMES)
    exec(python_of(cuda), names)
    return names


if __name__ == "__main__":
    from tinytorch.kernels.simulator import launch

    # A thread for each element; the threads beyond the last one return.
    text = """extern "C" __global__ void twice(const float* x, float* out) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 5) return;
    out[i] = x[i] > 0.0f ? x[i] * 2.0f : 0.0f;  // relu
}"""
    print(python_of(text))
    # -> def twice(t, x, out):
    # ->     i = t.blockIdx.x * t.blockDim.x + t.threadIdx.x
    # ->     if i >= 5: return
    # ->     out[i] = x[i] * 2.0 if x[i] > 0.0 else 0.0
    x, out = np.array([1.0, -2.0, 3.0, -4.0, 5.0]), np.zeros(5)
    launch(kernels_of(text)["twice"], 2, 4, x, out)
    print(out)  # -> [ 2.  0.  6.  0. 10.]

    # A block adds its numbers in pairs: a loop that halves, shared memory and barriers.
    text = """extern "C" __global__ void total(const float* x, float* out) {
    __shared__ float box[8];
    box[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int k = 4; k >= 1; k /= 2) {
        if (threadIdx.x < k) box[threadIdx.x] += box[threadIdx.x + k];
        __syncthreads();
    }
    out[0] = box[0];
}"""
    launch(kernels_of(text)["total"], 1, 8, np.arange(8.0), out)
    print(out[0])  # -> 28.0
