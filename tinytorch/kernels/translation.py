"""Runs the text of CUDA kernels without a GPU: as Python, on the simulator."""

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
