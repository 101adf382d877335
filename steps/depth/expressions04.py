"""Step expressions04: An expression for each kind of number

The template for maximum(a, b) in step expressions01 is wrong where a is nan. Every comparison with
nan is false, so the expression picks b; NumPy's answer is nan. The template for floats has to test
for it:

    (a > b) | (a != a) ? a : b          only nan differs from itself

(The table has the same turned round, `(a <= b) | (b != b) ? b : a`: a comment there says why.)

So each kind of number (bools, integers, floats) has a table of its own. `template` looks there
first, then in ON_ALL, which holds what is the same for all kinds. For example, + of bools is |.
The calls of C's library come from the table of step operations02. {f} in a template stands for the
letter that such functions have for float32 (tanhf), and {t} for the name of the C type.

The trap: logical_and takes operands of any type and tests whether each is zero. So its operands
are cast to bool, whatever type NumPy computes in. Its template uses & rather than &&: C evaluates
the right side of && only if the left side is true, and GCC does not vectorize a loop with such a
branch.

(PyTorch: torch._inductor.codegen.cpp, class CppOverrides, has a method for each operation.)

New: ON_BOOLS, ON_INTS, ON_FLOATS, TABLES, template. Changed: ON_ALL, expression.
Try: give ON_FLOATS the template that ON_ALL has for maximum, and look at the demo's first line.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.graph import Node
from tinytorch.compiler.operations import LIBRARY

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
    "negative": "-{a}",
    "less": "{a} < {b}",
    "greater": "{a} > {b}",
    "logical_and": "{a} & {b}",
    "maximum": "{a} >= {b} ? {a} : {b}",
}
ON_BOOLS = {
    "add": "{a} | {b}",
    "multiply": "{a} & {b}",
}
ON_INTS = {
    "absolute": "{a} < 0 ? -{a} : {a}",
    "invert": "~{a}",
}
ON_FLOATS = {name: function.template() for name, function in LIBRARY.items()} | {
    "absolute": "fabs{f}({a})",
    "divide": "{a} / {b}",
    "sign": "{a} != {a} ? {a} : ({t})(({a} > 0) - ({a} < 0))",
    # With a > b in the place of a <= b, GCC makes no vectors where maxima follow each other.
    "maximum": "({a} <= {b}) | ({b} != {b}) ? {b} : {a}",
    "isnan": "{a} != {a}",
}
TABLES = {"b": ON_BOOLS, "i": ON_INTS, "u": ON_INTS, "f": ON_FLOATS}


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


def template(op: str, types: Sequence[np.dtype]) -> str | None:
    """The C expression of an operation in these types, or None where there is none."""
    if op.startswith("logical_"):
        return ON_ALL[op]
    return TABLES[types[0].kind].get(op) or ON_ALL.get(op)


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
        if node.op.startswith("logical_"):
            dtype = BOOL
        if text is None:
            named[letter] = literal(x, dtype)
        else:
            named[letter] = cast(text, x.dtype, dtype)
    name = types[0].name
    named |= {"f": "f" if name == "float32" else "", "t": C_TYPES[name]}
    text = template(node.op, types).format_map(named)
    narrow = node.dtype.kind in "iu" and node.dtype.itemsize < 4
    return f"({C_TYPES[node.dtype.name]})({text})" if narrow else text


if __name__ == "__main__":
    f, k = np.dtype("float32"), np.dtype("int64")
    x, n, m = (Node("input", (), {}, (4,), t) for t in (f, k, BOOL))

    def text(op, *operands, dtype=f):
        node = Node(op, operands, {}, (4,), np.dtype(dtype))
        letters = iter("uvw")
        texts = [next(letters) if isinstance(v, Node) else None for v in operands]
        return expression(node, operands, texts)

    print(text("maximum", x, 0.0))  # -> (u <= 0.0f) | (0.0f != 0.0f) ? 0.0f : u
    print(text("maximum", n, 0, dtype=k))  # -> u >= 0 ? u : 0
    print(text("add", m, m, dtype=bool), "|", text("absolute", n, dtype=k))
    # -> u | v | u < 0 ? -u : u
    print(text("tanh", x), text("arcsin", n, dtype=float), text("logical_and", m, x, dtype=bool))
    # -> tanhf(u) asin((double)u) u & (v != 0)
    print(text("sign", x))  # -> u != u ? u : (float)((u > 0) - (u < 0))
    print(template("sort", (f, f)))  # -> None
