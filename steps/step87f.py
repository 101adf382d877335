"""Step 87f: Writes become values

    y = x - m
    xp.exp(y, out=y)
    y /= y.sum(axis=-1, keepdims=True)

That is softmax, as it stands in the package, and step 87e cannot trace it: it writes into an array
that it has just made, to save memory. A graph has no memory to write into.

But after a write, the name y simply stands for another value. So the tracer lets go of its node and
takes the new one:

    y            %3 = subtract(%0, %2)
    exp, out=y   %4 = exp(%3)              from here on, y is %4

`write` does that for out=, for y /= s, and for y[0] = v, whose node "put" is a copy with another
value in one place. No node is ever overwritten.

One case is left. y.T shows the memory of y, and a write into y would have to change what the
tracer of y.T stands for. traced() compares the memory of the real arrays and marks both as shared;
a write into shared memory is Untraceable.

The trap: `counts += 0.5` keeps the type of an array of integers, so write() casts.

PyTorch: functionalization, which follows views as well, and writes into them again.

New: put; of Tracer write, __setitem__, shared. Changed: perform, traced, OPERATORS' loop,
TracedModule.
Try: leave out the test of `shared`: the demo prints [[2. 4. 6.]], and [[3. 5. 7.]] is right.
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


JOINS = "concatenate", "stack"  # their nodes hold the axis, and then the arrays


def perform(xp, op, args, kwargs):
    """The result of one operation on arrays."""
    if op == "constant":
        return args[0]
    if op == "getitem":
        return args[0][args[1]]
    if op in JOINS:
        return getattr(xp, op)(args[1:], axis=args[0])
    if op == "put":
        return put(*args)
    return getattr(xp, op)(*args, **kwargs)


def put(array, value, key):
    """A copy of an array with another value in the part that the index leads to."""
    array = array.copy()
    array[key] = value
    return array


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
    if value is values[0]:  # asarray() of an array is the array
        return args[0]
    nodes = tuple(as_node(x) for x in args)
    result = Tracer(value, Trace.current.record(op, nodes, kwargs, value))
    for x in args:
        if isinstance(x, Tracer) and np.may_share_memory(value, x.value):
            result.shared = x.shared = True
    return result


class Tracer:
    """An array that writes down what is done to it.

    value: a real array, so that shapes, types and errors are those of the array library.
    node: the operation of the graph that made it.
    """

    __array_ufunc__ = None  # array * tracer is ours to do
    base = None  # of an array of NumPy: whose memory it shows
    shared = False  # whether another tracer shows the same memory

    def __init__(self, value, node):
        self.value, self.node = value, node

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    itemsize = property(lambda self: self.value.itemsize)
    strides = property(lambda self: self.value.strides)
    T = property(lambda self: traced("transpose", self))
    mT = property(lambda self: traced("swapaxes", self, -1, -2))

    def __getitem__(self, key):
        return traced("getitem", self, plain(key))

    def __setitem__(self, key, value):
        self.write(traced("put", self, value, plain(key)))

    def write(self, result):
        """Become `result`: from now on the tracer stands for what was written into it."""
        if self.shared:
            raise Untraceable("a write into memory that another tracer shows")
        if result.dtype != self.dtype:
            result = result.astype(self.dtype)
        self.value, self.node = result.value, result.node
        return self

    def __neg__(self):
        return traced("negative", self)

    def __invert__(self):
        return traced("invert", self)

    def __len__(self):
        return len(self.value)

    def astype(self, dtype, copy=True):
        return traced("astype", self, np.dtype(dtype), copy=copy)

    def reshape(self, *shape):
        return traced("reshape", self, shape[0] if isinstance(shape[0], tuple) else shape)

    def transpose(self, *axes):
        return traced("transpose", self, axes[0] if isinstance(axes[0], (tuple, list)) else axes)

    def __getattr__(self, name):
        """A method such as x.sum(1): the array library's function of the same name."""
        if name.startswith("_"):
            raise AttributeError(name)
        if not hasattr(np, name):
            raise Untraceable(f"the graph has no node for '{name}'")
        function = getattr(tracing_device.xp, name)
        return lambda *args, **kwargs: function(self, *args, **kwargs)


def plain(key):
    """An index of numbers, slices, None and `...`, which leads to the same place in each run."""
    for part in key if isinstance(key, tuple) else (key,):
        if not (part is None or part is ... or type(part) in (int, slice)):
            raise Untraceable("an index that is neither a number nor a slice")
    return key


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
    setattr(Tracer, f"__i{name}__", lambda self, other, op=op: self.write(traced(op, self, other)))


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
        if name in JOINS:
            return lambda arrays, axis=0: traced(name, axis, *arrays)
        single = isinstance(function, np.ufunc) and function.nout == 1

        def call(*args, out=None, **kwargs):
            if not any(isinstance(x, Tracer) for x in args):
                result = function(*args, **kwargs)
                return constant(result) if name in MAKERS else result
            if not (single or name in FUNCTIONS):
                raise Untraceable(f"the graph has no node for '{name}'")
            result = traced(name, *args, **kwargs)
            return result if out is None else out.write(result)

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
    from tinytorch.nn.functional import softmax

    x = np.array([[1.0, 2.0, 3.0]])
    graph = graph_of(lambda x: softmax(x, dim=1), x)
    print(graph)
    # -> inputs: %0 float64[1, 3]
    # -> %1 = max(%0, axis=(1,), keepdims=True)  float64[1, 1]
    # -> %2 = subtract(%0, %1)  float64[1, 3]
    # -> %3 = exp(%2)  float64[1, 3]
    # -> %4 = sum(%3, axis=(1,), keepdims=True, dtype=None)  float64[1, 1]
    # -> %5 = divide(%3, %4)  float64[1, 3]
    # -> return %5

    with Trace() as trace:
        counts = Tracer(np.array([1, 2, 3]), Node("input"))
        counts[1:] = 5
        counts += 0.5
    print(counts.value, [node.op for node in trace.nodes])  # -> [1 5 5] ['put', 'add', 'astype']

    with Trace():
        y = Tracer(x, Node("input")) * 2
        row = y.reshape(1, 3)
        try:
            y += 1
            print(row.value)
        except Untraceable as error:
            print(error)
    # -> a write into memory that another tracer shows
