"""Step expressions07: Catalogue: the other expressions

The remaining lines of the tables of steps expressions04 to expressions06: NumPy functions that C
can write in one expression, and integer operations. Skim them; two are worth a look.

Division. // and % in NumPy follow Python: -7 // 2 is -4, and -7 % 2 is 1. C gives -3 and -1. Two C
functions (DIVISIONS) correct that, written for each type that needs them. NumPy's integers give
1 // 0 = 0 with a warning; in C this division would end the process.

logaddexp of two equal infinities: inf - inf is nan, so equal operands have a case of their own.

New: DIVISIONS, and lines of the tables.
Try: print -7 / 2 and -7 % 2 from a C program, and compare with Python's -7 // 2 and -7 % 2.
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
KNOWN = {int, float, *map(np.dtype, C_TYPES)}  # what an operand may be

ON_ALL = {
    "add": "{a} + {b}",
    "subtract": "{a} - {b}",
    "multiply": "{a} * {b}",
    "negative": "-{a}",
    "positive": "{a}",
    "square": "{a} * {a}",
    "equal": "{a} == {b}",
    "not_equal": "{a} != {b}",
    "less": "{a} < {b}",
    "less_equal": "{a} <= {b}",
    "greater": "{a} > {b}",
    "greater_equal": "{a} >= {b}",
    "logical_and": "{a} & {b}",
    "logical_or": "{a} | {b}",
    "logical_xor": "{a} != {b}",
    "logical_not": "!{a}",
    "maximum": "{a} >= {b} ? {a} : {b}",
    "minimum": "{a} <= {b} ? {a} : {b}",
}
ON_BOOLS = {
    "add": "{a} | {b}",
    "multiply": "{a} & {b}",
    "invert": "!{a}",
    "bitwise_and": "{a} & {b}",
    "bitwise_or": "{a} | {b}",
    "bitwise_xor": "{a} ^ {b}",
    "absolute": "{a}",
}
ON_INTS = {
    "absolute": "{a} < 0 ? -{a} : {a}",
    "sign": "({a} > 0) - ({a} < 0)",
    "invert": "~{a}",
    "bitwise_and": "{a} & {b}",
    "bitwise_or": "{a} | {b}",
    "bitwise_xor": "{a} ^ {b}",
    "floor_divide": "floor_divide_{t}({a}, {b})",
    "remainder": "remainder_{t}({a}, {b})",
}
ON_FLOATS = {name: function.template() for name, function in LIBRARY.items()} | {
    "erf": "erf_{t}({a})",
    "exp": "exp_{t}({a})",
    "absolute": "fabs{f}({a})",
    "divide": "{a} / {b}",
    "reciprocal": "1 / {a}",
    "sign": "{a} != {a} ? {a} : ({t})(({a} > 0) - ({a} < 0))",
    # With a > b in the place of a <= b, GCC makes no vectors where maxima follow each other.
    "maximum": "({a} <= {b}) | ({b} != {b}) ? {b} : {a}",
    "minimum": "({a} >= {b}) | ({b} != {b}) ? {b} : {a}",
    "fmax": "({a} <= {b}) | ({a} != {a}) ? {b} : {a}",
    "fmin": "({a} >= {b}) | ({a} != {a}) ? {b} : {a}",
    "isnan": "{a} != {a}",
    "isinf": "fabs{f}({a}) == INFINITY",
    "isfinite": "fabs{f}({a}) < INFINITY",
    "signbit": "copysign{f}(1, {a}) < 0",
    "floor_divide": "floor_divide_{t}({a}, {b})",
    "remainder": "remainder_{t}({a}, {b})",
    "logaddexp": "{a} == {b} ? {a} + ({t})0.6931471805599453"
    " : ({a} > {b} ? {a} : {b}) + log1p{f}(exp{f}(-fabs{f}({a} - {b})))",
}
TABLES = {"b": ON_BOOLS, "i": ON_INTS, "u": ON_INTS, "f": ON_FLOATS}
NO_UFUNC = frozenset("where astype copy erf erfc".split())

# Division as Python does it: the remainder has the sign of the divisor. What NumPy gives for a
# division of integers by zero is 0.
DIVISIONS = {
    "int": """
static inline {t} floor_divide_{t}({t} a, {t} b) {{
    if (b == 0) return 0;
    if (b == ({t})-1) return ({t})-1 < 0 ? -a : a / b;
    {t} quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}}
static inline {t} remainder_{t}({t} a, {t} b) {{
    if (b == 0 || (({t})-1 < 0 && b == ({t})-1)) return 0;
    {t} rest = a % b;
    return rest != 0 && (a < 0) != (b < 0) ? rest + b : rest;
}}
""",
    "float": """
static inline {t} remainder_{t}({t} a, {t} b) {{
    {t} rest = fmod{f}(a, b);
    if (b == 0) return rest;
    if (rest == 0) return copysign{f}(0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}}
static inline {t} floor_divide_{t}({t} a, {t} b) {{
    if (b == 0) return a / b;
    {t} rest = fmod{f}(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign{f}(0, a / b);
    {t} whole = floor{f}(quotient);
    return quotient - whole > ({t})0.5 ? whole + 1 : whole;
}}
""",
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
    if len({dtype for dtype in types[:-1]}) > 1:
        return None
    return TABLES[types[0].kind].get(op) or ON_ALL.get(op)


@functools.lru_cache(maxsize=4096)
def known(op: str, types: tuple) -> bool:
    return all(t.name in C_TYPES for t in types) and template(op, types) is not None


def has_expression(node: Node, operands: Sequence[Any]) -> bool:
    """Whether C has an expression for a node; else it stays a call of the array library."""
    if node.op not in NO_UFUNC and not isinstance(getattr(np, node.op, None), np.ufunc):
        return False
    if any(name != "dtype" for name in node.kwargs):
        return False
    if not all(isinstance(x, (Node, bool, int, float, np.generic)) for x in operands):
        return False
    if not all(type_of(x) in KNOWN for x in operands):
        return False
    try:
        types = types_of(node, operands)
    except TypeError:  # NumPy has no loop for these types, or takes another number of arguments
        return False
    return types[-1] == node.dtype and known(node.op, types)


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
    x, n = (Node("input", (), {}, (4,), t) for t in (f, k))

    def text(op, *operands, dtype=f):
        node = Node(op, operands, {}, (4,), np.dtype(dtype))
        known = has_expression(node, operands)
        return expression(node, operands, "uv"[: len(operands)]) if known else None

    print(text("remainder", n, n, dtype=k), text("floor_divide", x, x))
    # -> remainder_int64_t(u, v) floor_divide_float(u, v)
    print(
        text("arctan2", x, x), text("power", x, x), text("exp", x), text("isfinite", x, dtype=bool)
    )
    # -> atan2f(u, v) powf(u, v) exp_float(u) fabsf(u) < INFINITY
    names = [*ON_ALL, *ON_FLOATS]
    ones = [name for name in names if "{b}" not in (ON_FLOATS.get(name) or ON_ALL[name])]
    print(len(set(names)), all(text(name, x) or text(name, x, dtype=bool) for name in ones))
    # -> 65 True
    division = DIVISIONS["int"].format(t="int64_t", f="")
    print(division.count("static inline int64_t"))  # -> 2
