"""Step 87b: An array that writes down what is done to it

Typing the graph of step 87a by hand is work. Python can do it: let it run the function once, on an
object that behaves like an array and keeps a record. A Tracer holds two things: a real array, and
the Node that stands for it. Each operation on it computes a real result and writes a new node into
the Trace that is open:

    x * 2      ->   value: 2 * the real array      node: multiply(%0, 2)

What Python does in between leaves no trace. A loop of two rounds becomes two groups of nodes, one
after the other; a call becomes what the called function does; of an `if` only the branch remains
that was taken.

The real values tell the shape and type of each result, and raise NumPy's own errors. (NumPy's sum
is a scalar object; asarray makes it an array again.)

The trap: whatever is not a tracer is frozen. The `n` of the demo was 2 when the function was
traced, so the graph has two products for ever.

PyTorch: torch.fx.symbolic_trace, whose Proxy has no value; jax.make_jaxpr.

New: Trace, Tracer, as_node, traced, graph_of.
Try: trace with n=1 and with n=4, and count the nodes: where is the sum, where is the loop?
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

    def function(x, n=2):
        for _ in range(n):
            x = x * x + 1
        return -x.sum() if n > 1 else x

    x = np.array([1.0, 2.0])
    graph = graph_of(function, x)
    print(graph)
    # -> inputs: %0 float64[2]
    # -> %1 = multiply(%0, %0)  float64[2]
    # -> %2 = add(%1, 1)  float64[2]
    # -> %3 = multiply(%2, %2)  float64[2]
    # -> %4 = add(%3, 1)  float64[2]
    # -> %5 = sum(%4, axis=None, keepdims=False)  float64[]
    # -> %6 = negative(%5)  float64[]
    # -> return %6
    other = np.array([3.0, 10.0])
    print(*graph.run(np, [other]), function(other))  # -> -10303.0 -10303.0
