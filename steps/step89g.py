"""Step 89g: Writes into what the program holds

    running_mean += 0.1 * (batch_mean - running_mean)

A run of a graph gives numbers, and nothing else. So this write is lost, in silence: in the trace
the tracer of running_mean becomes another node (step 87f), then the tensor gets its old array back,
and no run ever writes. A count of calls in an attribute is right, but each call traces anew.

After the trace both can be seen. check_sources asks whether a tensor of the program still has the
node that it began with. The Watch of step 89b knows what else the function can reach, and says
whether something has changed. Then the function runs in eager.

Before that, what the trace has changed is put back, so that it happens once and not twice:
restore() does it for lists, sets, dicts, classes and closures, and `traced` for gradients.

The trap is .grad: zero_grad() drops that tensor, and the next backward() makes another. So a
function that reads or sets one breaks; the arguments are looked at for theirs.

PyTorch repeats such effects after the graph has run. The written values are outputs of its graph,
as in the package.

New: check_sources, Watch.restore. Changed: capture, Compiled.traced.
Try: call watch.changed() in place of watch.restore(): two calls are counted as three.
"""

import functools
import sys
import types
from dataclasses import dataclass

import numpy as np

from tinytorch.autograd.engine import backward_pass
from tinytorch.autograd.modes import FunctionMode, no_grad
from tinytorch.autograd.node import Function, new
from tinytorch.core.device import Backend, Device, cpu, register_backend
from tinytorch.core.dtype import get_default_dtype
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.ops.random import Generator, generator_for
from tinytorch.utils._nested import tensors_in


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
            lines.append(f"{names[node]} = {node.op}({', '.join(given)})  {kind_of(node)}")
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


class TraceMode(FunctionMode):
    """Sees each call of a Function, and lifts the tensors among its arguments."""

    def __init__(self, trace):
        self.trace = trace

    def call(self, function, args):
        for x in args:
            if isinstance(x, Tensor):
                self.trace.lift(x)
        tracers = [x.array for x in args if isinstance(x, Tensor)]
        length, before = len(self.trace.nodes), [dict(vars(tracer)) for tracer in tracers]
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
        self.nodes, self.sources = [], []

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
            raise Break(str(error)) from error

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
        node = Node(op, args, kwargs, shape, dtype)
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
        return any(node.op == "random" for node in self.forward.nodes)


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
        check_sources(sources)
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
    return Node(node.op, args, node.kwargs, node.shape, node.dtype)


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


class Compiled:
    """A function, and the graphs that were traced from it, by the kind of the arguments.

    breaks: why there is none for a kind.
    """

    def __init__(self, function):
        self.function, self.graphs, self.breaks = function, {}, {}

    def __call__(self, *args):
        ids = [id(x) for x in args]  # f(x, x) has another graph than f(x, y)
        key = state.grad_enabled, get_default_dtype(), *map(key_of, args), *map(ids.index, ids)
        if key in self.graphs and self.graphs[key][-1].changed():
            del self.graphs[key]
        if key not in self.graphs and key not in self.breaks:
            try:
                self.graphs[key] = self.traced(args)
            except Break as error:
                self.breaks[key] = str(error)
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
    from tinytorch.nn.modules.module import Module

    mean = tensor([4.0])
    print(
        compile(lambda x: x - mean.mul_(0.5))(tensor([5.0])), mean
    )  # -> tensor([3.]) tensor([2.])

    class Counting(Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.sizes = []

        def forward(self, x):
            Counting.calls += 1
            self.sizes.append(len(x))
            return x + self.calls

    model = Counting()
    fast = compile(model)
    print(fast(tensor([1.0])), fast(tensor([5.0])), model.calls, model.sizes)
    # -> tensor([2.]) tensor([7.]) 2 [1, 1]
