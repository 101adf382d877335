"""Step expressions05: Operations that are not ufuncs: where, astype, copy, erf

Step expressions04 asks NumPy for the types of an operation, with resolve_dtypes. Only ufuncs have
it. where, a change of type and a copy are other functions in NumPy, and erf is none at all: NumPy
does not have it. Their types are known without NumPy:

    where(c, a, b)      c is a bool, a and b have the type of the result        {a} ? {b} : {c}
    astype, copy        from the operand's type to that of the result           {a}, with a cast
    erf                 the type of the result                                  erf_float({a})

The trap: -0.5 converted to an integer is 0, and converted back to a float it is 0.0. GCC merges the
two conversions into one that keeps the sign: -0.0, and 1 / -0.0 is -inf instead of inf. So
`converted` tests whether the integer is 0.

(PyTorch: to_dtype, where and erf are methods of CppOverrides like all others.)

New: NO_UFUNC, converted. Changed: ON_FLOATS, types_of, template, expression.
Try: let `converted` return cast(text, x.dtype, to). What does the last line of the demo print?
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
    "erf": "erf_{t}({a})",
}
TABLES = {"b": ON_BOOLS, "i": ON_INTS, "u": ON_INTS, "f": ON_FLOATS}
NO_UFUNC = frozenset("where astype copy erf erfc".split())


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
    if node.op == "where":
        return (BOOL, node.dtype, node.dtype, node.dtype)
    if node.op in ("astype", "copy"):
        return (operands[0].dtype, node.dtype)
    if node.op in NO_UFUNC:
        return (node.dtype, node.dtype)
    return loop_types(node.op, tuple(map(type_of, operands)), node.kwargs.get("dtype"))


def template(op: str, types: Sequence[np.dtype]) -> str | None:
    """The C expression of an operation in these types, or None where there is none."""
    if op in ("astype", "copy"):
        return "{a}"
    if op == "where":
        return "{a} ? {b} : {c}"
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


def converted(text: str, x: Node, to: np.dtype) -> str:
    """An operand's value in another type. GCC merges the casts from float to integer and back into
    one, which turns -0.5 into -0.0 rather than 0.0; so the expression tests for 0."""
    value = cast(text, x.dtype, to)
    if x.op == "astype" and x.dtype.kind in "iu" and to.kind == "f":
        return f"({text} == 0 ? 0 : {value})"
    return value


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
            named[letter] = converted(text, x, dtype)
    name = types[0].name
    named |= {"f": "f" if name == "float32" else "", "t": C_TYPES[name]}
    text = template(node.op, types).format_map(named)
    if node.op in ("astype", "copy"):
        return converted(texts[0], operands[0], node.dtype)
    narrow = node.dtype.kind in "iu" and node.dtype.itemsize < 4 and node.op != "where"
    return f"({C_TYPES[node.dtype.name]})({text})" if narrow else text


if __name__ == "__main__":
    f, k = np.dtype("float32"), np.dtype("int64")
    x, n, m = (Node("input", (), {}, (4,), t) for t in (f, k, BOOL))

    def text(op, *operands, dtype=f):
        node = Node(op, operands, {}, (4,), np.dtype(dtype))
        operands = [v for v in operands if not isinstance(v, np.dtype)]
        letters = iter("uvw")
        texts = [next(letters) if isinstance(v, Node) else None for v in operands]
        return expression(node, operands, texts)

    print(hasattr(np.where, "resolve_dtypes"), hasattr(np, "erf"))  # -> False False
    print(text("where", m, x, 0), "|", text("astype", x, k, dtype=k), "|", text("copy", x))
    # -> u ? v : 0.0f | (int64_t)u | u
    print(text("erf", x), "|", text("where", m, n, n, dtype=k))  # -> erf_float(u) | u ? v : w
    cut = Node("astype", (x, k), {}, (4,), k)
    print(text("multiply", cut, 0.5, dtype=float))  # -> (u == 0 ? 0 : (double)u) * 0.5
