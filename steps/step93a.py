"""Step 93a: What has it made of my program?

A compiled function does not show whether it is a graph, or has fallen back to eager, nor what the
graph is.

Each node can say which line of the program made it. Between a Function and the program lie only
frames of the framework, so the first frame of another module is the program's, and linecache has
its text. The graph then reads like a listing of the program:

    %2 = multiply(%0, 2.0)  float32[1, 2]  # y = x * 1 * 2
    %3 = matmul(%2, %1)  float32[1, 1]  # y = y @ w

replaced() hands the line on, so a node keeps it through all passes. Nodes of the backward pass have
the text "backward". A break names the line at which the trace gave up.

An environment variable says what is printed when a graph is made, or cannot be made:

    TINYTORCH_LOGS=graph,code,breaks python train.py

An unknown word there is an error that names the known ones.

The trap: the line is where the framework was called. Inside a Module of the framework that is the
line that called the model.

PyTorch: TORCH_LOGS=graph_code,output_code,graph_breaks; torch._dynamo.explain.

New: line_of_the_program, log. Changed: Node, Graph.__str__, Trace.record, TraceMode.call,
Trace.__exit__, replaced, trace_backward, Compiled.
Try: TINYTORCH_LOGS=code python steps/step93c.py shows each network as a program.
"""

import ctypes
import functools
import gc
import linecache
import os
import subprocess
import sys
import tempfile
import threading
import types
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tinytorch.autograd.engine import backward_pass
from tinytorch.autograd.modes import FunctionMode, no_grad
from tinytorch.autograd.node import Function, new
from tinytorch.core.device import Backend, Device, cpu, register_backend
from tinytorch.core.dtype import get_default_dtype
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.erf import erf_of
from tinytorch.ops.normalization import NativeLayerNorm
from tinytorch.ops.random import Generator, generator_for
from tinytorch.utils._nested import tensors_in


class Node:
    """One operation: what is called, with which arguments, and what its result is like.

    args: nodes, numbers, shapes. A node without arguments stands for an input.
    """

    def __init__(self, op, args=(), kwargs=None, shape=None, dtype=None, line=""):
        self.op, self.args, self.kwargs = op, args, kwargs or {}
        self.shape, self.dtype, self.line = shape, dtype, line

    def inputs(self):
        """The nodes among the arguments."""
        return [x for x in self.args if isinstance(x, Node)]


JOINS = "concatenate", "stack"  # their nodes hold the axis, and then the arrays


def check(value, expected):
    """Compare a decision of this run with that of the trace."""
    if bool(value) is not expected:
        raise CheckFailed(f"a decision is {bool(value)}, and was {expected} in the trace")


def perform(xp, op, args, kwargs):
    """The result of one operation on arrays."""
    if op == "constant":
        return args[0]
    if op in ("getitem", "part"):
        return args[0][args[1]]
    if op == "erf":
        return erf_of(args[0], xp)
    if op == "kernel":
        return args[0](*args[1:])
    if op in WHOLE:
        return WHOLE[op](*args)
    if op == "view":
        return args[0].view(args[1])
    if op == "check":
        return check(*args)
    if op == "random":
        return getattr(generator_for(cpu, None).source, args[0])(*args[1:])
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
    return value.__name__ if isinstance(value, type) else str(value)


class Graph:
    """Nodes in an order in which each comes after its arguments; some are inputs, some outputs."""

    def __init__(self, inputs, nodes, outputs):
        self.inputs, self.nodes, self.outputs = inputs, nodes, outputs

    def run(self, xp, arrays):
        """The outputs for these input arrays, one operation after the other."""
        values = dict(zip(self.inputs, arrays, strict=True))
        for node in self.nodes:
            args = [values[x] if isinstance(x, Node) else x for x in node.args]
            value = perform(xp, node.op, args, node.kwargs)
            values[node] = np.asarray(value) if isinstance(value, np.generic) else value
        return [values[node] for node in self.outputs]

    def __str__(self):
        """One line for each node: `%2 = multiply(%0, %1)  float32[4, 5]`."""
        names = {node: f"%{i}" for i, node in enumerate((*self.inputs, *self.nodes))}
        lines = ["inputs: " + ", ".join(f"{names[x]} {kind_of(x)}" for x in self.inputs)]
        for node in self.nodes:
            given = [names[x] if isinstance(x, Node) else text_of(x) for x in node.args]
            given += [f"{name}={value}" for name, value in node.kwargs.items()]
            text = f"{names[node]} = {node.op}({', '.join(given)})  {kind_of(node)}"
            lines.append(f"{text}  # {node.line}" if node.line else text)
        return "\n".join([*lines, "return " + ", ".join(names[x] for x in self.outputs)])


def kind_of(node):
    """The type and shape of a node's result: "float32[4, 5]"; of no array, nothing."""
    return "" if node.dtype is None else f"{node.dtype}{[*node.shape]}"


class Untraceable(Exception):
    """An operation that the graph has no node for."""


class CheckFailed(Exception):
    """A value of a run is not what it was in the trace."""


class Break(Exception):
    """The function cannot be one graph; the text says why."""


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


def line_of_the_program(frame):
    """The text of the line in which the program called the framework."""
    while frame.f_globals["__name__"].startswith("tinytorch."):
        frame = frame.f_back
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()


class TraceMode(FunctionMode):
    """Sees each call of a Function, and lifts the tensors among its arguments."""

    def __init__(self, trace):
        self.trace = trace

    def call(self, function, args):
        self.trace.line = line_of_the_program(sys._getframe(1))
        result = self.called(function, args)
        for x in result if isinstance(result, tuple) else (result,):
            self.trace.made.append(weakref.ref(x))
        return result

    def called(self, function, args):
        for x in args:
            if isinstance(x, Tensor):
                self.trace.lift(x)
        tracers = [x.array for x in args if isinstance(x, Tensor)]
        length, before = len(self.trace.nodes), [dict(vars(tracer)) for tracer in tracers]
        function = decompositions.get(function, function)
        try:
            return function.apply(*args)
        except Untraceable:
            if function.view or function.takes_tensors:
                raise
            del self.trace.nodes[length:]
            for tracer, members in zip(tracers, before, strict=True):
                vars(tracer).update(members)
            return type(function.__name__, (WholeCall,), {"function": function}).apply(*args)


class Trace:
    """One run of a function on tracers: the nodes that it writes, in order."""

    current = None  # the trace that is being written

    def __init__(self):
        self.nodes, self.sources, self.made, self.line = [], [], [], ""

    def __enter__(self):
        Trace.current = self
        tracing_device.__enter__()  # new tensors are tracers, too
        generator_for(tracing_device, None)
        self.stream = generator_for(cpu, None).source.get_state()
        return self

    def __exit__(self, kind, error, traceback):
        tracing_device.__exit__()
        Trace.current = None
        del Generator.default[tracing_device]  # manual_seed() seeds all that are there
        generator_for(cpu, None).source.set_state(self.stream)
        for source in self.sources:
            source.restore()
        if isinstance(error, Exception) and kind is not Break:
            raise Break(f"{error}, in: {self.line}") from error

    def kept(self):
        """How many tensors of the trace are still in use. They get real arrays."""
        gc.collect()  # those that only a cycle of references holds are not in use
        tensors = [x for x in (ref() for ref in self.made) if x is not None]
        for x in tensors:
            x.array, x.device, x._edge, x._view = x.array.value, cpu, None, None
        return len(tensors)

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
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        node = Node(op, args, kwargs, shape, dtype, self.line)
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

    def view(self, dtype=None):
        return traced("view", self, dtype or self.dtype)

    def __len__(self):
        return len(self.value)

    def refuse(self, *args):
        raise Untraceable("a value is needed in the trace")

    __int__ = __float__ = __index__ = __array__ = item = tolist = refuse

    def __bool__(self):
        if not sys._getframe(1).f_globals["__name__"].startswith("tinytorch."):
            self.refuse()  # the program asks, and not the framework
        Trace.current.record("check", (self.node, bool(self.value)), {}, None)
        return bool(self.value)

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


@erf_of.register(Tracer)
def erf_of_tracer(x, xp):
    """The error function as one operation. For NumPy it is a polynomial of many."""
    return traced("erf", x)


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


class TracedSource:
    """Random numbers of the default generator, drawn again in each run."""

    def __init__(self, device):
        self.device = device

    def seed(self, seed):
        if self.device in Generator.default:  # else the generator is just being made
            raise Untraceable("a generator is seeded inside the function")

    def __getattr__(self, method):
        def draw(*args):
            value = perform(np, "random", (method, *args), {})
            return Tracer(value, Trace.current.record("random", (method, *args), {}, value))

        return draw


OTHERS = dict.fromkeys(("to_numpy", "address", "strided"), refuse) | {"random_source": TracedSource}
backend = Backend(TracedModule("traced"), Tracer, lambda array, index: constant(array), **OTHERS)
register_backend("traced", backend)
tracing_device = Device("traced", 0)


class Captured(types.SimpleNamespace):
    """What a trace has found.

    forward: from the sources to `count` results, and then to what backward needs. backward: from
    that and the gradients of the results `roots` to the gradients of the sources `wanted`.
    """

    @property
    def draws(self):
        """Whether a run draws random numbers."""
        return any(node.op == "random" for node in self.forward.graph.nodes)


def capture(function, args, others=()):
    """Run a function on tracers, and its backward pass. Nothing of the program is changed.

    others: tensors that it may use beside its arguments.
    """
    with Trace() as trace:
        for x in (*tensors_in(args), *others):
            trace.lift(x)
        with TraceMode(trace):
            result = function(*args)
        results = list(result) if type(result) is tuple and len(result) > 1 else [result]
        sources = trace.sources
        constants = [node.args[0] for node in trace.nodes if node.op == "constant"]
        check_results(results, [*(s.tensor.array.value for s in sources), *constants])
        check_sources(sources)
        outputs, inputs = [x.array.node for x in results], [source.node for source in sources]
        roots = [n for n, x in enumerate(results) if x.requires_grad]
        wanted = [n for n, source in enumerate(sources) if source.tensor.requires_grad and roots]
        targets = [sources[n].tensor for n in wanted]
        grads, found = trace_backward([results[n] for n in roots], targets)
        wanted = [n for n, x in zip(wanted, found, strict=True) if x is not None]
        found = [x.node for x in found if x is not None]
        graph = Graph([*inputs, *grads], trace.nodes, [*outputs, *found])
        graph = simplify(graph)
    forward, backward = partition(graph, len(outputs), grads)
    del result, results, found
    if trace.kept():
        raise Break("the program keeps a tensor that was made inside the function")
    return Captured(
        sources=sources,
        forward=Program(fuse(forward)),
        backward=Program(fuse(backward)),
        count=len(outputs),
        roots=roots,
        wanted=wanted,
    )


def check_results(results, values):
    """Breaks unless each result is a new tensor, with memory of its own and not that of values."""
    for x in results:
        if type(x) is not Tensor or not isinstance(x.array, Tracer):
            raise Break("the function returns something else than new tensors")
        if any(np.may_share_memory(x.array.value, value) for value in values):
            raise Break("the function returns memory that is not new")
        values = [*values, x.array.value]


def check_sources(sources):
    """Breaks if a tensor of the program was written, or got other data or a history."""
    for source in sources:
        x = source.tensor
        if (
            not isinstance(x.array, Tracer)
            or x.array.node is not source.node
            or x._edge is not None
        ):
            raise Break("the function writes into a tensor of the program")


def trace_backward(roots, targets):
    """The nodes of the roots' gradients, which are inputs, and those of the targets' gradients."""
    ones = [np.ones(x.shape, x.array.dtype) for x in roots]
    nodes = [Node("input", shape=x.shape, dtype=x.dtype) for x in ones]
    edges = {(target, 0) for target in targets}
    Trace.current.line = "backward"
    with no_grad():
        grads = [Tracer(*pair) for pair in zip(ones, nodes, strict=True)]
        found = backward_pass([x._edge for x in roots], grads, True, False, edges)
    return nodes, [found.get((target, 0)) for target in targets]


def without_dead_code(nodes, outputs):
    """The nodes on which the outputs depend, the checks, and those that draw random numbers."""
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if node in needed or node.op in ("check", "random"):
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
    return Node(node.op, args, node.kwargs, node.shape, node.dtype, node.line)


# Objects that hold a function, and where.
WRAPPERS = types.MethodType, staticmethod, classmethod, property, functools.partial
WRAPPED = "__self__", "__func__", "fget", "func", "args", "keywords"


class Watch:
    """What an object holds that a function may look at, and what it was."""

    def __init__(self, root):
        self.facts, self.tensors, self.kinds, self.seen = [], [], [], {}
        self.look(root)

    def look(self, x):
        """Note what x holds, and what that holds, and so on."""
        if id(x) in self.seen or isinstance(x, types.ModuleType) or of_package(x):
            return
        self.seen[id(x)] = x  # kept, so that no other object gets its id
        if isinstance(x, Tensor):
            self.tensors.append(x)
            self.kinds.append(key_of(x))
        elif isinstance(x, WRAPPERS):
            for name in WRAPPED:
                self.look(getattr(x, name, None))
        elif isinstance(x, types.FunctionType):
            names = names_in(x.__code__)
            self.note(x.__globals__, names)
            for module in contents(x.__globals__, names).values():
                if isinstance(module, types.ModuleType) and not of_package(module):
                    self.note(vars(module), names)  # of config.RATE both names are in co_names
            for each in (x.__closure__, x.__defaults__, x.__kwdefaults__, vars(x)):
                self.note(() if each is None else each)
        elif isinstance(x, (dict, list, tuple, set)):
            self.note(x)
        elif hasattr(x, "__dict__"):
            self.note(x if isinstance(x, type) else vars(x))
            for each in (*type(x).__mro__, *getattr(x, "__mro__", ())):
                self.look(each)

    def note(self, holder, names=None):
        """Remember what a dict, list or tuple holds, or only what it holds under these names."""
        self.facts.append((holder, names, dict(contents(holder, names))))
        for value in contents(holder, names).values():
            self.look(value)

    def restore(self):
        """Put back what has changed. Returns whether anything had."""
        changed = self.changed()
        for holder, names, before in self.facts if changed else ():
            if isinstance(holder, (list, set)):
                holder.clear()
                (holder.extend if isinstance(holder, list) else holder.update)(before.values())
            elif isinstance(holder, dict):
                for name in [*holder] if names is None else names:
                    holder.pop(name, None)
                holder.update(before)
            elif isinstance(holder, type):
                for name in [k for k in before if before[k] is not vars(holder).get(k)]:
                    setattr(holder, name, before[name])
            else:
                for cell, value in zip(holder, before.values(), strict=True):
                    if type(cell) is types.CellType:
                        cell.cell_contents = value
        return changed

    def changed(self):
        """Whether something is not as it was."""
        return [key_of(x) for x in self.tensors] != self.kinds or any(
            not same(contents(holder, names), before) for holder, names, before in self.facts
        )


def contents(holder, names=None):
    """What a dict, list or tuple holds, by name or number; of a closure's cells what is in them."""
    if names is not None:
        return {name: holder[name] for name in names if name in holder}
    if isinstance(holder, (dict, type)):
        return holder if isinstance(holder, dict) else vars(holder)
    return {i: inside(x) if type(x) is types.CellType else x for i, x in enumerate(holder)}


def inside(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return None  # a variable that has no value yet


def names_in(code):
    """The names that a function's code uses, and that of the functions inside it."""
    inner = [names_in(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    return set(code.co_names).union(*inner)


def of_package(x):
    """Whether a class, function or module belongs to Python or a library, and does not change."""
    name = x.__name__ if isinstance(x, types.ModuleType) else getattr(x, "__module__", None)
    library = str(name).split(".")[0] in ("tinytorch", "builtins", "numpy")
    return library and isinstance(x, (type, types.FunctionType, types.ModuleType))


def same(a, b):
    """Whether two dicts hold the same objects, or equal numbers and texts."""
    return [*a] == [*b] and all(
        a[k] is b[k]
        or (type(a[k]) is type(b[k]) in (int, float, str, bool) and repr(a[k]) == repr(b[k]))
        for k in b
    )


class WholeCall(Function):
    """A Function that the graph holds as one node. A subclass says which one, in `function`."""

    def forward(ctx, *args):
        values = [as_value(x).copy() if isinstance(x, Tracer) else x for x in args]
        ctx.called = call(ctx.function, ctx.needs_input_grad, None, *values)
        for x, value in zip(args, values, strict=True):
            if isinstance(x, Tracer) and x.value.tobytes() != value.tobytes():
                raise Untraceable(f"{ctx.function.__name__} writes into its argument")
        several, shapes = isinstance(ctx.called.result, tuple), tuple(x.shape for x in ctx.called)
        nodes = ctx.function, ctx.needs_input_grad, shapes, *map(as_node, args)
        ctx.node = Trace.current.record("call", nodes, {}, None)
        parts = [part(ctx.node, number, value) for number, value in enumerate(ctx.called)]
        return tuple(parts) if several else parts[0]

    def backward(ctx, *grads):
        values = call_backward(ctx.called, *map(as_value, grads))
        node = Trace.current.record("call_backward", (ctx.node, *map(as_node, grads)), {}, None)
        return tuple(None if x is None else part(node, i, x) for i, x in enumerate(values))


class PlainLayerNorm(Function):
    """y = h w + b with h = (x - m) r;   dL/dx = r (e - mean(e) - h mean(e h)), e = g w."""

    def forward(ctx, x, weight, bias, running_mean, running_var, shape, dims, eps, momentum=None):
        rows = x.reshape(shape)
        centered = rows - row_means(rows)
        ctx.r = 1 / ctx.xp.sqrt(row_means(centered * centered) + eps)
        ctx.h, ctx.weight, ctx.bias = centered * ctx.r, weight, bias
        y = ctx.h if weight is None else ctx.h * weight.reshape(-1)
        return (y if bias is None else y + bias.reshape(-1)).reshape(x.shape)

    def backward(ctx, g):
        rows = g.reshape(ctx.h.shape)
        e = rows if ctx.weight is None else rows * ctx.weight.reshape(-1)
        gx = ctx.r * (e - row_means(e) - ctx.h * row_means(e * ctx.h))
        gw = None if ctx.weight is None else (rows * ctx.h).sum(axis=0).reshape(ctx.weight.shape)
        gb = None if ctx.bias is None else rows.sum(axis=0).reshape(ctx.bias.shape)
        return gx.reshape(g.shape), gw, gb


def row_means(rows):
    """The mean of each row."""
    return rows.sum(axis=1, keepdims=True) / rows.shape[1]


# What a trace calls in place of a Function.
decompositions = {NativeLayerNorm: PlainLayerNorm}


def as_value(x):
    return x.value if isinstance(x, Tracer) else x


def part(node, number, value):
    """A tracer for one of several results."""
    return Tracer(value, Trace.current.record("part", (node, number), {}, value))


class Called(tuple):
    """The results of a Function. `ctx` is its call, and `result` what forward returned."""


def call(function, needs, shapes, *args):
    """What a Function does when it is called in a program.

    CheckFailed: its results have other shapes than in the trace.
    """
    ctx = new(function)
    ctx.edges = tuple(() if need else None for need in needs)
    result = function.forward(ctx, *args)
    results = result if isinstance(result, tuple) else (result,)
    called = Called(np.asarray(x) for x in results)
    called.ctx, called.result = ctx, result
    if shapes not in (None, tuple(x.shape for x in called)):
        raise CheckFailed(f"{function.__name__} has results of another shape")
    return called


def call_backward(called, *grads):
    """The gradients of a Function's arguments, from those of its results."""
    results = called.ctx.backward(*grads)
    results = results if isinstance(results, tuple) else (results,)
    return tuple(x if x is None else np.asarray(x) for x in results)


WHOLE = {"call": call, "call_backward": call_backward}


def key_of(x):
    """What a graph rests on of an argument: of a tensor its kind, of all else its value."""
    if isinstance(x, Tensor):
        return x.array.shape, x.array.strides, x.array.dtype, x.requires_grad
    return type(x), x, str(x)


SIMPLE = Tensor, Parameter, int, float, bool, str, type(None)


def log(word, text):
    """Print on stderr what TINYTORCH_LOGS asks for: words of graph, code and breaks."""
    wanted = os.environ.get("TINYTORCH_LOGS", "").split(",")
    if unknown := set(wanted) - {"graph", "code", "breaks", ""}:
        raise ValueError(f"TINYTORCH_LOGS: {sorted(unknown)} are none of graph, code, breaks")
    if word in wanted:
        print(text, file=sys.stderr)


lock = threading.RLock()  # a trace changes tensors that other threads may use


class Compiled:
    """A function, and the graphs that were traced from it, by the kind of the arguments.

    breaks: why there is none for a kind.
    """

    def __init__(self, function):
        self.function, self.graphs, self.breaks = function, {}, {}

    def __call__(self, *args):
        with lock:
            return self.call(args)

    def call(self, args):
        if state.modes or not all(type(x) in SIMPLE for x in args):
            return self.function(*args)
        ids = [id(x) for x in args]  # f(x, x) has another graph than f(x, y)
        key = state.grad_enabled, get_default_dtype(), *map(key_of, args), *map(ids.index, ids)
        if key in self.graphs and self.graphs[key][-1].changed():
            del self.graphs[key]
        if key not in self.graphs and key not in self.breaks:
            try:
                self.graphs[key] = self.traced(args)
                log("graph", self.graphs[key][0].forward.graph)
                log("code", self.graphs[key][0].forward.source)
            except Break as error:
                self.breaks[key] = str(error)
                log("breaks", f"{text_of(self.function)}: {error}")
        if key in self.breaks:
            return self.function(*args)
        captured, places, _ = self.graphs[key]
        pairs = zip(captured.sources, places, strict=True)
        source = generator_for(cpu, None).source
        stream = source.get_state() if captured.draws else None
        try:
            return run(captured, [s.tensor if place is None else args[place] for s, place in pairs])
        except CheckFailed:
            if captured.draws:
                source.set_state(stream)
            return self.function(*args)

    def traced(self, args):
        watch, numbers = Watch(self.function), {id(x): n for n, x in enumerate(args)}
        if any(id(x) in numbers for x in watch.tensors):
            raise Break("an argument is a tensor that the function also finds by itself")
        watch.look(args)
        grads = [x._grad for x in watch.tensors]
        try:
            captured = capture(self.function, args, watch.tensors)
        finally:
            changed = watch.restore()
            for x, grad in zip(watch.tensors, grads, strict=True):
                changed, x._grad = changed or x._grad is not grad, grad
        if changed or any(s.tensor is x for s in captured.sources for x in grads):
            raise Break(
                "the function sets an attribute, a name or an entry of a list, or uses .grad"
            )
        return captured, [numbers.get(id(s.tensor)) for s in captured.sources], watch


class CompiledCall(Function):
    """One run of a compiled function, as a node in the graph of autograd."""

    def forward(ctx, captured, *arrays):
        values = captured.forward(arrays)
        ctx.captured, ctx.saves = captured, ()
        ctx.save_for_backward(*values[captured.count :])
        return tuple(values[: captured.count])

    def record_outputs(ctx, outs):
        Function.record_outputs(ctx, [outs[n] for n in ctx.captured.roots])

    def backward(ctx, *grads):
        found = ctx.captured.backward([*ctx.saved, *grads])
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


# Operations that may show the memory of their first argument.
VIEWS = frozenset(
    "reshape transpose swapaxes squeeze expand_dims moveaxis broadcast_to getitem view "
    "ascontiguousarray".split()
)
# Operations that do more than give a result, or give another one each time.
EFFECTS = frozenset("check random call call_backward".split())


def simplify(graph):
    """A graph of the same numbers, bit for bit, with fewer nodes."""
    graph = rewritten(rewritten(graph, algebra), common_parts())
    return with_memory_of_their_own(graph)


def rewritten(graph, rule):
    """The graph with rule(node) in the place of each node for which it gives another one.

    A rule gets a node whose arguments are rewritten already, and returns one of the nodes before.
    """
    done, nodes = {node: node for node in graph.inputs}, []
    for node in graph.nodes:
        new = replaced(node, done)
        done[node] = rule(new) or new
        if done[node] is new:
            nodes.append(new)
    outputs = [done[node] for node in graph.outputs]
    return Graph(graph.inputs, without_dead_code(nodes, outputs), outputs)


def algebra(node):
    """x for x * 1, x / 1, x - 0, x ** 1, and for a shape or type that x has already."""
    a, b = (*node.args, None, None)[:2]
    found = None
    if (node.op in ("multiply", "divide", "power") and is_number(b, 1)) or (
        node.op == "subtract" and is_number(b, 0)
    ):
        found = a
    elif node.op in ("reshape", "broadcast_to", "astype"):
        found = a
    like = isinstance(found, Node) and (found.shape, found.dtype) == (node.shape, node.dtype)
    return found if like else None


def common_parts():
    """A rule that finds a node which does the same as an earlier one."""
    seen = {}

    def rule(node):
        if node.op in EFFECTS or node.op == "constant":
            return None
        args = [id(x) if isinstance(x, Node) else repr(x) for x in node.args]
        return seen.setdefault(repr((node.op, args, node.kwargs)), node)

    return rule


def is_number(x, n):
    return type(x) in (int, float) and str(x) in (str(n), f"{n}.0")  # -0.0 is not 0


def memory_of(node):
    """The node whose memory a view shows; of others, the node itself."""
    while node.op in VIEWS:
        node = node.args[0]
    return node


def with_memory_of_their_own(graph):
    """The graph with copies of outputs that show an input, a constant or another output."""
    nodes, outputs, taken = list(graph.nodes), [], set()
    for node in graph.outputs:
        memory = memory_of(node)
        if memory.op in ("input", "constant") or memory in taken:
            node = Node("copy", (node,), {}, node.shape, node.dtype)
            nodes.append(node)
        taken.add(memory)
        outputs.append(node)
    return Graph(graph.inputs, nodes, outputs)


# What an operation is in C. The results are NumPy's, also for nan.
FORMULAS = {
    "add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}", "divide": "{} / {}",
    "negative": "-{}", "square": "{0} * {0}", "greater": "{} > {}", "less": "{} < {}",
    "greater_equal": "{} >= {}", "less_equal": "{} <= {}", "equal": "{} == {}",
    "not_equal": "{} != {}", "where": "{} ? {} : {}", "astype": "{0}",
    "maximum": "{0} >= {1} || {0} != {0} ? {0} : {1}",
    "minimum": "{0} <= {1} || {0} != {0} ? {0} : {1}",
    "broadcast_to": "{0}", "reshape": "{0}",
}  # fmt: skip
# Functions of C's library, and where they have forms for several numbers at once.
MATH = {"exp": "exp", "log": "log", "tanh": "tanh", "erf": "erf", "power": "pow", "sqrt": "sqrt"}
# Sums and maxima of rows: what they begin with, and how OpenMP names what adds a number.
REDUCTIONS = {"sum": ("0", "+"), "max": ("-INFINITY", "highest")}
HIGHEST = """#pragma omp declare reduction(highest : float, double : \\
    omp_out = omp_out >= omp_in || omp_out != omp_out ? omp_out : omp_in) \\
    initializer(omp_priv = -INFINITY)"""
C_TYPES = {"float32": "float", "float64": "double", "bool": "_Bool"}
SUFFIX = {"float32": "f", "float64": ""}
GLIBC = [
    "#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)",
    "#if __GLIBC_PREREQ(2, 35)",
]
FLAGS = "-O3 -march=native -ffp-contract=off -fopenmp-simd -fno-math-errno -shared -fPIC".split()


def has_formula(node):
    """Whether C text computes a node: one float type, and truth values."""
    if node.op not in (*FORMULAS, *MATH) or any(
        place_of(x, node.shape) is None for x in node.inputs()
    ):
        return False
    floats = {str(x.dtype) for x in (node, *node.inputs())} - {"bool"}
    return len(floats) == 1 and floats <= C_TYPES.keys()


def flat(shape):
    """A shape as rows and columns: all dimensions but the last are rows."""
    columns = shape[-1] if shape else 1
    return int(np.prod(shape[:-1])), columns


ROW = "[i]", "[0]"  # the places of what is one number for a row


def is_reduction(node):
    """Whether a node is the sum or the maximum of each row of floats."""
    if node.op not in REDUCTIONS or str(node.dtype) not in SUFFIX:
        return False
    (x,), axis = node.inputs(), node.kwargs.get("axis")
    n = len(x.shape)
    axis = range(n) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return x.dtype == node.dtype and [a % n for a in axis] == [n - 1] and x.shape[-1] > 1


def place_of(node, shape):
    """The element of an array that belongs to row i and column j of `shape`, as C text; or None."""
    rows, columns = flat(shape)
    places = {(rows, columns): "[i * columns + j]", (1, 1): "[0]"}
    places |= {(rows, 1): "[i]"} if columns != 1 else {}
    places |= {(1, columns): "[j]"} if rows != 1 else {}
    return places.get(flat(node.shape))


def c_expression(node, names):
    """A node as a C expression; names has the variable of each argument."""
    floats = [x.dtype for x in (node, *node.inputs()) if x.dtype != bool]
    args = [names[x] if isinstance(x, Node) else c_number(x, floats[0]) for x in node.args]
    if node.op in MATH:
        return f"{MATH[node.op]}{SUFFIX[str(node.dtype)]}({', '.join(args)})"
    return FORMULAS[node.op].format(*args)


def declarations(nodes):
    """C text for the functions that the nodes call: they have a form for several numbers."""
    lines = []
    for op, dtype in dict.fromkeys((node.op, str(node.dtype)) for node in nodes):
        if op in MATH and op != "sqrt":  # the processor has that one
            kind, function = C_TYPES[dtype], MATH[op] + SUFFIX[dtype]
            given = f"{kind}, {kind}" if op == "power" else kind
            lines.append(f'__attribute__((simd("notinbranch"))) {kind} {function}({given});')
    highest = [HIGHEST] * any(node.op == "max" for node in nodes)
    return ["#include <math.h>", *highest, *GLIBC, *lines, "#endif\n#endif"]


def c_number(x, dtype):
    """A number of Python, rounded as NumPy rounds it. What is no number is not in the text."""
    if not isinstance(x, (int, float, np.number)):
        return ""
    text = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}.get(str(float(x)), str(float(x)))
    return f"({C_TYPES[str(dtype)]}){text}"


def c_function(nodes, operands, results, shape):
    """The text of a C function that computes the nodes for each row and column of the shape."""
    names = {node: f"v{i}" for i, node in enumerate((*operands, *nodes))}
    kinds = {node: C_TYPES[str(node.dtype)] for node in names}
    pointers = [f"const {kinds[x]} *a{i}" for i, x in enumerate(operands)]
    pointers += [f"{kinds[x]} *restrict r{i}" for i, x in enumerate(results)]
    define = {x: c_defined(x, names) for x in nodes if not is_reduction(x)}
    for i, x in enumerate(operands):
        define[x] = f"{kinds[x]} {names[x]} = a{i}{place_of(x, shape)};"
    rows = [x for x in operands if place_of(x, shape) in ROW]
    rows += [x for x in nodes if is_reduction(x) or flat(x.shape) != flat(shape)]
    store = {
        x: f"r{i}{'[i]' if x in rows else '[i * columns + j]'} = {names[x]};"
        for i, x in enumerate(results)
    }
    stage = stages(nodes)
    lines = [f"void kernel(long rows, long columns,\n    {', '.join(pointers)}) {{"]
    lines += ["for (long i = 0; i < rows; i++) {"]
    for k in range(max(stage.values()) + 1):
        lines += [define[x] for x in rows if stage.get(x, 0) == k and x in define]
        sums = [x for x in nodes if is_reduction(x) and stage[x] == k + 1]
        wanted = [x for x in results if x not in rows and stage[x] == k]
        if sums or wanted:
            inner = needed(nodes, operands, [*(x.args[0] for x in sums), *wanted], rows)
            lines += [c_start(x, names) for x in sums]
            lines += [c_pragma(sums, names), "for (long j = 0; j < columns; j++) {"]
            lines += [define[x] for x in inner]
            lines += [*(c_added(x, names) for x in sums), *(store[x] for x in wanted), "}"]
            lines += [c_end(x, names) for x in sums]
    lines += [store[x] for x in results if x in rows]
    return "\n".join([*declarations(nodes), *lines, "}}"])


def stages(nodes):
    """For each node, behind how many loops over the row its value is known or can be stored."""
    stage = {}
    for node in nodes:
        stage[node] = max((stage.get(x, 0) for x in node.inputs()), default=0) + is_reduction(node)
    return stage


def needed(nodes, operands, wanted, rows):
    """What a loop has to compute for the wanted values: all but what is known for the row."""
    found = set()
    for node in reversed((*operands, *nodes)):
        if (node in wanted or node in found) and node not in rows:
            found.update([node, *node.inputs()])
    return [x for x in (*operands, *nodes) if x in found and x not in rows]


def c_defined(node, names):
    return f"{C_TYPES[str(node.dtype)]} {names[node]} = {c_expression(node, names)};"


def c_start(node, names):
    """What a sum or maximum is before the first number of a row. Sums are added up as double."""
    kind = "double" if node.op == "sum" else C_TYPES[str(node.dtype)]
    return f"{kind} s{names[node]} = {REDUCTIONS[node.op][0]};"


def c_end(node, names):
    """What it is behind the last number, rounded once."""
    return f"{C_TYPES[str(node.dtype)]} {names[node]} = s{names[node]};"


def c_added(node, names):
    name, x = f"s{names[node]}", names[node.args[0]]
    greater = FORMULAS["maximum"].format(name, x)
    return f"{name} += {x};" if node.op == "sum" else f"{name} = {greater};"


def c_pragma(sums, names):
    """The loop behind it may work on several numbers, each with sums of its own to begin with."""
    clauses = [f" reduction({REDUCTIONS[x.op][1]}:s{names[x]})" for x in sums]
    return "#pragma omp simd" + "".join(clauses)


@functools.cache
def build(source):
    """The library of C source text."""
    with tempfile.TemporaryDirectory() as folder:
        path, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        path.write_text(source)
        subprocess.run(["cc", *FLAGS, str(path), "-o", str(library), "-lm"], check=True)
        return ctypes.CDLL(str(library))


class Group:
    """Nodes that may be computed in one loop. level: behind how many other groups it stands."""

    def __init__(self, node, level):
        self.nodes, self.level = [node], level
        self.shape = flat(node.shape) if has_formula(node) else None
        if is_reduction(node):
            self.shape = flat(node.inputs()[0].shape)

    def takes(self, node):
        """Whether a node that reads this group can be computed in its loop."""
        if self.shape is None or not (has_formula(node) or is_reduction(node)):
            return False
        rows, columns = self.shape
        if has_formula(node) and flat(node.shape) == (rows, 1) != self.shape:
            return all(flat(x.shape)[1] == 1 for x in node.inputs())  # once for each row
        values = node.inputs()
        for x in values:
            if (
                x in self.nodes
                and flat(x.shape) != self.shape
                and place_of(x, node.shape) not in ROW
            ):
                return False  # a sum of each row that is read as a row
        return self.shape == flat((values[0] if is_reduction(node) else node).shape)


def grouped(graph):
    """The nodes of a graph in groups, in an order in which each comes after what it reads."""
    where, groups = {}, []
    for node in graph.nodes:
        read = {where[x] for x in node.inputs() if x in where}
        level = max((group.level for group in read), default=-1)
        top = [group for group in groups if group in read and group.level == level]
        alike = len({group.shape for group in top}) == 1
        if alike and all(group.takes(node) for group in top):
            first, *others = top
            for group in others:  # groups of one level do not read each other
                first.nodes += group.nodes
                groups.remove(group)
            first.nodes.append(node)
            where |= dict.fromkeys(first.nodes, first)
        else:
            where[node] = Group(node, level + 1)
            groups.append(where[node])
    return sorted(groups, key=lambda group: group.level)


class Kernel:
    """A group as one function of arrays, in C."""

    def __init__(self, nodes, operands, results, shape):
        self.nodes, self.operands, self.results = nodes, operands, results
        self.source = c_function(nodes, operands, results, shape)
        self.function, self.rows, self.columns = build(self.source).kernel, 1, int(np.prod(shape))
        if not all(flat(x.shape) == flat(shape) for x in (*operands, *nodes)):
            self.rows, self.columns = flat(shape)

    def __call__(self, *arrays, out):
        arrays = [np.ascontiguousarray(x) for x in arrays]
        pairs = zip(self.results, out, strict=True)
        results = [np.empty(x.shape, x.dtype) if y is None else y for x, y in pairs]
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*arrays, *results)]
        self.function(ctypes.c_long(self.rows), ctypes.c_long(self.columns), *pointers)
        return results

    def __str__(self):
        return f"{len(self.nodes)} operations"


def fuse(graph):
    """The graph with a Kernel in place of each group of two or more operations."""
    groups, nodes, done = grouped(graph), [], {node: node for node in graph.inputs}
    outside = set(graph.outputs)
    for group in groups:
        outside.update(x for node in group.nodes for x in node.inputs() if x not in group.nodes)
    for group in groups:
        if group.shape is None or len(group.nodes) < 2:
            for node in group.nodes:
                done[node] = replaced(node, done)
                nodes.append(done[node])
            continue
        used = dict.fromkeys(x for node in group.nodes for x in node.inputs())
        operands = [x for x in used if x not in group.nodes]
        results = [node for node in group.nodes if node in outside]
        kernel = Kernel(group.nodes, operands, results, group.shape)
        nodes.append(Node("kernel", (kernel, *(done[x] for x in operands))))
        for i, x in enumerate(results):
            done[x] = Node("part", (nodes[-1 - i], i), {}, x.shape, x.dtype)
            nodes.append(done[x])
    return Graph(graph.inputs, nodes, [done[x] for x in graph.outputs])


# What a graph calls with its arguments as they stand; `perform` does all else.
def is_plain(node):
    special = {"constant", "put", "check", "random", "view", "kernel", *JOINS, *WHOLE}
    return node.op not in special


def planned(graph):
    """A buffer for each node whose result is gone when the program ends. Some share one."""
    readers = {node: [] for node in (*graph.inputs, *graph.nodes)}
    for node in graph.nodes:
        for x in node.inputs():
            readers[memory_of(x)].append(node)
    leaving = {memory_of(x) for x in graph.outputs}
    buffers, free = {}, {}
    for node in graph.nodes:
        for x in parts_of(node, graph) if node.op == "kernel" else [node]:
            held = any(reader.op in WHOLE for reader in readers[x])  # a Function may keep it
            if has_out(x) and x not in buffers and x not in leaving and not held:
                shelf = free.setdefault((x.shape, x.dtype), [])
                buffers[x] = shelf.pop() if shelf else np.empty(x.shape, x.dtype)
        for x in dict.fromkeys(memory_of(x) for x in node.inputs()):
            if x in buffers and readers[x][-1] is node:
                free[x.shape, x.dtype].append(buffers[x])
    return buffers


def parts_of(kernel, graph):
    """The nodes of a kernel's results. Their memory is written when the kernel runs."""
    return [node for node in graph.nodes if node.op == "part" and node.args[0] is kernel]


def has_out(node):
    """Whether a result can be written into memory that is there. matmul is a ufunc, too."""
    if node.op == "part":
        return node.args[0].op == "kernel"
    return isinstance(getattr(np, node.op, None), np.ufunc) and node.shape != ()


class Program:
    """A graph as a function of Python."""

    def __init__(self, graph):
        self.graph, self.buffers = graph, planned(graph)
        self.space = {"np": np, "perform": perform}
        self.names = {node: f"v{i}" for i, node in enumerate((*graph.inputs, *graph.nodes))}
        lines = [f"def program({', '.join(self.names[x] for x in graph.inputs)}):"]
        lines += [f"    {self.names[node]} = {self.call(node)}" for node in graph.nodes]
        lines.append(f"    return [{', '.join(self.names[x] for x in graph.outputs)}]")
        self.source = "\n".join(lines)
        exec(self.source, self.space)

    def call(self, node):
        """The text of one operation."""
        args = [self.text(x) for x in node.args]
        if node.op in ("getitem", "part"):
            text = f"{args[0]}[{args[1]}]"
        elif node.op == "kernel":
            out = [self.text(self.buffers.get(x)) for x in parts_of(node, self.graph)]
            text = f"{args[0]}({', '.join(args[1:])}, out=[{', '.join(out)}])"
        elif is_plain(node):
            args += [f"{name}={self.text(x)}" for name, x in node.kwargs.items()]
            if node in self.buffers:
                args.append(f"out={self.text(self.buffers[node])}")
            text = f"np.{node.op}({', '.join(args)})"
        else:
            text = f"perform(np, {node.op!r}, [{', '.join(args)}], {self.text(node.kwargs)})"
        return f"np.asarray({text})" if node.shape == () else text

    def text(self, x):
        """An argument: a variable, a number, or a name for an object."""
        if isinstance(x, Node):
            return self.names[x]
        if type(x) in (int, bool, str, type(None)) or (type(x) is float and np.isfinite(x)):
            return repr(x)
        name = f"c{len(self.space)}"
        self.space[name] = x
        return name

    def __call__(self, arrays):
        with lock:  # the buffers are for one run at a time
            return self.space["program"](*arrays)


if __name__ == "__main__":
    import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
    from tinytorch.core.tensor import tensor

    def function(x, w):
        y = x * 1 * 2
        y = y @ w
        return y.exp()

    def stubborn(x):
        y = x * 2
        return y if y.sum() > 0 else -y

    os.environ["TINYTORCH_LOGS"], sys.stderr = "graph,code,breaks", sys.stdout
    x = tensor([[1.0, 2.0]])
    print(compile(function)(x, x.T))  # -> tensor([[22026.4668]])
    print(compile(stubborn)(x))  # -> tensor([[2., 4.]])
    os.environ["TINYTORCH_LOGS"] = "graphs"
    try:
        compile(function)(x, x.T)
    except ValueError as error:
        print(error)
    # -> TINYTORCH_LOGS: ['graphs'] are none of graph, code, breaks
