"""Step tracer05: The array library's functions, on tracers

The tracer of step tracer04 knows + and *, but np.exp(tracer) fails: NumPy does not know this class.
A Function's formula does not call NumPy by name, though. Since step 63b each Function computes
with `ctx.xp`, the array library of its tensors, so that it works with other libraries. Here is one
more such library: a module object whose functions take tracers.

    xp.exp(t)      a "ufunc", which works on each element: the node exp
    xp.sum(t)      in our table FUNCTIONS:                 the function of the table records it
    xp.sort(t)     not in our table:                       Untraceable
    xp.sort(a)     no tracer among the arguments:          NumPy's own sort
    xp.pi          not a function:                         NumPy's own
    np.sort(t)     NumPy by name:                          Untraceable

The module's `__getattr__` decides between these cases. NumPy has about a hundred ufuncs, and all
are called in the same way, so they need no table.

An axis can be written in many ways: None, -1, 1, (0, 1). In the graph it is always a tuple of
numbers from 0 on, so that a pass that reads the graph has one form to handle.

(PyTorch: __torch_function__ and __torch_dispatch__; NumPy's own hook is __array_function__.)

New: Untraceable, axes_of, TracedUfunc, TracedModule, has_tracer; Tracer.reduce, sum, max and
__array_function__.
Try: take "sum" out of the table. What does softmax say?
"""

import importlib
import itertools
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.device import Device, cpu
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

    def softmax(x, xp):
        e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)

    library = TracedModule("traced")
    array = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]], "float32")
    x = Node("input", (), {}, array.shape, array.dtype)
    with Trace(cpu) as trace:
        try:
            np.exp(Tracer(array, x))
        except TypeError as error:
            print(type(error).__name__)  # -> TypeError
        y = softmax(Tracer(array, x), library)
    graph = Graph([x], trace.nodes, [y.node])
    print(graph)
    # -> inputs: %0 float32[2, 3]
    # -> %1 = max(%0, axis=(1,), keepdims=True)  float32[2, 1]
    # -> %2 = subtract(%0, %1)  float32[2, 3]
    # -> %3 = exp(%2)  float32[2, 3]
    # -> %4 = sum(%3, axis=(1,), keepdims=True)  float32[2, 1]
    # -> %5 = divide(%3, %4)  float32[2, 3]
    # -> return %5
    other = array * 5 - 2
    print(np.array_equal(graph.run(np, [other])[0], softmax(other, np)))  # -> True

    with Trace(cpu) as trace:
        t = Tracer(array, x)
        print(library.pi, library.float32.__name__, library.sort(np.array([2, 1])))
        # -> 3.141592653589793 float32 [1 2]
        print(library.exp(0.0), library.sum([1, 2]))  # -> 1.0 3
        print(library.where(library.greater(t, 1.5), t, 0).value)
        # -> [[0. 2. 3.]
        # ->  [0. 0. 0.]]
        try:
            library.sort(t)
        except Untraceable as error:
            print(error)  # -> the graph has no node for the function 'sort'
        try:
            np.sort(t)
        except Untraceable as error:
            print(error)  # -> numpy.sort on a tracer: use the array's own module
        try:
            library.where(t)
        except Untraceable as error:
            print(
                error
            )  # -> where: <lambda>() missing 2 required positional arguments: 'a' and 'b'
        try:
            library.concatenate([t, t])
        except Untraceable as error:
            print(error)  # -> the graph has no node for the function 'concatenate'
    print([axes_of(axis, 3) for axis in (None, -1, (0, -2))], axes_of(0, 0))
    # -> [(0, 1, 2), (2,), (0, 1)] (0,)
