"""Step 87c: All operators, and arrays from outside

A tracer of step 87b can be added and multiplied, but `2 * x` fails: Python asks the left operand's
__mul__ first, and then the right one's __rmul__, which is missing. All operators do the same
under another name, so a loop attaches them from a table. A comparison needs no second method, for
Python turns 2 < x into x > 2.

`op=op` in the lambda keeps the name that the loop has now. Without it all methods would use the
last one, for a function looks a variable up when it runs.

An array from outside, such as a weight, becomes a node "constant", which holds the array itself and
not a copy; each run reads it. `perform` does what is not a function of the array library.
Properties such as shape come from the real array and make no node: they are plain data, and frozen.

The trap: in `w @ x` the array is asked first, and NumPy would take the tracer for an object to be
put into an array. `__array_ufunc__ = None` tells NumPy to leave the operation to the tracer.

PyTorch: Proxy gets its operators from a table in the same way; constants become get_attr nodes.

New: OPERATORS, COMPARISONS, perform, text_of, Tracer.__getitem__, __invert__, shape and the like.
Changed: Graph.run, Graph.__str__, as_node, traced.
Try: leave out `op=op`, twice. The demo's product is then a bitwise_or, which floats do not have.
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


def perform(xp, op, args, kwargs):
    """The result of one operation on arrays."""
    if op == "constant":
        return args[0]
    if op == "getitem":
        return args[0][args[1]]
    return getattr(xp, op)(*args, **kwargs)


def text_of(value):
    """An argument that is no node, as it is printed."""
    if isinstance(value, np.ndarray):
        return str(value.item()) if value.size == 1 else f"array{[*value.shape]}"
    return str(value)


class Graph:
    """Nodes in an order in which each comes after its arguments; some are inputs, some outputs."""

    def __init__(self, inputs, nodes, outputs):
        self.inputs, self.nodes, self.outputs = inputs, nodes, outputs

    def run(self, xp, arrays):
        """The outputs for these input arrays, one operation after the other."""
        values = dict(zip(self.inputs, arrays, strict=True))
        for node in self.nodes:
            args = [values[x] if isinstance(x, Node) else x for x in node.args]
            values[node] = np.asarray(perform(xp, node.op, args, node.kwargs))
        return [values[node] for node in self.outputs]

    def __str__(self):
        """One line for each node: `%2 = multiply(%0, %1)  float32[4, 5]`."""
        names = {node: f"%{i}" for i, node in enumerate((*self.inputs, *self.nodes))}
        lines = ["inputs: " + ", ".join(f"{names[x]} {kind_of(x)}" for x in self.inputs)]
        for node in self.nodes:
            given = [names[x] if isinstance(x, Node) else text_of(x) for x in node.args]
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
    """A tracer's node, and a node for an array from outside; other values stay."""
    if isinstance(x, np.ndarray):
        return Trace.current.record("constant", (x,), {}, x)
    return x.node if isinstance(x, Tracer) else x


def traced(op, *args, **kwargs):
    """The result of an operation, computed and written down."""
    values = [x.value if isinstance(x, Tracer) else x for x in args]
    value = np.asarray(perform(np, op, values, kwargs))
    nodes = tuple(as_node(x) for x in args)
    return Tracer(value, Trace.current.record(op, nodes, kwargs, value))


class Tracer:
    """An array that writes down what is done to it.

    value: a real array, so that shapes, types and errors are those of the array library.
    node: the operation of the graph that made it.
    """

    __array_ufunc__ = None  # array * tracer is ours to do

    def __init__(self, value, node):
        self.value, self.node = value, node

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    T = property(lambda self: traced("transpose", self))

    def __getitem__(self, key):
        return traced("getitem", self, key)

    def __neg__(self):
        return traced("negative", self)

    def __invert__(self):
        return traced("invert", self)

    def sum(self, axis=None, keepdims=False):
        return traced("sum", self, axis=axis, keepdims=keepdims)


OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "matmul": "matmul",
    "and": "bitwise_and", "or": "bitwise_or",
}  # fmt: skip
COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "eq": "equal", "ne": "not_equal",
}  # fmt: skip
for name, op in (OPERATORS | COMPARISONS).items():
    setattr(Tracer, f"__{name}__", lambda self, other, op=op: traced(op, self, other))
for name, op in OPERATORS.items():
    setattr(Tracer, f"__r{name}__", lambda self, other, op=op: traced(op, other, self))


def graph_of(function, *arrays):
    """The Graph of a function of arrays: it runs once, on tracers."""
    inputs = [Node("input", shape=x.shape, dtype=x.dtype) for x in arrays]
    with Trace() as trace:
        result = function(*map(Tracer, arrays, inputs))
    return Graph(inputs, trace.nodes, [result.node])


if __name__ == "__main__":
    x, w = np.array([1.0, 2.0]), np.ones((3, 2))
    graph = graph_of(lambda x: (w @ x[:, None]).T - 2.5 / x[0], x)
    print(graph)
    # -> inputs: %0 float64[2]
    # -> %1 = getitem(%0, (slice(None, None, None), None))  float64[2, 1]
    # -> %2 = constant(array[3, 2])  float64[3, 2]
    # -> %3 = matmul(%2, %1)  float64[3, 1]
    # -> %4 = transpose(%3)  float64[1, 3]
    # -> %5 = getitem(%0, 0)  float64[]
    # -> %6 = divide(2.5, %5)  float64[]
    # -> %7 = subtract(%4, %6)  float64[1, 3]
    # -> return %7
    w *= 10
    print(graph.run(np, [x]))  # -> [array([[27.5, 27.5, 27.5]])]

    print([node.op for node in graph_of(lambda x: ~(2 < x), x).nodes])  # -> ['greater', 'invert']
