"""Step expressions03: Numbers that C cannot write: NAN, INFINITY, INT64_MIN

`literal` of step expressions02 writes a number as Python prints it: nan, inf, -9223372036854775808.
The first two are names that C does not know, and the compiler refuses the file. C has other names
for them, NAN and INFINITY.

The third looks like a number of C, but C has no negative literals: -9223372036854775808
is the minus of 9223372036854775808, and that is too large for int64_t. So the smallest int64 has a
name too, INT64_MIN.

The trap is at the other end. A number above the largest int64 is one of uint64, and needs a u:
18446744073709551615u. Without it, GCC computes in a type of 128 bits, and only warns.

(PyTorch's compiler writes std::numeric_limits<float>::infinity() for these.)

Changed: literal.
Try: compile `int64_t f(void) { return -9223372036854775808; }`. What does the compiler warn of?
"""

import functools
import math
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
        if value == np.iinfo(np.int64).min:
            return "INT64_MIN"
        return f"{value}" + "u" * bool(value > np.iinfo(np.int64).max)
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
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
    f, k = np.dtype("float32"), np.dtype("int64")
    print(np.float32("nan"), np.float32("-inf"))  # -> nan -inf
    values = np.nan, np.inf, -np.inf, -2.5
    print(*(literal(value, f) for value in values))  # -> NAN INFINITY (-INFINITY) (-2.5f)
    print(literal(-(2**63), k), literal(2**63 - 1, k))  # -> INT64_MIN 9223372036854775807
    print(literal(2**64 - 1, np.dtype("uint64")))  # -> 18446744073709551615u
    x = Node("input", (), {}, (4,), f)
    print(expression(Node("less", (x, np.inf), {}, (4,), BOOL), (x, np.inf), ("u", None)))
    # -> u < INFINITY
