"""Step tracer06: Views and indexing

The transposed weight of a layer, a bias that is repeated for each row, the first half of the
columns: tracers have no `t.T` and no `t[:, :2]` yet. They compute nothing, but they say which
element goes where, so they are nodes too.

A program may write them in many ways. The graph should have few:

    reshape(2, -1), reshape((2, 3)), ...                reshape(a, shape), the shape without -1
    T, transpose(1, 0), ...                             transpose(a, all axes)
    t[0], t[:, ::2], t[None], t[..., -1]                view_at(a, key)
    t[i], with an array of integers i                   getitem(a, key)

The fewer operations a graph can have, the fewer a later pass has to handle. The last two differ in
what NumPy does: a key of numbers and slices gives a view of the same memory; a key with an array in
it gives a copy.

A mask is refused. t[t > 0] has as many elements as are positive, and the shapes of a graph are
fixed. This is the first thing that a program can do and a graph cannot. A list is refused too, with
the same message, even a list of integers: it could be a list of bools, which is a mask.

The trap: in NumPy, t[0, 1] of a matrix is a scalar object, and t[0, 1, ...] is an array. So
`__getitem__` appends `...` to the key.

New: VIEWS, Tracer.show, reshape, transpose, T, __getitem__; like. Changed: nodes_in, map_nodes,
text_of, as_node, as_value, perform, FUNCTIONS.
Try: let `__getitem__` turn a list of integers into an array, so that t[[0, 1]] is traced as well.
"""

import importlib
import itertools
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.device import Device, cpu
from tinytorch.utils._nested import tensors_in

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise indexing matmul reduction sampling shape softmax".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# Operations that show the memory of their first argument. Their arguments are plain numbers.
VIEWS = frozenset("reshape transpose broadcast_to view_at".split())


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
    """All nodes in nested tuples, lists, dicts and slices."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from nodes_in(item)
    elif isinstance(value, slice):
        yield from nodes_in((value.start, value.stop, value.step))


def like(value: tuple | list, items: Iterable) -> tuple | list:
    """A tuple, named tuple or list of the type of `value`."""
    return tuple.__new__(type(value), items) if isinstance(value, tuple) else list(items)


def map_nodes(function: Callable[[Node], Any], value: Any) -> Any:
    """`value` with function(node) in place of each node."""
    if isinstance(value, Node):
        return function(value)
    if isinstance(value, (tuple, list)):
        return like(value, (map_nodes(function, item) for item in value))
    if isinstance(value, dict):
        return {name: map_nodes(function, item) for name, item in value.items()}
    if isinstance(value, slice):
        return slice(*(map_nodes(function, x) for x in (value.start, value.stop, value.step)))
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
    if isinstance(value, slice):
        ends = ("" if x is None else text_of(x, names) for x in (value.start, value.stop))
        return ":".join(ends) + ("" if value.step is None else f":{text_of(value.step, names)}")
    return getattr(value, "__name__", None) or str(value)


def kind_of(node: Node) -> str:
    """The type and shape of a node's result: "float32[4, 5]"."""
    return f"{node.dtype}{list(node.shape)}" if node.dtype is not None else "(several)"


def perform(xp: Any, op: str, args: tuple, kwargs: dict) -> Any:
    """The result of one operation on arrays."""
    first, *others = args
    if op in ("view_at", "getitem"):
        return first[others[0]]
    if op in ("reshape", "transpose"):
        return getattr(first, op)(*others)
    return getattr(xp, op)(*args, **kwargs)


class Untraceable(Exception):
    """An operation that the graph has no node for. The Function that uses it becomes one node."""


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
    """`value` with nodes in place of tracers, also inside tuples and slices."""
    if isinstance(value, Tracer):
        return value.node
    if isinstance(value, (tuple, list)):
        return like(value, map(as_node, value))
    if isinstance(value, slice):
        return slice(*(as_node(x) for x in (value.start, value.stop, value.step)))
    return value


def as_value(value: Any) -> Any:
    """`value` with real arrays in place of tracers, also inside tuples and slices."""
    if isinstance(value, Tracer):
        return value.value
    if isinstance(value, (tuple, list)):
        return like(value, map(as_value, value))
    if isinstance(value, slice):
        return slice(*(as_value(x) for x in (value.start, value.stop, value.step)))
    return value


def traced(op: str, args: tuple, kwargs: dict | None = None) -> "Tracer":
    """The result of an operation, computed and written down."""
    kwargs, xp = kwargs or {}, tracing.trace.xp
    value = xp.asarray(perform(xp, op, as_value(args), kwargs))
    return Tracer(value, record(op, as_node(args), kwargs, value))


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes of a reduction as numbers from 0 on; None stands for all."""
    if axis is None:
        return tuple(range(ndim))
    return tuple(a % ndim if ndim else 0 for a in (axis if isinstance(axis, tuple) else (axis,)))


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

    # Views.

    def show(self, op: str, *args: Any) -> "Tracer":
        """This array in another shape, or a part of it."""
        return traced(op, (self, *args))

    def reshape(self, *shape: Any) -> "Tracer":
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if -1 in shape:
            shape = self.value.reshape(shape).shape
        return self.show("reshape", tuple(int(n) for n in shape))

    def transpose(self, *axes: Any) -> "Tracer":
        axes = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        axes = axes or range(self.ndim)[::-1]
        return self.show("transpose", tuple(a % self.ndim for a in axes))

    T = property(lambda self: self.transpose())

    def __getitem__(self, key: Any) -> "Tracer":
        parts = key if isinstance(key, tuple) else (key,)
        if all(p is None or p is ... or isinstance(p, (int, np.integer, slice)) for p in parts):
            if any(isinstance(p, bool) for p in parts):
                raise Untraceable("an index of Python bools")
            if not any(p is ... for p in parts):
                parts = (*parts, ...)  # the array library gives a scalar for a full index
            return self.show("view_at", parts)
        kinds = [str(getattr(p, "dtype", None)) for p in parts]
        if "bool" in kinds or any(isinstance(p, list) for p in parts):
            raise Untraceable("a list or mask as an index: its result's shape may depend on values")
        return traced("getitem", (self, key))

    def reduce(self, op: str, axis: Any, keepdims: bool) -> "Tracer":
        return traced(op, (self,), {"axis": axes_of(axis, self.ndim), "keepdims": bool(keepdims)})

    def sum(self, axis: Any = None, keepdims: bool = False) -> "Tracer":
        return self.reduce("sum", axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> "Tracer":
        return self.reduce("max", axis, keepdims)

    def __array_function__(self, function: Any, *args: Any) -> Any:
        raise Untraceable(f"numpy.{function.__name__} on a tracer: use the array's own module")


class TracedUfunc:
    """A function of each element, on tracers."""

    def __init__(self, ufunc: Any, name: str):
        self.ufunc, self.__name__ = ufunc, name

    def __call__(self, *args: Any) -> Any:
        if not any(isinstance(x, Tracer) for x in args):
            return self.ufunc(*args)
        return traced(self.__name__, args)


# Functions of the array library that are recorded, except for the element-wise ones: name ->
# function of tracers.
FUNCTIONS: dict[str, Callable] = {
    "sum": Tracer.sum,
    "max": Tracer.max,
    "broadcast_to": lambda a, shape: a.show("broadcast_to", tuple(shape)),
    "where": lambda condition, a, b: traced("where", (condition, a, b)),
}


class TracedModule(types.ModuleType):
    """The array library's functions, on tracers."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(tracing.trace.xp, name)
        if isinstance(function, tracing.trace.xp.ufunc):
            return TracedUfunc(function, getattr(np, name).__name__)  # "absolute" for abs
        if isinstance(function, type) or not callable(function):
            return function  # a type, or a number such as pi
        return self.either(name, FUNCTIONS.get(name), function)

    def either(self, name: str, of_tracers: Callable | None, function: Callable) -> Callable:
        """The function of tracers if there is one among the arguments, else the library's own."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if not any(map(has_tracer, (*args, *kwargs.values()))):
                return function(*args, **kwargs)
            if of_tracers is None:
                raise Untraceable(f"the graph has no node for the function '{name}'")
            try:
                return of_tracers(*args, **kwargs)
            except (TypeError, AttributeError) as error:  # arguments that have no node
                raise Untraceable(f"{name}: {error}") from error

        return call


def has_tracer(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(has_tracer, value))
    return isinstance(value, Tracer)


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
    library = TracedModule("traced")
    arrays = np.arange(6, dtype="float32").reshape(2, 3), np.array([[2, 1, 0], [1, 1, 2]])

    def compared(function):
        """Whether a function gives on tracers, and in a graph, what it gives on arrays. Returns the
        names of the graph's operations."""
        inputs = [Node("input", (), {}, array.shape, array.dtype) for array in arrays]
        with Trace(cpu) as trace:
            y = function(*map(Tracer, arrays, inputs), library)
        graph, expected = Graph(inputs, trace.nodes, [y.node]), function(*arrays, np)
        for value in (y.value, *graph.run(np, arrays)):
            assert np.array_equal(value, expected), graph
            assert (value.dtype, value.shape) == (expected.dtype, expected.shape), graph
        return [node.op for node in graph.nodes]

    print(compared(lambda a, i, xp: a.reshape(-1, 2).T + a.transpose(0, 1).reshape([2, 3])))
    # -> ['reshape', 'transpose', 'transpose', 'reshape', 'add']
    print(compared(lambda a, i, xp: a[1:, ::2] + a[0, 1] + a[..., -1]))
    # -> ['view_at', 'view_at', 'add', 'view_at', 'add']
    print(compared(lambda a, i, xp: xp.broadcast_to(a[1], (4, 3))))
    # -> ['view_at', 'broadcast_to']
    print(compared(lambda a, i, xp: a[0][i]))
    # -> ['view_at', 'getitem']
    with Trace(cpu) as trace:
        t = Tracer(arrays[0], Node("input"))
        for key in (Tracer(arrays[0] > 2, Node("input")), [0, 1], True):
            try:
                t[key]
            except Untraceable as error:
                print(error)
    # -> a list or mask as an index: its result's shape may depend on values
    # -> a list or mask as an index: its result's shape may depend on values
    # -> an index of Python bools
    x, n = Node("input", (), {}, (2, 3), arrays[0].dtype), Node("input")
    part = Node("view_at", (x, (slice(None, -1), slice(0, 3, 2), n)))
    print(part.inputs() == [x, n], text_of(map_nodes(lambda node: 1, part.args[1]), {}))
    # -> True (:-1, 0:3:2, 1)
