"""Step 88c: Now, later, or once and for all

A framework can compute at three times:

    eager     now: each operation as the line is reached. What the first ten stages do.
    lazy      later: each line adds a node, and a graph is run when a value is needed.
    traced    once: the first call makes a graph, and the later ones skip the program.

Eager stops at the line of an error, and never sees two operations together. Lazy sees them
together, but makes the graph anew in each call. Traced makes it once, and must ask in each call
whether it still holds. In the last row n is 4, and the traced graph still has three products:
compile() has n in its key for this.

A traced derivative is the list of what the chain rule did. In calculus one applies rules to the
formula itself:

    d(u * v) = du * v + u * dv        each product becomes two, and each factor is written twice

So symbolic derivatives grow. For n rounds of x = x * x, the demo writes the formula of the
derivative and counts its products: n * 2^n. The traced one has four nodes a round, because in a
list a value that is used twice is written once.

PyTorch is eager, and traced under torch.compile. TensorFlow 1 was lazy; so are tinygrad and MLX.

New: nothing. The framework is that of step 88b.
Try: print len(symbolic(n)[1]) for n = 10 and 12, and the nodes beside it.
"""

import types
from dataclasses import dataclass

import numpy as np

from tinytorch.autograd.engine import backward_pass
from tinytorch.autograd.modes import FunctionMode, no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.device import Backend, Device, cpu, register_backend
from tinytorch.core.dtype import get_default_dtype
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor


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


@dataclass
class Source:
    """A tensor of the program that a trace has lifted, and what it was before."""

    tensor: Tensor
    node: Node
    array: np.ndarray
    before: tuple  # whether it requires a gradient, its place in the graph, whose view it is

    def restore(self):
        x = self.tensor
        x.array, x.device = self.array, cpu
        x._requires_grad, x._edge, x._view = self.before


class TraceMode(FunctionMode):
    """Sees each call of a Function, and lifts the tensors among its arguments."""

    def __init__(self, trace):
        self.trace = trace

    def call(self, function, args):
        for x in args:
            if isinstance(x, Tensor):
                self.trace.lift(x)
        return function.apply(*args)


class Trace:
    """One run of a function on tracers: the nodes that it writes, in order."""

    current = None  # the trace that is being written

    def __init__(self):
        self.nodes, self.sources = [], []

    def __enter__(self):
        Trace.current = self
        tracing_device.__enter__()  # new tensors are tracers, too
        return self

    def __exit__(self, *exception):
        tracing_device.__exit__()
        Trace.current = None
        for source in self.sources:
            source.restore()

    def lift(self, tensor):
        """Make a tensor of the program one on a tracer, until the trace ends."""
        array = tensor.array
        if not isinstance(array, Tracer):
            node = Node("input", shape=array.shape, dtype=array.dtype)
            before = tensor._requires_grad, tensor._edge, tensor._view
            self.sources.append(Source(tensor, node, array, before))
            tensor.array, tensor.device = Tracer(array, node), tracing_device
            tensor._edge = tensor._view = None

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


class Captured(types.SimpleNamespace):
    """What a trace has found.

    forward: from the sources to `count` results, and then to what backward needs. backward: from
    that and the gradients of the results `roots` to the gradients of the sources `wanted`.
    """


def capture(function, *args):
    """Run a function on tracers, and its backward pass. Nothing of the program is changed."""
    with Trace() as trace:
        with TraceMode(trace):
            result = function(*args)
        results = list(result) if isinstance(result, tuple) else [result]
        sources = trace.sources
        outputs, inputs = [x.array.node for x in results], [source.node for source in sources]
        roots = [n for n, x in enumerate(results) if x.requires_grad]
        wanted = [n for n, source in enumerate(sources) if source.tensor.requires_grad and roots]
        targets = [sources[n].tensor for n in wanted]
        grads, found = trace_backward([results[n] for n in roots], targets)
        wanted = [n for n, x in zip(wanted, found, strict=True) if x is not None]
        found = [x.node for x in found if x is not None]
        graph = Graph([*inputs, *grads], trace.nodes, [*outputs, *found])
    forward, backward = partition(graph, len(outputs), grads)
    return Captured(
        sources=sources,
        forward=forward,
        backward=backward,
        count=len(outputs),
        roots=roots,
        wanted=wanted,
    )


def trace_backward(roots, targets):
    """The nodes of the roots' gradients, which are inputs, and those of the targets' gradients."""
    ones = [np.ones(x.shape, x.array.dtype) for x in roots]
    nodes = [Node("input", shape=x.shape, dtype=x.dtype) for x in ones]
    edges = {(target, 0) for target in targets}
    with no_grad():
        grads = [Tracer(*pair) for pair in zip(ones, nodes, strict=True)]
        found = backward_pass([x._edge for x in roots], grads, True, False, edges)
    return nodes, [found.get((target, 0)) for target in targets]


def without_dead_code(nodes, outputs):
    """The nodes on which the outputs depend."""
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if node in needed:
            kept.append(node)
            needed.update(node.inputs())
    return kept[::-1]


def partition(graph, count, grads):
    """A joint graph as two: forward gives `count` outputs, and then what backward needs."""
    behind = set(grads)  # what is known only when backward begins
    for node in graph.nodes:
        if not behind.isdisjoint(node.inputs()):
            behind.add(node)
    outputs, gradients = graph.outputs[:count], graph.outputs[count:]
    last = without_dead_code([node for node in graph.nodes if node in behind], gradients)
    used = dict.fromkeys(x for node in last for x in node.inputs())
    kept = [node for node in dict.fromkeys([*used, *gradients]) if node not in behind]
    first = [node for node in graph.nodes if node not in behind]
    first = without_dead_code(first, [*outputs, *kept])
    inputs = [node for node in graph.inputs if node not in grads]
    return Graph(inputs, first, [*outputs, *kept]), part_of(kept, grads, last, gradients)


def part_of(kept, grads, nodes, outputs):
    """The graph from kept values and gradients on: a kept value is an input, whatever made it."""
    done = {x: Node("input", shape=x.shape, dtype=x.dtype) for x in kept} | {x: x for x in grads}
    for node in nodes:
        done[node] = replaced(node, done)
    inputs = [done[x] for x in (*kept, *grads)]
    return Graph(inputs, [done[node] for node in nodes], [done[node] for node in outputs])


def replaced(node, done):
    """The node with done[x] in place of each argument x; itself where these are the same."""
    if all(done[x] is x for x in node.inputs()):
        return node
    args = tuple(done[x] if isinstance(x, Node) else x for x in node.args)
    return Node(node.op, args, node.kwargs, node.shape, node.dtype)


def key_of(x):
    """What a graph rests on of an argument: of a tensor its kind, of all else its value."""
    if isinstance(x, Tensor):
        return x.array.shape, x.array.strides, x.array.dtype, x.requires_grad
    return type(x), x, str(x)


class Compiled:
    """A function, and the graphs that were traced from it, by the kind of the arguments."""

    def __init__(self, function):
        self.function, self.graphs = function, {}

    def __call__(self, *args):
        ids = [id(x) for x in args]  # f(x, x) has another graph than f(x, y)
        key = state.grad_enabled, get_default_dtype(), *map(key_of, args), *map(ids.index, ids)
        if key not in self.graphs:
            captured, numbers = (
                capture(self.function, *args),
                {id(x): n for n, x in enumerate(args)},
            )
            self.graphs[key] = captured, [numbers.get(id(s.tensor)) for s in captured.sources]
        captured, places = self.graphs[key]
        pairs = zip(captured.sources, places, strict=True)
        return run(captured, [s.tensor if place is None else args[place] for s, place in pairs])


class CompiledCall(Function):
    """One run of a compiled function, as a node in the graph of autograd."""

    def forward(ctx, captured, *arrays):
        values = captured.forward.run(ctx.xp, arrays)
        ctx.captured, ctx.saves = captured, ()
        ctx.save_for_backward(*values[captured.count :])
        return tuple(values[: captured.count])

    def record_outputs(ctx, outs):
        Function.record_outputs(ctx, [outs[n] for n in ctx.captured.roots])

    def backward(ctx, *grads):
        found = ctx.captured.backward.run(ctx.xp, [*ctx.saved, *grads])
        found = dict(zip(ctx.captured.wanted, found, strict=True))
        return None, *(found.get(n) for n in range(len(ctx.captured.sources)))

    def gradients(ctx, grads):
        raise NotImplementedError("a compiled function cannot be differentiated twice")


def run(captured, tensors):
    """The results of a graph for the tensors that it reads."""
    results = CompiledCall.apply(captured, *tensors)
    return results if len(results) > 1 else results[0]


def compile(model):
    """A function or network that is traced at the first call, and run as a graph from then on."""
    return Compiled(model)


if __name__ == "__main__":
    import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
    from tinytorch.core.tensor import tensor

    def rounds(x, n):
        for _ in range(n):
            x = x * x
        return x

    x = tensor([1.01])
    traced_once = capture(rounds, x, 3).forward
    for n in (3, 4):
        graphs = capture(rounds, x, n).forward, traced_once
        values = [rounds(x, n).array, *(graph.run(np, [x.array])[0] for graph in graphs)]
        print(n, *[value.round(4) for value in values])
    # -> 3 [1.0829] [1.0829] [1.0829]
    # -> 4 [1.1726] [1.1726] [1.0829]

    def symbolic(n):
        """The formulas of y and of dy/dx after n rounds, as text."""
        if n == 0:
            return "x", "1"
        y, dy = symbolic(n - 1)
        return f"{y}*{y}", f"({dy}*{y}+{y}*{dy})"

    print(symbolic(2)[1])  # -> ((1*x+x*1)*x*x+x*x*(1*x+x*1))
    for n in (1, 2, 8):
        captured = capture(rounds, tensor([1.01], requires_grad=True), n)
        nodes = len(captured.forward.nodes) + len(captured.backward.nodes)
        print(n, symbolic(n)[1].count("*"), nodes)
    # -> 1 2 4
    # -> 2 8 8
    # -> 8 2048 32
