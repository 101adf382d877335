"""Step tracer02: A graph: nodes in order, run without the framework

The list of step tracer01 does not say which result goes where. So an operation has to refer to its
arguments instead of describing them. Let each operation be an object, and let its arguments be the
objects that produced them:

    x = Node("input")                      y = tanh(x w + b)
    a = Node("matmul", (x, w))
    s = Node("add", (a, b))                x --- matmul --- add --- tanh --- y
    y = Node("tanh", (s,))                 w ----'   b -----'

A graph is a list of nodes in which each node comes after its arguments. The graph also knows which
nodes are inputs and which are outputs. To run it is a loop over the nodes. A dict holds the value
of each node that is done: look the arguments up there, and call the function of the array library
that has the node's name.

There is no Tensor, no Function and no mode. In the demo, a chain of 30 operations on four numbers
takes about two thirds of eager's time, and a loop in Python is the slowest way to run a graph.
Later steps generate C for it.

Nodes are not edited. To change a graph means to make new nodes: `replaced` gives the same operation
with other arguments.

The trap is the order. With a node before its argument, the loop finds nothing in the dict.

(PyTorch: torch.fx.Graph, torch.fx.Node and torch.fx.Interpreter.)

New: Node, map_nodes, Graph.
Try: give the graph two outputs, of which one is an input.
"""

import importlib
import itertools
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from tinytorch.autograd.modes import FunctionMode
from tinytorch.ops.random import manual_seed, randn
from tinytorch.utils._nested import tensors_in

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise indexing matmul reduction sampling shape softmax".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Node:
    """One operation: the name of a function of the array library, and its arguments, some of which
    are other nodes. An argument of the whole graph is a node with the name "input"."""

    count = itertools.count()

    def __init__(self, op: str, args: tuple = ()):
        self.op, self.args = op, args
        self.number = next(Node.count)

    def replaced(self, replace: Callable[["Node"], Any]) -> "Node":
        """The same operation with replace(node) in place of each node among its arguments."""
        return Node(self.op, map_nodes(replace, self.args))

    def __repr__(self) -> str:
        return f"%{self.number}"


def map_nodes(function: Callable[[Node], Any], value: Any) -> Any:
    """`value` with function(node) in place of each node."""
    if isinstance(value, Node):
        return function(value)
    if isinstance(value, tuple):
        return tuple(map_nodes(function, item) for item in value)
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
            values[node] = getattr(xp, node.op)(*args)
        return [values[node] for node in self.outputs]


class TraceMode(FunctionMode):
    """Writes down each call of a Function: its name, and the shapes of its tensors."""

    def __init__(self):
        self.calls: list[tuple] = []

    def call(self, function: type, args: tuple) -> Any:
        shapes = [tuple(x.shape) for x in tensors_in(args)]
        self.calls.append((function.__name__, *shapes))
        return function.apply(*args)


if __name__ == "__main__":
    manual_seed(0)
    x, w, b = Node("input"), Node("input"), Node("input")
    a = Node("matmul", (x, w))
    s = Node("add", (a, b))
    y = Node("tanh", (s,))
    graph = Graph([x, w, b], [a, s, y], [y])
    print(graph.nodes, y.args)  # -> [%3, %4, %5] (%4,)

    tensors = randn(2, 3), randn(3, 4), randn(4)
    eager = (tensors[0] @ tensors[1] + tensors[2]).tanh()
    (value,) = graph.run(np, [t.array for t in tensors])
    print(np.array_equal(value, eager.array))  # -> True

    # A tuple of nodes is an argument too.
    joined = Node("concatenate", ((x, x), 1))
    print(
        Graph([x], [joined], [joined]).run(np, [np.ones((1, 2))])
    )  # -> [array([[1., 1., 1., 1.]])]

    # The same operation with other arguments.
    print(a.replaced({x: w, w: b}.get).args == (w, b), a.args == (x, w))  # -> True True

    # The time of a chain of small operations.
    nodes = [x]
    for number in range(30):
        nodes.append(Node("multiply" if number % 2 else "add", (nodes[-1], 1.01)))
    chain = Graph([x], nodes[1:], nodes[-1:])

    def in_eager(t):
        for number in range(30):
            t = t * 1.01 if number % 2 else t + 1.01
        return t

    def microseconds(function, argument):
        times = []
        for _ in range(300):
            start = time.perf_counter_ns()
            function(argument)
            times.append((time.perf_counter_ns() - start) / 1000)
        return median(times)

    t = randn(4)
    print(np.allclose(chain.run(np, [t.array])[0], in_eager(t).array))  # -> True
    eager = microseconds(in_eager, t)
    alone = microseconds(lambda array: chain.run(np, [array]), t.array)
    print(f"eager {eager:.0f} us, graph {alone:.0f} us")  # -> eager ... us, graph ... us

    try:
        Graph([x, w, b], [s, a, y], [y]).run(np, [t.array for t in tensors])
    except KeyError as error:
        print("KeyError:", error)  # -> KeyError: %3
