"""Step program03: Results in existing memory: out=

Each line of the text in step program02 creates an array, and most of these arrays are thrown away
soon after. Allocating memory takes time, and new memory is not in the cache. NumPy can write a
result into an existing array instead:

    a3 = add(a1, a2)             becomes      add(a1, a2, out=v3)

`writes_out` says which operations support that. A copy or a change of type is written as
copyto(v3, a1). Operations without out= (where, a random number) still create an array.

Two calls are replaced by faster ones. np.sum is a Python function that ends in np.add.reduce, so
the text calls np.add.reduce. And np.dot of two matrices runs the same BLAS routine as np.matmul,
with less work before it.

The trap: a "put" writes into a part of an array that a path of views leads to. A reshape of a
transposed array is a copy, not a view, and a value written into a copy is lost. `writes_out` is
False for such a path, and `put` looks up the positions of the part (places_of) as before.

PyTorch's operations have out= too, and its compiler plans memory for them.

New: WITH_OUT, Text.writes_out. Changed: Text.call, Text.expression.
Try: let `size` in the demo be 100, then a million. Where is the gain larger, and why?
"""

from collections.abc import Callable
from types import EllipsisType
from typing import Any

import numpy as np

from tinytorch.compiler.graph import OPERATIONS, REDUCTIONS, VIEWS, Node, places_of
from tinytorch.ops.erf import erf_of

# Functions that write into `out`, beside the element-wise ones and the reductions.
WITH_OUT = frozenset("matmul dot concatenate stack astype copy".split())


class Text:
    """Writes values as Python text.

    Attributes:
        xp: the array library.
        name_of: the name of a node's result in the text.
        names: what the text means by its other names.
        special: operations that are no functions of the array library.
    """

    def __init__(self, xp: Any, name_of: Callable[[Node], str]):
        self.xp, self.name_of = xp, name_of
        self.names: dict[str, Any] = {"inf": np.inf, "nan": np.nan}
        self.special = OPERATIONS | {"erf": lambda x: erf_of(x, xp)}

    def named(self, name: str, value: Any) -> str:
        """A name for `value`: `name`, with a number behind it where that means another value."""
        free, number = name, 1
        while self.names.setdefault(free, value) is not value:
            free, number = f"{name}_{number}", number + 1
        return free

    def of(self, value: Any) -> str:
        """The text of an argument."""
        if isinstance(value, Node):
            return self.name_of(value)
        if isinstance(value, tuple):
            return f"({', '.join(map(self.of, value))}{',' * (len(value) == 1)})"
        if isinstance(value, slice):
            return f"slice({self.of(value.start)}, {self.of(value.stop)}, {self.of(value.step)})"
        if isinstance(value, np.floating):
            return f"{self.of(value.dtype)}.type({value.item()!r})"
        if isinstance(value, np.dtype):
            return self.named(value.name, value)
        if isinstance(value, EllipsisType):
            return "..."
        if value is None or type(value) in (bool, int, float, str):
            return repr(value)
        return self.named(getattr(value, "__name__", type(value).__name__).lower(), value)

    def key(self, key: Any) -> str:
        """The text of an index: `0, 2:5, ...`."""

        def part(value: Any) -> str:
            if not isinstance(value, slice):
                return self.of(value)
            ends = ("" if x is None else self.of(x) for x in (value.start, value.stop))
            return ":".join(ends) + ("" if value.step is None else f":{self.of(value.step)}")

        if not isinstance(key, tuple):
            return part(key)
        return ", ".join(map(part, key)) + "," * (len(key) == 1) if key else "()"

    def call(self, function: Any, node: Node, out: str | None) -> str:
        given = [self.of(value) for value in node.args]
        given += [f"{name}={self.of(value)}" for name, value in node.kwargs.items()]
        given += [f"out={out}"] * (out is not None)
        return f"{function}({', '.join(given)})"

    def view(self, array: str, op: str, args: tuple) -> str:
        """The text of a view of `array`."""
        if op in ("view_at", "getitem"):
            return f"{array}[{self.key(args[0])}]"
        if op == "broadcast_to":
            return f"{self.named(op, self.xp.broadcast_to)}({array}, {self.of(args[0])})"
        return f"{array}.{'view' if op == 'view_as' else op}({self.of(args[0])})"

    def writes_out(self, node: Node) -> bool:
        """Whether the operation can write its result into an array that is there."""
        if node.op == "put":
            return places_of(node.shape, node.args[2][:-1]) is None
        function = getattr(np, node.op, None)
        return isinstance(function, np.ufunc) or node.op in WITH_OUT or node.op in REDUCTIONS

    def expression(self, node: Node, out: str | None = None) -> str:
        """The text that computes `node`, and writes it into the array named `out` if there is one.
        Everything but "put" with out, and "constant"."""
        op, args, xp = node.op, node.args, self.xp
        if op in ("astype", "copy"):
            return f"{self.named('copyto', xp.copyto)}({out}, {self.of(args[0])}, casting='unsafe')"
        if op in VIEWS or op in ("view_as", "getitem"):
            return self.view(self.of(args[0]), op, args[1:])
        if op == "part":
            return f"{self.of(args[0])}[{args[1]}]"
        if op == "random":
            numbers = ", ".join(map(self.of, args[2:]))
            return f"{self.named('generator', args[0])}.source.{args[1]}({numbers})"
        if xp is np and (repeated := REDUCTIONS.get(op)):
            # NumPy's reductions are methods of these; np.sum has to find them, which takes time.
            return self.call(self.named(f"{op}_of", getattr(np, repeated).reduce), node, out)
        if op == "matmul" and xp is np and len(args[0].shape) == len(args[1].shape) == 2:
            op = "dot" if node.dtype.char in "fd" else op  # the same of BLAS, called faster
        function = self.special.get(op) or getattr(xp, op)
        return self.call(self.named(op, function), node, out)


if __name__ == "__main__":
    import time

    def node(op, *args, shape=(2, 2), dtype="float32", **kwargs):
        return Node(op, args, kwargs, shape, np.dtype(dtype))

    names: dict[Node, str] = {}
    text = Text(np, names.__getitem__)
    a, b = node("input"), node("input")
    names |= {a: "a", b: "b"}
    for made in (
        node("add", a, b),
        node("matmul", a, b),
        node("sum", a, axis=(0,), shape=(2,)),
        node("mean", a, axis=(0,), shape=(2,)),
        node("astype", a, np.dtype("float64"), dtype="float64"),
        node("concatenate", (a, b), 0, shape=(4, 2)),
        node("put", a, 1.0, (("getitem", ((0,),)),)),
        node("where", a, a, b),
    ):
        can = text.writes_out(made)
        print(can, text.expression(made, "v2" if can and made.op != "put" else None))
    # -> True add(a, b, out=v2)
    # -> True dot(a, b, out=v2)
    # -> True sum_of(a, axis=(0,), out=v2)
    # -> True mean(a, axis=(0,), out=v2)
    # -> True copyto(v2, a, casting='unsafe')
    # -> True concatenate((a, b), 0, out=v2)
    # -> True put(a, 1.0, (('getitem', ((0,),)),))
    # -> False where(a, a, b)
    print(text.expression(node("exp", a)))  # -> exp(a)

    # A reshape of a transposed array is a copy: a put along such a path is not one assignment.
    path = (("transpose", ((1, 0),)), ("reshape", ((4,),)), ("getitem", ((slice(0, 2),),)))
    print(text.writes_out(node("put", a, 1.0, path)))  # -> False

    # The gain: three operations into new arrays, and into arrays that exist.
    size = 100_000
    x = np.linspace(0, 1, size, dtype=np.float32)
    fresh = {"x": x, "tanh": np.tanh, "multiply": np.multiply, "add": np.add}
    again = {**fresh, "v": np.empty_like(x), "w": np.empty_like(x)}

    def seconds(lines, names):
        code, best = compile("\n".join(lines), "text", "exec"), 1.0
        for _ in range(50):
            start = time.perf_counter()
            exec(code, names)
            best = min(best, time.perf_counter() - start)
        return best

    one = seconds(["a = multiply(x, 2)", "b = add(a, x)", "c = multiply(b, b)"], fresh)
    lines = ["multiply(x, 2, out=v)", "add(v, x, out=w)", "multiply(w, w, out=v)"]
    print(f"new arrays / existing arrays: {one / seconds(lines, again):.2f}")  # -> ...
    print((fresh["c"] == again["v"]).all())  # -> True
