"""Step 87b: An array that writes down what is done to it

Nobody wants to type the graph of step 87a. And to read it out of Python's source would mean to
understand loops, functions, classes and all the rest of Python.

But Python itself understands them. So let it run the function once, on an object that behaves like
an array and keeps a record. A Tracer holds two things: a real array, and the Node that stands for
it. Each operation on it computes a real result and writes a new node:

    x * 2      ->   value: 2 * the real array      node: multiply(%0, 2)

What Python does in between leaves no trace. A loop of three rounds becomes three groups of nodes,
one after the other; a call of a function becomes what that function does; of an `if` only the
branch remains that was taken. The graph is the whole computation, without the program.

The real values make it easy: the array library says what shape and type each result has, and
raises its own errors. The price is that the first run costs a little more than a usual one.

The trap: everything that is no tracer is frozen. The `n` of the demo was 3 when the function was
traced, and the graph has three products for ever.

PyTorch: torch.fx.symbolic_trace, whose Proxy has no value; jax.make_jaxpr.

New: Trace, Tracer, as_node, traced, graph_of.
Try: graph_of(lambda x: polynomial(x, 5), x). It has 11 nodes.
"""

import numpy as np


class Node:
    """One operation: what is called, with which arguments, and what its result is like.

    args: nodes, numbers, shapes. A node without arguments stands for an input.
    """

    def __init__(self, op, args=(), kwargs=None, shape=None, dtype=None):
        self.op, self.args, self.kwargs = op, args, kwargs or {}
        self.shape, self.dtype = shape, dtype

    def inputs(self):
        """The nodes among the arguments."""
        return [x for x in self.args if isinstance(x, Node)]


class Graph:
    """Nodes in an order in which each comes after its arguments; some are inputs, some outputs."""

    def __init__(self, inputs, nodes, outputs):
        self.inputs, self.nodes, self.outputs = inputs, nodes, outputs

    def run(self, xp, arrays):
        """The outputs for these input arrays, one operation after the other."""
        values = dict(zip(self.inputs, arrays, strict=True))
        for node in self.nodes:
            args = [values[x] if isinstance(x, Node) else x for x in node.args]
            values[node] = getattr(xp, node.op)(*args, **node.kwargs)
        return [values[node] for node in self.outputs]

    def __str__(self):
        """One line for each node: `%2 = multiply(%0, %1)  float32[4, 5]`."""
        names = {node: f"%{i}" for i, node in enumerate((*self.inputs, *self.nodes))}
        lines = ["inputs: " + ", ".join(f"{names[x]} {kind_of(x)}" for x in self.inputs)]
        for node in self.nodes:
            given = [names[x] if isinstance(x, Node) else str(x) for x in node.args]
            given += [f"{name}={value}" for name, value in node.kwargs.items()]
            lines.append(f"{names[node]} = {node.op}({', '.join(given)})  {kind_of(node)}")
        return "\n".join([*lines, "return " + ", ".join(names[x] for x in self.outputs)])


def kind_of(node):
    """The type and shape of a node's result: "float32[4, 5]"."""
    return f"{node.dtype}{[*node.shape]}"


class Trace:
    """One run of a function on tracers: the nodes that it writes, in order."""

    current = None  # the trace that is being written

    def __init__(self):
        self.nodes = []

    def __enter__(self):
        Trace.current = self
        return self

    def __exit__(self, *exception):
        Trace.current = None

    def record(self, op, args, kwargs, value):
        """A new node, with the shape and type of `value`."""
        node = Node(op, args, kwargs, value.shape, value.dtype)
        self.nodes.append(node)
        return node


def as_node(x):
    """A tracer's node; other values stay."""
    return x.node if isinstance(x, Tracer) else x


def traced(op, *args, **kwargs):
    """The result of an operation, computed and written down."""
    values = [x.value if isinstance(x, Tracer) else x for x in args]
    value = np.asarray(getattr(np, op)(*values, **kwargs))
    nodes = tuple(as_node(x) for x in args)
    return Tracer(value, Trace.current.record(op, nodes, kwargs, value))


class Tracer:
    """An array that writes down what is done to it.

    value: a real array, so that shapes, types and errors are those of the array library.
    node: the operation of the graph that made it.
    """

    def __init__(self, value, node):
        self.value, self.node = value, node

    def __add__(self, other):
        return traced("add", self, other)

    def __mul__(self, other):
        return traced("multiply", self, other)

    def __neg__(self):
        return traced("negative", self)

    def sum(self, axis=None, keepdims=False):
        return traced("sum", self, axis=axis, keepdims=keepdims)


def graph_of(function, *arrays):
    """The Graph of a function of arrays: it runs once, on tracers."""
    inputs = [Node("input", shape=x.shape, dtype=x.dtype) for x in arrays]
    with Trace() as trace:
        result = function(*map(Tracer, arrays, inputs))
    return Graph(inputs, trace.nodes, [result.node])


if __name__ == "__main__":

    def polynomial(x, n=3):
        y = x * 0
        for k in range(n):
            y = y * x + k
        return y if n > 2 else -y

    x = np.array([1.0, 2.0])
    graph = graph_of(polynomial, x)
    print(graph)
    # -> inputs: %0 float64[2]
    # -> %1 = multiply(%0, 0)  float64[2]
    # -> %2 = multiply(%1, %0)  float64[2]
    # -> %3 = add(%2, 0)  float64[2]
    # -> %4 = multiply(%3, %0)  float64[2]
    # -> %5 = add(%4, 1)  float64[2]
    # -> %6 = multiply(%5, %0)  float64[2]
    # -> %7 = add(%6, 2)  float64[2]
    # -> return %7
    print(graph.run(np, [np.array([3.0, 10.0])]), polynomial(10.0))  # -> [array([ 5., 12.])] 12.0

    print(graph_of(lambda x: -(x * x).sum(axis=0), x))
    # -> inputs: %0 float64[2]
    # -> %1 = multiply(%0, %0)  float64[2]
    # -> %2 = sum(%1, axis=0, keepdims=False)  float64[]
    # -> %3 = negative(%2)  float64[]
    # -> return %3
