"""Step expressions01: A chain of operations as one loop

relu(x * 2 + y) is three calls of NumPy. Each one goes over the whole array, and writes an array
that only the next call reads. For a million float32 numbers, 4 MB go to memory and come back,
twice. A loop in C needs no arrays in between. It reads x and y once, and writes the result once:

    for (long i = 0; i < n; i++) {
        const float multiply_0 = x[i] * 2.0f;
        const float add_1 = multiply_0 + y[i];
        out[i] = add_1 >= 0.0f ? add_1 : 0.0f;
    }

This run turns a graph (of the run tracer) into such loops. It begins with a single line of the loop
body: the C expression for one node. A table holds a template for each operation. The operands are
the names of variables, or numbers, which `literal` writes out.

A number must have the value that NumPy computes with: 0.1 in float32 is a different number from
0.1 in float64. `literal` writes the shortest decimal that reads back as the same float32, and adds
an f. (Without the f, C would compute in double.)

The trap: -x with x = -1 would become --1, which is the decrement operator in C. So negative numbers
get parentheses.

(PyTorch's compiler, Inductor, also writes C++ loops for a CPU, and Triton for a GPU.)

New: C_TYPES, ON_ALL, literal, expression.
Try: remove the line of `literal` that adds the f. Which of the printed expressions change?
"""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.compiler.graph import Node

C_TYPES = {"int64": "int64_t", "float32": "float", "float64": "double"}
ON_ALL = {
    "add": "{a} + {b}",
    "multiply": "{a} * {b}",
    "negative": "-{a}",
    "maximum": "{a} >= {b} ? {a} : {b}",
}


def literal(value: Any, dtype: np.dtype) -> str:
    """A number as C writes it, rounded to `dtype` as NumPy rounds it."""
    value = np.asarray(value).astype(dtype)[()]
    if dtype.kind in "iu":
        return f"{value}"
    text = str(value)  # the shortest that reads back as the same number
    text = text if any(sign in text for sign in ".e") else f"{text}.0"
    text += "f" * (dtype == np.float32)
    return f"({text})" if text.startswith("-") else text


def expression(node: Node, operands: Sequence[Any], texts: Sequence[str]) -> str:
    """The C expression for a node; `texts` are the variables of its operands, None of numbers."""
    named = {}
    for letter, x, text in zip("abc", operands, texts, strict=False):
        named[letter] = literal(x, node.dtype) if text is None else text
    return ON_ALL[node.op].format_map(named)


if __name__ == "__main__":
    f = np.dtype("float32")
    x, y = (Node("input", (), {}, (4,), f) for _ in range(2))
    twice = Node("multiply", (x, 2), {}, (4,), f)
    total = Node("add", (twice, y), {}, (4,), f)
    positive = Node("maximum", (total, 0.0), {}, (4,), f)
    lines = [
        f"multiply_0 = {expression(twice, (x, 2), ('x[i]', None))}",
        f"add_1 = {expression(total, (twice, y), ('multiply_0', 'y[i]'))}",
        f"maximum_2 = {expression(positive, (total, 0.0), ('add_1', None))}",
    ]
    body = "\n".join(f"        const {C_TYPES[f.name]} {line};" for line in lines)
    print(body)
    # ->         const float multiply_0 = x[i] * 2.0f;
    # ->         const float add_1 = multiply_0 + y[i];
    # ->         const float maximum_2 = add_1 >= 0.0f ? add_1 : 0.0f;

    # Numbers: rounded as NumPy rounds, of the right type, with brackets where they are negative.
    print(literal(0.1, f), literal(0.1, np.dtype(float)), literal(1e30, f))  # -> 0.1f 0.1 1e+30f
    print(literal(3, np.dtype("int64")), literal(3, f))  # -> 3 3.0f
    print(expression(Node("negative", (-1,), {}, (), f), (-1,), (None,)))  # -> -(-1.0f)

    # The loop, compiled where there is a C compiler: as NumPy, to the last bit.
    source = f"""void chain(const float *x, const float *y, float *out, long n) {{
        for (long i = 0; i < n; i++) {{
    {body}
            out[i] = maximum_2;
        }}
    }}"""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=1000).astype(f) for _ in range(2))
    want, got = np.maximum(a * 2 + b, 0), np.empty_like(a)
    compiler = shutil.which("cc")
    if compiler is None:
        got = want
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "chain.c")
            path.write_text(source)
            library = path.with_suffix(".so")
            flags = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]
            subprocess.run([compiler, *flags, path, "-o", library], check=True)
            pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b, got)]
            ctypes.CDLL(str(library)).chain(*pointers, ctypes.c_long(a.size))
    print((got == want).all())  # -> True
