"""Step 87d: The array library of tracers

A Tracer knows operators, and a network calls tanh, sigmoid, softmax. Does each of them need a
method that writes it down?

No. Every Function of this framework computes with `ctx.xp`, the array library of the place where
its tensors live (step 63b). So make the tracers a place: a device "traced", whose array library is
a module of which every function writes itself down,

    xp.exp(tracer)   ->   traced("exp", tracer)

and give the function tensors that live there. The finished sigmoid, which knows nothing of
tracers, is then recorded as what it does: negative, exp, add, divide.

TracedModule looks each name up in NumPy. Types and numbers, such as float32 and pi, are handed on.
A function of tracers is recorded if its result is one array whose shape does not depend on values:
element-wise functions (ufuncs) with one result, and the list FUNCTIONS. nonzero() is not among
them. Zeros and the like, MAKERS, become constants. All else raises Untraceable, and so does the
memory of a tracer. `base` is only there because the framework asks arrays for it.

The trap: new tensors, such as zeros(3), must be tracers as well. `with tracing_device` (step 63a)
makes it the default device.

PyTorch: FakeTensors and ProxyTensors, which see the calls below autograd.

New: Untraceable, FUNCTIONS, MAKERS, TracedModule, constant, refuse, tracing_device.
Changed: graph_of, Tracer.
Try: leave tracing_device out of graph_of's `with`: mul(zeros(3), x) finds two devices.
"""

import types

import numpy as np

from tinytorch.core.device import Backend, Device, register_backend
from tinytorch.core.tensor import wrap


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


class Untraceable(Exception):
    """An operation that the graph has no node for."""


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
    base = None  # of an array of NumPy: whose memory it shows

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


# Functions of the array library whose result is one array, of a shape that no value decides.
FUNCTIONS = frozenset(
    "sum prod mean max min amax amin all any reshape transpose swapaxes squeeze broadcast_to "
    "expand_dims moveaxis ascontiguousarray copy astype asarray array where matmul clip".split()
)
MAKERS = frozenset("asarray array zeros ones full empty arange eye tri".split())


class TracedModule(types.ModuleType):
    """The array library, on tracers."""

    def __getattr__(self, name):
        function = getattr(np, name)
        if isinstance(function, type) or not callable(function):
            return function  # np.float32, np.pi
        single = isinstance(function, np.ufunc) and function.nout == 1

        def call(*args, **kwargs):
            if not any(isinstance(x, Tracer) for x in args):
                result = function(*args, **kwargs)
                return constant(result) if name in MAKERS else result
            if not (single or name in FUNCTIONS):
                raise Untraceable(f"the graph has no node for '{name}'")
            return traced(name, *args, **kwargs)

        return call


def constant(array):
    """A tracer for an array that is the same in each run."""
    return Tracer(array, as_node(array))


def refuse(*args):
    raise Untraceable("the memory of a tracer")


OTHERS = dict.fromkeys(("to_numpy", "address", "strided"), refuse)
backend = Backend(TracedModule("traced"), Tracer, lambda array, index: constant(array), **OTHERS)
register_backend("traced", backend)
tracing_device = Device("traced", 0)


def graph_of(function, *arrays):
    """The Graph of a function of Tensors: it runs once, on tracers."""
    inputs = [Node("input", shape=x.shape, dtype=x.dtype) for x in arrays]
    tracers = map(Tracer, arrays, inputs)
    with Trace() as trace, tracing_device:
        result = function(*[wrap(tracer, tracing_device) for tracer in tracers])
    return Graph(inputs, trace.nodes, [result.array.node])


if __name__ == "__main__":
    from tinytorch.nn.modules.activation import sigmoid
    from tinytorch.ops.arithmetic import mul
    from tinytorch.ops.creation import zeros

    x = np.array([[1.0, 2.0, 3.0]], np.float32)
    graph = graph_of(sigmoid, x)
    print(graph)
    # -> inputs: %0 float32[1, 3]
    # -> %1 = negative(%0)  float32[1, 3]
    # -> %2 = exp(%1)  float32[1, 3]
    # -> %3 = add(1, %2)  float32[1, 3]
    # -> %4 = divide(1, %3)  float32[1, 3]
    # -> return %4
    print(graph.run(np, [x])[0].round(4))  # -> [[0.7311 0.8808 0.9526]]

    print([n.op for n in graph_of(lambda x: mul(zeros(3), x), x).nodes])
    # -> ['constant', 'multiply']
    print(tracing_device.xp.pi, tracing_device.xp.prod([2, 3]))  # -> 3.141592653589793 6
    for function in (tracing_device.xp.nonzero, tracing_device.backend.address):
        try:
            function(Tracer(x, graph.inputs[0]))
        except Untraceable as error:
            print(error)
    # -> the graph has no node for 'nonzero'
    # -> the memory of a tracer
