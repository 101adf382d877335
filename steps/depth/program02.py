"""Step program02: Code generation for views

Step program01 writes a node as a call. A view is often an index, and a graph stores the index as a
tuple:

    (slice(None), slice(None, None, 2), ...)      a[:, ::2, ...]
    (0,)                                          a[0,]
    ()                                            a[()]

`key` writes the part in the brackets. A view is written as an index, as a method of the array
(transpose, reshape, view), or as a call (broadcast_to, which is not a method). `view` makes this
choice. Its argument is the name of an array instead of a node, because a write may go through a
chain of views (step program12), and only the first array of the chain has a node.

One more kind of node is not a call: "part", one of the results of a node with several results. With
it, every graph can be written as Python. The demo compares the forward and backward of a network.

The trap: a[1] and a[1, ...] differ. For an array with one dimension, a[1] is a NumPy scalar, a
copy. a[1, ...] is an array with no dimensions that shows the memory of `a`.

New: Text.key, Text.view. Changed: Text.of, Text.expression.
Try: print the text of the backward pass. Which lines belong to tanh?
"""

from collections.abc import Callable
from types import EllipsisType
from typing import Any

import numpy as np

from tinytorch.compiler.graph import OPERATIONS, VIEWS, Graph, Node
from tinytorch.ops.erf import erf_of


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

    def call(self, function: Any, node: Node) -> str:
        given = [self.of(value) for value in node.args]
        given += [f"{name}={self.of(value)}" for name, value in node.kwargs.items()]
        return f"{function}({', '.join(given)})"

    def view(self, array: str, op: str, args: tuple) -> str:
        """The text of a view of `array`."""
        if op in ("view_at", "getitem"):
            return f"{array}[{self.key(args[0])}]"
        if op == "broadcast_to":
            return f"{self.named(op, self.xp.broadcast_to)}({array}, {self.of(args[0])})"
        return f"{array}.{'view' if op == 'view_as' else op}({self.of(args[0])})"

    def expression(self, node: Node) -> str:
        """The text that computes `node`. Everything but "constant"."""
        op, args = node.op, node.args
        if op in VIEWS or op in ("view_as", "getitem"):
            return self.view(self.of(args[0]), op, args[1:])
        if op == "part":
            return f"{self.of(args[0])}[{args[1]}]"
        if op == "random":
            numbers = ", ".join(map(self.of, args[2:]))
            return f"{self.named('generator', args[0])}.source.{args[1]}({numbers})"
        function = self.special.get(op) or getattr(self.xp, op)
        return self.call(self.named(op, function), node)


if __name__ == "__main__":
    import importlib

    from tinytorch.compiler.border import partition
    from tinytorch.compiler.capture import capture
    from tinytorch.core.tensor import tensor

    for name in "comparison indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods

    t = Text(np, str)
    print(t.key((slice(None), slice(None, None, 2), ...)), "|", t.key((0,)), "|", t.key(()))
    # -> :, ::2, ... | 0, | ()
    print(t.key(slice(1, 9)), "|", t.of((slice(1, None),)))  # -> 1:9 | (slice(1, None, None),)
    print(t.view("a", "broadcast_to", ((2, 3),)))  # -> broadcast_to(a, (2, 3))
    print(t.view("a", "view_as", (np.dtype("int32"),)))  # -> a.view(int32)

    def generated(graph: Graph, xp: Any = np) -> tuple[str, Callable]:
        """The text of a function that does what the graph does, and the function."""
        every = [*graph.inputs, *graph.nodes]
        names = {node: f"a{number}" for number, node in enumerate(every)}
        text = Text(xp, names.__getitem__)
        lines = [f"def run({', '.join(names[node] for node in graph.inputs)}):"]
        for node in graph.nodes:
            if node.op == "constant":
                text.names[names[node]] = node.args[0]
            else:
                lines.append(f"    {names[node]} = {text.expression(node)}")
        lines.append(f"    return {', '.join(names[node] for node in graph.outputs)}")
        exec("\n".join(lines), text.names)
        return "\n".join(lines), text.names["run"]

    def f(x, w):
        y = (x @ w.t()).tanh()
        return (y[:, ::2] * y[:, 1:2]).sum()

    x = tensor([[1.0, 2.0], [3.0, 4.0]])
    w = tensor([[0.5, -1.0], [1.0, 0.5], [0.25, 0.0]], requires_grad=True)
    captured = capture(f, (x, w), {}, [x, w])
    halves = partition(captured.graph, 2, 1)
    text, forward = generated(halves[0])
    print(text.splitlines()[1])  # ->     a2 = a1.transpose((1, 0))
    print([line.strip() for line in text.splitlines() if "[" in line])
    # -> ['a5 = a4[:, ::2, ...]', 'a6 = a4[:, 1:2, ...]']

    result, *saved = forward(x.array, w.array)
    _, backward = generated(halves[1])
    f(x, w).backward()
    print(result, f(x, w).item())  # -> -0.98791283 -0.98791283
    print(abs(backward(*saved, np.float32(1)) - w.grad.array).max() < 1e-6)  # -> True

    a = Node("input", shape=(3,))
    called = Node("call_backward", (a, a))  # a whole Function has several results
    print(t.expression(Node("part", (called, 1))) == f"{called}[1]")  # -> True
