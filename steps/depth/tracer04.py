"""Step tracer04: Tracers: arrays that record what is done to them

The graphs of steps tracer02 and tracer03 were written by hand. A program should produce its own. A
mode cannot do that: it sees "softmax", one name, where the graph needs max, subtract, exp, sum and
divide. The Function's formula calls these on its arrays. So let the arrays do the recording:

    class Tracer          value    a real array, with the numbers of this one call
                          node     the node of the graph that stands for it

    c = a * b             value: a.value * b.value          node: multiply(a.node, b.node)

So `a * b` goes through four short functions, in this order:

    Tracer.__mul__(a, b)         made by attach_operator, one for each operator
    traced("multiply", (a, b))   does the two halves, and makes the Tracer of the result:
      perform(xp, "multiply", (a.value, b.value))      computes, as in the run of a graph
      record("multiply", (a.node, b.node), ...)        appends a node to the open Trace

as_value and as_node take the two halves out of the arguments, also out of a tuple of tracers. A
`Trace` is one run, with the nodes that it has recorded; `tracing` holds the Trace that is open on
this thread, so that `record` finds it.

Why does a tracer hold a real array? Because then the tracer needs no rules for operations. Which
shape and type does the product of an integer array and a float array have? NumPy computes it and
tells us. NumPy's errors are raised at the line of the program that causes them.

The trap: array * tracer. NumPy takes the tracer for a single object, and multiplies each element of
the array by it. `__array_ufunc__ = None` tells NumPy to leave the operator to the other operand.

(JAX calls them tracers as well; in PyTorch a FakeTensor has shape and type without the numbers.)

New: Tracing, record, as_node, as_value, traced, with_operators, attach_operator, Tracer, perform,
Trace. Changed: Graph.run.
Try: delete `__array_ufunc__ = None`. What is np.ones(3) * b then, and how many nodes are recorded?
"""

import importlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.device import Device, cpu
from tinytorch.core.tensor import Tensor
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
            values[node] = perform(xp, node.op, args, node.kwargs)
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


def perform(xp: Any, op: str, args: tuple, kwargs: dict) -> Any:
    """The result of one operation on arrays."""
    return getattr(xp, op)(*args, **kwargs)


class Tracing(threading.local):
    """What is being traced on this thread."""

    trace: Any = None  # the Trace, or None


tracing = Tracing()


def record(op: str, args: tuple, kwargs: dict, value: Any) -> Node:
    """A new node of the graph, with the shape and type of `value`."""
    node = Node(op, args, kwargs, value.shape, value.dtype)
    tracing.trace.nodes.append(node)
    return node


def as_node(value: Any) -> Any:
    """`value` with nodes in place of tracers, also inside tuples."""
    if isinstance(value, Tracer):
        return value.node
    if isinstance(value, tuple):
        return tuple(as_node(item) for item in value)
    return value


def as_value(value: Any) -> Any:
    """`value` with real arrays in place of tracers, also inside tuples."""
    if isinstance(value, Tracer):
        return value.value
    if isinstance(value, tuple):
        return tuple(as_value(item) for item in value)
    return value


def traced(op: str, args: tuple, kwargs: dict | None = None) -> "Tracer":
    """The result of an operation, computed and written down."""
    kwargs, xp = kwargs or {}, tracing.trace.xp
    value = xp.asarray(perform(xp, op, as_value(args), kwargs))
    return Tracer(value, record(op, as_node(args), kwargs, value))


OPERATORS = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide"}


def with_operators(cls: type) -> type:
    """A class decorator: gives arrays a + b, 2 + a and their kin."""
    for name, op in OPERATORS.items():
        attach_operator(cls, name, op)
    return cls


def attach_operator(cls: type, name: str, op: str) -> None:
    """Gives arrays one operator: a + b and 2 + a."""

    def forward(self: Any, other: Any) -> Any:
        return traced(op, (self, other))

    def reflected(self: Any, other: Any) -> Any:
        return traced(op, (other, self))

    setattr(cls, f"__{name}__", forward)
    setattr(cls, f"__r{name}__", reflected)


@with_operators
class Tracer:
    """An array that writes down what is done to it.

    Attributes:
        value: the array of the call that is traced.
        node: what stands for it in the graph.
    """

    __array_ufunc__ = None  # NumPy must not take it for an operand of its own
    __hash__ = None

    def __init__(self, value: Any, node: Node):
        self.value, self.node = value, node

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)
    ndim = property(lambda self: self.value.ndim)


class TraceMode(FunctionMode):
    """Writes down each call of a Function: its name, and the shapes of its tensors."""

    def __init__(self):
        self.calls: list[tuple] = []

    def call(self, function: type, args: tuple) -> Any:
        shapes = [tuple(x.shape) for x in tensors_in(args)]
        self.calls.append((function.__name__, *shapes))
        return function.apply(*args)


class Trace:
    """One run of a function on tracers.

    Attributes:
        nodes: what was recorded, in order.
    """

    def __init__(self, device: Device):
        self.device, self.xp = device, device.xp
        self.nodes: list[Node] = []

    def __enter__(self) -> "Trace":
        tracing.trace = self
        return self

    def __exit__(self, *exception: Any) -> None:
        tracing.trace = None


if __name__ == "__main__":
    # What a mode sees of a softmax: one name.
    with TraceMode() as mode:
        Tensor([1.0, 2.0]).softmax(0)
    print(mode.calls)  # -> [('Softmax', (2,))]

    # What tracers see of a formula: each operation on arrays.
    def lens(a, b):
        """1 / f = 1 / a + 1 / b"""
        return 1 / (1 / a + 1 / b)

    arrays = np.array([[2.0], [3.0]], "float32"), np.array([2.0, 6.0], "float32")
    inputs = [Node("input", (), {}, array.shape, array.dtype) for array in arrays]
    with Trace(cpu) as trace:
        y = lens(*(Tracer(array, node) for array, node in zip(arrays, inputs, strict=True)))
    graph = Graph(inputs, trace.nodes, [y.node])
    print(graph)
    # -> inputs: %0 float32[2, 1], %1 float32[2]
    # -> %2 = divide(1, %0)  float32[2, 1]
    # -> %3 = divide(1, %1)  float32[2]
    # -> %4 = add(%2, %3)  float32[2, 2]
    # -> %5 = divide(1, %4)  float32[2, 2]
    # -> return %5

    # The tracer has the values of this call; the graph computes those of any call.
    print(np.array_equal(y.value, lens(*arrays)))  # -> True
    others = np.array([[4.0], [8.0]], "float32"), np.array([4.0, 8.0], "float32")
    print(np.array_equal(graph.run(np, others)[0], lens(*others)))  # -> True

    # Shapes, types and errors are NumPy's.
    with Trace(cpu) as trace:
        a, b = Tracer(np.ones((2, 3), "int64"), inputs[0]), Tracer(np.ones(3, "float32"), inputs[1])
        y = a * b - 2.0
        print(y.shape, y.dtype, y.ndim)  # -> (2, 3) float64 2
        try:
            a + Tracer(np.ones(2), inputs[1])
        except ValueError as error:
            print(error)  # -> operands could not be broadcast together with shapes (2,3) (2,)

        # Both arguments of a function that takes a tuple of arrays.
        joined = traced("concatenate", ((a, a), 0))
        print(joined.shape, joined.node.args == ((inputs[0], inputs[0]), 0))  # -> (4, 3) True
        print(type(np.ones(3) * b).__name__)  # -> Tracer
