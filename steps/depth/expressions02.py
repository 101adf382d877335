"""Step expressions02: The types in which NumPy computes

Step expressions01 assumes that all operands have the type of the result. They need not:

    x / k           float32 and int64: NumPy computes in float64
    x * 2           a Python number takes the type of x; np.float64(2) does not
    k < 2.5         the result is bool, but the numbers are compared as float64
    a + b           of int8: C computes in int, so 100 + 100 is 200; NumPy gives -56

NumPy can tell us. A ufunc's resolve_dtypes takes the types of the operands (int or float stands for
a Python number) and returns the types that it would compute in. `cast` converts each operand to its
type inside the expression. A result type that is smaller than C's int gets a cast around the whole
expression.

The trap: bools are bytes in C. GCC does not vectorize a loop that converts a bool to float with a
cast, but it does vectorize `b ? 1.0f : 0.0f`.

(PyTorch's promotion rules differ from NumPy's. By the time a call reaches the graph, tinytorch has
already applied PyTorch's rules (the run core), so here only NumPy's matter.)

Changed: C_TYPES, ON_ALL, literal, expression. New: BOOL, type_of, loop_types, types_of, cast.
Try: compute np.int8(100) + np.int8(100) in Python. What is the value of the C expression u + v
without its cast?
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.graph import Node

# What the element types are called in C.
C_TYPES = {
    "bool": "uint8_t",  # with bool itself gcc leaves a loop as it is, one element after the other
    "uint8": "uint8_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "float32": "float",
    "float64": "double",
}
BOOL = np.dtype(bool)
ON_ALL = {
    "add": "{a} + {b}",
    "subtract": "{a} - {b}",
    "multiply": "{a} * {b}",
    "divide": "{a} / {b}",
    "negative": "-{a}",
    "less": "{a} < {b}",
    "greater": "{a} > {b}",
    "maximum": "{a} >= {b} ? {a} : {b}",
}


def type_of(value: Any) -> Any:
    """The type of an operand: a dtype, or Python's int or float, which take that of the others."""
    if hasattr(value, "dtype"):
        return value.dtype
    return BOOL if isinstance(value, bool) else type(value)


@functools.lru_cache(maxsize=4096)
def loop_types(op: str, types: tuple, dtype: np.dtype | None) -> tuple[np.dtype, ...]:
    """The types in which NumPy computes: of the arguments, then of the result."""
    ufunc = getattr(np, op)
    asked = {} if dtype is None else {"signature": (*(None,) * ufunc.nin, dtype)}
    return ufunc.resolve_dtypes((*types, None), **asked)


def types_of(node: Node, operands: Sequence[Any]) -> tuple[np.dtype, ...]:
    """The types in which a node's operands enter its expression, then that of its result."""
    return loop_types(node.op, tuple(map(type_of, operands)), node.kwargs.get("dtype"))


def literal(value: Any, dtype: np.dtype) -> str:
    """A number as C writes it, rounded to `dtype` as NumPy rounds it."""
    value = np.asarray(value).astype(dtype)[()]
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        return f"{value}"
    text = str(value)  # the shortest that reads back as the same number
    text = text if any(sign in text for sign in ".e") else f"{text}.0"
    text += "f" * (dtype == np.float32)
    return f"({text})" if text.startswith("-") else text


def cast(text: str, of: np.dtype, to: np.dtype) -> str:
    """A variable's value in another type."""
    if of == to:
        return text
    if to.kind == "b":
        return f"({text} != 0)"
    if of.kind == "b":  # GCC makes no vectors of (float)bool
        return f"({text} ? {literal(1, to)} : {literal(0, to)})"
    return f"({C_TYPES[to.name]}){text}"


def expression(node: Node, operands: Sequence[Any], texts: Sequence[str]) -> str:
    """The C expression for a node; `texts` are the variables of its operands, None of numbers."""
    types = types_of(node, operands)
    named = {}
    for letter, x, text, dtype in zip("abc", operands, texts, types[:-1], strict=False):
        if text is None:
            named[letter] = literal(x, dtype)
        else:
            named[letter] = cast(text, x.dtype, dtype)
    text = ON_ALL[node.op].format_map(named)
    narrow = node.dtype.kind in "iu" and node.dtype.itemsize < 4
    return f"({C_TYPES[node.dtype.name]})({text})" if narrow else text


if __name__ == "__main__":
    f, d, k = np.dtype("float32"), np.dtype("float64"), np.dtype("int64")
    x, n, m = (Node("input", (), {}, (4,), t) for t in (f, k, BOOL))

    def text(op, operands, to, **kwargs):
        node = Node(op, tuple(operands), kwargs, (4,), np.dtype(to))
        letters = iter("uv")
        texts = [next(letters) if isinstance(v, Node) else None for v in operands]
        return expression(node, operands, texts)

    print(text("divide", (x, n), d))  # -> (double)u / (double)v
    print(text("multiply", (x, 2), f), "|", text("multiply", (x, np.float64(2)), d))
    # -> u * 2.0f | (double)u * 2.0
    print(text("less", (n, 2.5), bool))  # -> (double)u < 2.5
    print(text("multiply", (x, m), f), "|", text("add", (n, True), k))
    # -> u * (v ? 1.0f : 0.0f) | u + 1
    print(text("add", (x, x), d, dtype=d))  # -> (double)u + (double)v
    byte = Node("input", (), {}, (4,), np.dtype("int8"))
    print(text("add", (byte, byte), "int8"))  # -> (int8_t)(u + v)
    print(cast("u", f, BOOL), type_of(True), type_of(2))  # -> (u != 0) bool <class 'int'>
    print(types_of(Node("divide", (n, n)), (n, n))[-1])  # -> float64
    print(literal(1, BOOL), literal(0, BOOL), C_TYPES["bool"])  # -> true false uint8_t
