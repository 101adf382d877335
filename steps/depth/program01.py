"""Step program01: Code generation: a graph as Python text

Graph.run decides again in each run what each node has to do: it looks values up in a dict, compares
the name of the operation, calls getattr. None of these answers changes between runs. A code
generator does this work once, and writes the calls that are left as text:

    node of the graph                                text
    %3 = multiply(%0, 2.0)                           a3 = multiply(a0, 2.0)
    %4 = sum(%3, axis=(0,), keepdims=False)          a4 = sum(a3, axis=(0,), keepdims=False)

`Text.of` writes an argument. Numbers, strings and tuples can be written as Python literals. Other
values (a dtype, a function, a random generator) get a name, and the dict `names` maps the name to
the value. exec() runs the text with `names` as its global variables.

The traps: two values may want the same name, such as the function exp and a Function called Exp.
Then `named` adds a number to the second one. And repr(float("inf")) is "inf", which Python does not
know as a number, so `names` contains inf and nan.

PyTorch calls this codegen. torch.compile generates Python too, around its kernels.

New: Text.
Try: print(text.names) in the demo. Which names did you not expect?
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.compiler.graph import OPERATIONS, Graph, Node
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
        if isinstance(value, np.floating):
            return f"{self.of(value.dtype)}.type({value.item()!r})"
        if isinstance(value, np.dtype):
            return self.named(value.name, value)
        if value is None or type(value) in (bool, int, float, str):
            return repr(value)
        return self.named(getattr(value, "__name__", type(value).__name__).lower(), value)

    def call(self, function: Any, node: Node) -> str:
        given = [self.of(value) for value in node.args]
        given += [f"{name}={self.of(value)}" for name, value in node.kwargs.items()]
        return f"{function}({', '.join(given)})"

    def expression(self, node: Node) -> str:
        """The text that computes `node`. Everything but "constant"."""
        op, args = node.op, node.args
        if op == "random":
            numbers = ", ".join(map(self.of, args[2:]))
            return f"{self.named('generator', args[0])}.source.{args[1]}({numbers})"
        function = self.special.get(op) or getattr(self.xp, op)
        return self.call(self.named(op, function), node)


if __name__ == "__main__":
    import importlib
    import time

    from tinytorch.compiler.capture import capture
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, rand_like

    for name in "comparison indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods

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
        return ((x @ w).tanh() * 2).sum(0)

    x, w = tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([[0.5, -1.0], [1.0, 0.5]])
    graph = capture(f, (x, w), {}, [x, w]).graph
    text, run = generated(graph)
    print(text)
    # -> def run(a0, a1):
    # ->     a2 = matmul(a0, a1)
    # ->     a3 = tanh(a2)
    # ->     a4 = multiply(a3, 2.0)
    # ->     a5 = sum(a4, axis=(0,), keepdims=False)
    # ->     return a5
    print(run(x.array, w.array), graph.run(np, [x.array, w.array])[0])
    # -> [ 3.9731617 -1.5231884] [ 3.9731617 -1.5231884]

    def seconds(function):
        start = time.perf_counter()
        for _ in range(2000):
            function()
        return time.perf_counter() - start

    arrays = [x.array, w.array]
    ratio = seconds(lambda: graph.run(np, arrays)) / seconds(lambda: run(*arrays))
    print(f"Graph.run takes {ratio:.1f} times as long as the text")  # -> ...

    # A value that is not a literal gets a name. A second value with the same name gets a number.
    t = Text(np, str)
    print(t.of((1, float("inf"), None, np.dtype("int8"), np.float32(0.5))))
    # -> (1, inf, None, int8, float32.type(0.5))
    print(t.of(np.exp), t.of(type("Exp", (), {})), t.of(np.exp))  # -> exp exp_1 exp

    manual_seed(0)  # random numbers are drawn again in each run
    graph = capture(rand_like, (x,), {}, [x]).graph
    text, run = generated(graph)
    print(text.splitlines()[1].strip())  # -> a1 = generator.source.uniform((2, 2), float32)
    print((run(x.array) != run(x.array)).all())  # -> True
    print(t.names is not None and t.special["erf"](np.float64(1)))  # -> 0.8427007929497149
