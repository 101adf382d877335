"""Step tracer03: A graph that prints itself

A graph that cannot be read cannot be checked. The list of nodes of step tracer02 prints as [%3, %4,
%5]. Print it as a program instead, one operation per line, with the type and shape of each result:

    inputs: %0 float32[2, 3], %1 float32[3, 4]
    %2 = matmul(%0, %1)  float32[2, 4]
    %3 = sum(%2, axis=(1,))  float32[2]  # Sum, model.py:12
    return %3

So a node gets keyword arguments, and keeps the shape and the type of its result. A graph is made
for one set of shapes, so all shapes are known before it runs. A compiler depends on that: it knows
how long each loop is, and how much memory is needed. Two more attributes are for people: `made_by`
is the Function that the program called, and `line` is where the program called it.

Node.number counts all nodes of the process, so its numbers grow and grow. A printed graph numbers
its own nodes from 0.

`nodes_in` finds nodes in nested tuples, lists and dicts. `inputs` returns the nodes that a node
uses; a node that is used twice is there twice. Later passes call it often, so the node keeps the
list.

(PyTorch: print(graph), or graph.print_tabular().)

New: Node.inputs, nodes_in, kind_of, text_of. Changed: Node, map_nodes, Graph.run.
Try: print the graph of y = x + x. How often is x among the inputs of the sum?
"""

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinytorch.autograd.modes import FunctionMode
from tinytorch.utils._nested import tensors_in

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise indexing matmul reduction sampling shape softmax".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Node:
    """One operation: its name, its arguments, and what its result is like.

    Attributes:
        op: a function of the array library ("add", "exp", "sum", "matmul", ...), or "input" for an
            argument of the graph.
        args, kwargs: nodes, numbers, shapes, ...; nodes may stand inside tuples.
        shape, dtype: of the result.
        made_by: the operation of the user's program ("softmax"), for messages and drawings.
        line: where the program called it: "model.py:12".
    """

    count = itertools.count()

    def __init__(
        self,
        op: str,
        args: tuple = (),
        kwargs: dict | None = None,
        shape: tuple | None = None,
        dtype: np.dtype | None = None,
        made_by: str = "",
        line: str = "",
    ):
        self.op, self.args, self.kwargs = op, args, kwargs or {}
        self.shape, self.dtype, self.made_by, self.line = shape, dtype, made_by, line
        self.number, self.used = next(Node.count), None

    def inputs(self) -> list["Node"]:
        """The nodes among the arguments, in order; a node that is used twice is there twice."""
        if self.used is None:
            self.used = list(nodes_in((self.args, self.kwargs)))
        return self.used

    def replaced(self, replace: Callable[["Node"], Any]) -> "Node":
        """The same operation with replace(node) in place of each node among its arguments."""
        args, kwargs = map_nodes(replace, self.args), map_nodes(replace, self.kwargs)
        return Node(self.op, args, kwargs, self.shape, self.dtype, self.made_by, self.line)

    def __repr__(self) -> str:
        return f"%{self.number}"


def nodes_in(value: Any) -> Iterator[Node]:
    """All nodes in nested tuples, lists and dicts."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from nodes_in(item)


def map_nodes(function: Callable[[Node], Any], value: Any) -> Any:
    """`value` with function(node) in place of each node."""
    if isinstance(value, Node):
        return function(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map_nodes(function, item) for item in value)
    if isinstance(value, dict):
        return {name: map_nodes(function, item) for name, item in value.items()}
    return value


class Graph:
    """Nodes in an order in which each comes after its arguments; some are inputs, some outputs."""

    def __init__(self, inputs: Sequence[Node], nodes: Sequence[Node], outputs: Sequence[Node]):
        self.inputs, self.nodes, self.outputs = list(inputs), list(nodes), list(outputs)

    def run(self, xp: Any, arrays: Sequence) -> list:
        """The outputs for these input arrays, one operation after the other."""
        values = dict(zip(self.inputs, arrays, strict=True))
        for node in self.nodes:
            args = map_nodes(values.__getitem__, node.args)
            values[node] = getattr(xp, node.op)(*args, **node.kwargs)
        return [values[node] for node in self.outputs]

    def __str__(self) -> str:
        """One line for each node: `%3 = multiply(%1, 2.0)  float32[4, 5]  # mul, model.py:12`."""
        names = {node: f"%{i}" for i, node in enumerate((*self.inputs, *self.nodes))}
        lines = [f"inputs: {', '.join(f'{names[n]} {kind_of(n)}' for n in self.inputs)}"]
        for node in self.nodes:
            given = [text_of(x, names) for x in node.args]
            given += [f"{name}={text_of(x, names)}" for name, x in node.kwargs.items()]
            where = ", ".join(x for x in (node.made_by, node.line) if x)
            line = f"{names[node]} = {node.op}({', '.join(given)})  {kind_of(node)}"
            lines.append(f"{line}  # {where}" if where else line)
        return "\n".join([*lines, f"return {', '.join(names[node] for node in self.outputs)}"])


def text_of(value: Any, names: dict[Node, str]) -> str:
    """An argument of a node, as it is printed."""
    if isinstance(value, Node):
        return names[value]
    if isinstance(value, tuple):
        return f"({', '.join(text_of(x, names) for x in value)}{',' * (len(value) == 1)})"
    return getattr(value, "__name__", None) or str(value)


def kind_of(node: Node) -> str:
    """The type and shape of a node's result: "float32[4, 5]"."""
    return f"{node.dtype}{list(node.shape)}" if node.dtype is not None else "(several)"


class TraceMode(FunctionMode):
    """Writes down each call of a Function: its name, and the shapes of its tensors."""

    def __init__(self):
        self.calls: list[tuple] = []

    def call(self, function: type, args: tuple) -> Any:
        shapes = [tuple(x.shape) for x in tensors_in(args)]
        self.calls.append((function.__name__, *shapes))
        return function.apply(*args)


if __name__ == "__main__":
    f = np.dtype("float32")
    x, w = Node("input", (), {}, (2, 3), f), Node("input", (), {}, (3, 4), f)
    a = Node("matmul", (x, w), {}, (2, 4), f, "Mm", "model.py:11")
    total = Node("sum", (a,), {"axis": (1,)}, (2,), f, "Sum", "model.py:12")
    graph = Graph([x, w], [a, total], [total])
    print(graph)
    # -> inputs: %0 float32[2, 3], %1 float32[3, 4]
    # -> %2 = matmul(%0, %1)  float32[2, 4]  # Mm, model.py:11
    # -> %3 = sum(%2, axis=(1,))  float32[2]  # Sum, model.py:12
    # -> return %3
    ones = np.ones((2, 3), f), np.ones((3, 4), f)
    print(*graph.run(np, ones))  # -> [12. 12.]

    # Nodes in a tuple, a type as an argument, an argument that is used twice.
    both = Node("concatenate", ((x, x), 0), {}, (4, 3), f)
    wide = Node("astype", (both, np.float64), {}, (4, 3), np.dtype("float64"))
    print(Graph([x], [both, wide], [wide]))
    # -> inputs: %0 float32[2, 3]
    # -> %1 = concatenate((%0, %0), 0)  float32[4, 3]
    # -> %2 = astype(%1, float64)  float64[4, 3]
    # -> return %2
    print(both.inputs() == [x, x], total.inputs() == [a])  # -> True True
    print(list(nodes_in({"b": [x, (w,)], "c": 3})) == [x, w])  # -> True
    print(map_nodes(lambda node: node.op, ([x, 1], {"y": w})))  # -> (['input', 1], {'y': 'input'})
    print(both.replaced({x: w}.get).inputs() == [w, w], both.inputs() == [x, x])  # -> True True
