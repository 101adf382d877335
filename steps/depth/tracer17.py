"""Step tracer17: Graph breaks: what cannot be one graph

Step tracer16 returns what was written into a tensor. Other effects cannot be returned as an array.
After x.data = x.data * 2, for example, restore gives x its old array, no run of the graph repeats
the assignment, and the program goes on with wrong numbers, without an error.

For such effects `capture` raises Break: the function cannot be one graph, and the message says why.
A refusal is better than a wrong result.

    x.data = ..., backward() inside     a source gets another array, or a gradient
    x.requires_grad_(), x.mul_(w)       it gets a history
    x.tag = 5                           it gets an attribute
    x.add_(1), where y is x[0]          two sources share memory: a write to one changes the other
    a tensor on another device          the graph has one array library
    a tensor of an outer trace          its array is a tracer already

The first four are found after the trace: `check_sources` compares each source with what Source has
kept of it. The others are found when `lift` meets the tensor. restore gives all of it back.

The program that asked for a graph then runs in eager, as a whole; step compile11 tells how.

(PyTorch's torch.compile breaks the graph there: it runs the piece in eager, and makes two graphs.
Its word for this is "graph break", too.)

New: Break, attributes_of. Changed: Source, Trace.lift, Trace.restore, check_sources, finish.
Try: capture lambda x: x.mul_(w) for a w that requires a gradient. Which Break is it?
"""

import dataclasses
import importlib
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tinytorch.autograd.engine import backward_pass
from tinytorch.autograd.modes import FunctionMode
from tinytorch.compiler.operations import ACCUMULATORS
from tinytorch.core.device import Backend, Device, cpu, device_of, register_backend
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise indexing matmul reduction sampling shape softmax".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# Operations that show the memory of their first argument. Their arguments are plain numbers.
VIEWS = frozenset("reshape transpose broadcast_to view_at".split())


# Reductions, and the element-wise function that each one repeats: np.add.reduce is the sum.
REDUCTIONS = {name: reduction.repeats for name, reduction in ACCUMULATORS.items()}


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
            value = perform(xp, node.op, args, node.kwargs)
            # NumPy gives a scalar in place of an array without dimensions.
            values[node] = np.asarray(value) if isinstance(value, np.generic) else value
        return [values[node] for node in self.outputs]

    def users(self) -> dict[Node, list[Node]]:
        """For each node, the nodes that use its result."""
        users: dict[Node, list[Node]] = {node: [] for node in (*self.inputs, *self.nodes)}
        for node in self.nodes:
            for used in dict.fromkeys(node.inputs()):
                users[used].append(node)
        return users

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

    def dot(self) -> str:
        """The graph in Graphviz's language: boxes are operations, ellipses inputs."""
        names = {node: f"n{i}" for i, node in enumerate((*self.inputs, *self.nodes))}
        lines = ["digraph {"]
        lines += [f'  {names[node]} [label="{kind_of(node)}"]' for node in self.inputs]
        for node in self.nodes:
            lines.append(f'  {names[node]} [label="{node.op}\\n{kind_of(node)}", shape=box]')
            lines += [f"  {names[used]} -> {names[node]}" for used in node.inputs()]
        lines += [f"  {names[node]} -> result" for node in self.outputs]
        return "\n".join([*lines, "}"])


def text_of(value: Any, names: dict[Node, str]) -> str:
    """An argument of a node, as it is printed."""
    if isinstance(value, Node):
        return names[value]
    if isinstance(value, tuple):
        return f"({', '.join(text_of(x, names) for x in value)}{',' * (len(value) == 1)})"
    if isinstance(value, slice):
        ends = ("" if x is None else text_of(x, names) for x in (value.start, value.stop))
        return ":".join(ends) + ("" if value.step is None else f":{text_of(value.step, names)}")
    if isinstance(value, np.ndarray):
        return str(value.item()) if value.size == 1 else f"array{list(value.shape)}"
    if type(value).__repr__ is object.__repr__:
        return type(value).__name__
    return getattr(value, "__name__", None) or str(value)


def kind_of(node: Node) -> str:
    """The type and shape of a node's result: "float32[4, 5]"."""
    return f"{node.dtype}{list(node.shape)}" if node.dtype is not None else "(several)"


def without_dead_code(nodes: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """The nodes on which the outputs depend."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if node in needed:
            kept.append(node)
            needed.update(node.inputs())
    return kept[::-1]


def part_of(array: Any, path: tuple) -> Any:
    """The part of an array that the views of `path` lead to."""
    for op, args in path:
        array = perform(None, op, (array, *args), {})
    return array


def put(array: Any, value: Any, path: tuple) -> Any:
    """A copy of `array` with `value` in the part that `path` leads to."""
    array, (*views, (_, (key,))) = array[...].copy(), path  # also where it is a scalar of NumPy
    places = places_of(array.shape, views)
    if places is None:
        part_of(array, views)[key] = value
    else:
        places = device_of(array).backend.from_numpy(places, None)
        array.reshape(-1)[places[key]] = value
    return array


def places_of(shape: tuple, views: Sequence) -> np.ndarray | None:
    """Where the elements of a part of an array are, for an array that has its elements in a row.

    None where the part is a view, as it nearly always is. But a reshape that is a view of the array
    in the trace, which lay otherwise, may be a copy of this one.
    """
    like = np.empty(shape, bool)
    part = part_of(like, views)
    if part.size == 0 or np.may_share_memory(part, like):
        return None
    return part_of(np.arange(like.size).reshape(shape), views)


def perform(xp: Any, op: str, args: tuple, kwargs: dict) -> Any:
    """The result of one operation on arrays."""
    first, *others = args
    if op in ("view_at", "getitem"):
        return first[others[0]]
    if op in ("reshape", "transpose", "astype", "copy"):
        return getattr(first, op)(*others)
    if op == "constant":
        return first
    if op == "view_as":
        return first.view(*others)
    if op == "put":
        return put(*args)
    return getattr(xp, op)(*args, **kwargs)


class Untraceable(Exception):
    """An operation that the graph has no node for. The Function that uses it becomes one node."""


class Tracing(threading.local):
    """What is being traced on this thread."""

    trace: Any = None  # the Trace, or None
    made_by = ""  # the Function that was called last


tracing = Tracing()


def line_of_the_program() -> str:
    """Where the program that is traced called the package: "model.py:12"."""
    frame = sys._getframe(2)  # our caller is not the program, wherever it is written
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "tinytorch":
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def record(op: str, args: tuple, kwargs: dict, value: Any) -> Node:
    """A new node of the graph, with the shape and type of `value`."""
    node = Node(op, args, kwargs, value.shape, value.dtype, tracing.made_by, tracing.trace.line)
    tracing.trace.nodes.append(node)
    return node


def as_node(value: Any) -> Any:
    """`value` with nodes in place of tracers and arrays, also inside tuples and slices."""
    if isinstance(value, Tracer):
        return value.node
    if isinstance(value, np.generic):
        return value.item() if value.dtype.kind in "biu" else value
    if isinstance(value, (tuple, list)):
        return like(value, map(as_node, value))
    if isinstance(value, slice):
        return slice(*(as_node(x) for x in (value.start, value.stop, value.step)))
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return record("constant", (value,), {}, value)
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


OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}


COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


SIGNS = {"neg": "negative", "abs": "absolute", "invert": "invert"}


def is_operand(value: Any) -> bool:
    return isinstance(value, (Tracer, int, float, np.generic)) or hasattr(value, "dtype")


def with_operators(cls: type) -> type:
    """A class decorator: gives arrays a + b, 2 + a, a += b, a == b, -a and their kin."""
    for name, op in (OPERATORS | COMPARISONS).items():
        attach_operator(cls, name, op)
    for name, op in SIGNS.items():
        setattr(cls, f"__{name}__", lambda self, op=op: traced(op, (self,)))
    return cls


def attach_operator(cls: type, name: str, op: str) -> None:
    """Gives arrays one operator: a + b, 2 + a, and a += b."""

    def forward(self: Any, other: Any) -> Any:
        return traced(op, (self, other)) if is_operand(other) else NotImplemented

    def reflected(self: Any, other: Any) -> Any:
        return traced(op, (other, self)) if is_operand(other) else NotImplemented

    def in_place(self: Any, other: Any) -> Any:
        result = traced(op, (self, other))
        self[...] = result.astype(self.dtype, copy=False)
        return self

    setattr(cls, f"__{name}__", forward)
    if op not in COMPARISONS.values():
        setattr(cls, f"__r{name}__", reflected)
        setattr(cls, f"__i{name}__", in_place)


@with_operators
class Tracer:
    """An array of the device `traced`.

    Attributes:
        value: the array of the call that is traced.
        root: of a view, the tracer whose memory it shows; None for one that owns its memory.
        path: of a view, the operations ((op, args), ...) that lead from the root to it.
    """

    __array_ufunc__ = None  # NumPy must not take it for an operand of its own
    __hash__ = None

    def __init__(self, value: Any, node: Node, root: "Tracer | None" = None, path: tuple = ()):
        self.value, self.trace, self.root, self.path = value, tracing.trace, root, path
        self._node, self.version = node, 0 if root is None else root.version

    @property
    def node(self) -> Node:
        """The node of the elements as they are now."""
        if self.root is not None and self.version != self.root.version:
            self._node, self.version = self.root._node, self.root.version
            for op, args, like in self.path:
                self._node = record(op, (self._node, *as_node(args)), {}, like)
        return self._node

    @property
    def base(self) -> "Tracer | None":
        return self.root

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    itemsize = property(lambda self: self.value.itemsize)
    nbytes = property(lambda self: self.value.nbytes)
    strides = property(lambda self: self.value.strides)
    flags = property(lambda self: self.value.flags)

    # Views.

    def show(self, op: str, *args: Any) -> "Tracer":
        """A view of this array, or a copy where the array library has to make one."""
        value = perform(self.trace.xp, op, (self.value, *args), {})
        node = record(op, (self.node, *args), {}, value)
        if value.size and not np.may_share_memory(value, self.value):
            return Tracer(value, node)
        root = self if self.root is None else self.root
        return Tracer(value, node, root, (*self.path, (op, args, value)))

    def reshape(self, *shape: Any) -> "Tracer":
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if -1 in shape:
            shape = self.value.reshape(shape).shape
        return self.show("reshape", tuple(int(n) for n in shape))

    def transpose(self, *axes: Any) -> "Tracer":
        axes = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        axes = axes or range(self.ndim)[::-1]
        return self.show("transpose", tuple(a % self.ndim for a in axes))

    def swapaxes(self, a: int, b: int) -> "Tracer":
        order = list(range(self.ndim))
        order[a], order[b] = order[b], order[a]
        return self.transpose(order)

    def squeeze(self, axis: Any = None) -> "Tracer":
        return self.reshape(self.value.squeeze(axis).shape)

    def view(self, *args: Any) -> "Tracer":
        return traced("view_as", (self, np.dtype(*args))) if args else self.show("view_at", ...)

    def ravel(self) -> "Tracer":
        return self.reshape(-1)

    T = property(lambda self: self.transpose())
    mT = property(lambda self: self.swapaxes(-1, -2))
    real = property(lambda self: self)

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

    # Writes.

    def __setitem__(self, key: Any, value: Any) -> None:
        self.value[as_value(key)] = as_value(value)
        root, path = self if self.root is None else self.root, self.path
        if not path and key is ...:
            new = value if isinstance(value, Tracer) else np.asarray(value, self.dtype)
            node = as_node(new)
            if node.dtype != self.dtype:
                node = record("astype", (node, self.dtype), {}, self.value.astype(self.dtype))
                node.shape = new.shape
            if node.shape != self.shape:
                node = record("broadcast_to", (node, self.shape), {}, self.value)
        else:
            steps = (*((op, args) for op, args, _ in path), ("getitem", (as_node(key),)))
            before, given = as_node(root), as_node(value)
            node = record("put", (before, given, steps), {}, root.value)
        root._node, root.version = node, root.version + 1

    def fill(self, value: Any) -> None:
        self[...] = value

    # Copies and reductions.

    def astype(self, dtype: Any, copy: bool = True) -> "Tracer":
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self.copy() if copy else self
        return traced("astype", (self, dtype))

    def copy(self, order: str = "C") -> "Tracer":
        return traced("copy", (self,))

    def take(self, index: Any, axis: Any = None) -> "Tracer":
        return traced("take", (self, index, axis))

    def flatten(self) -> "Tracer":
        return self.copy().reshape(-1)

    def reduce(self, op: str, axis: Any, keepdims: bool, dtype: Any = None) -> "Tracer":
        kwargs = {"axis": axes_of(axis, self.ndim), "keepdims": bool(keepdims)}
        if dtype is not None:
            kwargs["dtype"] = np.dtype(dtype)
        return traced(op, (self,), kwargs)

    def sum(self, axis=None, dtype=None, out=None, keepdims=False) -> "Tracer":
        return given(self.reduce("sum", axis, keepdims, dtype), out)

    def prod(self, axis=None, dtype=None, out=None, keepdims=False) -> "Tracer":
        return given(self.reduce("prod", axis, keepdims, dtype), out)

    def mean(self, axis=None, dtype=None, out=None, keepdims=False) -> "Tracer":
        return given(self.reduce("mean", axis, keepdims, dtype), out)

    def max(self, axis=None, out=None, keepdims=False) -> "Tracer":
        return given(self.reduce("max", axis, keepdims), out)

    def min(self, axis=None, out=None, keepdims=False) -> "Tracer":
        return given(self.reduce("min", axis, keepdims), out)

    def all(self, axis=None, out=None, keepdims=False) -> "Tracer":
        return given(self.reduce("all", axis, keepdims), out)

    def any(self, axis=None, out=None, keepdims=False) -> "Tracer":
        return given(self.reduce("any", axis, keepdims), out)

    def clip(self, min: Any = None, max: Any = None) -> "Tracer":
        lower = self if min is None else traced("maximum", (self, min))
        return lower if max is None else traced("minimum", (lower, max))

    def __array_function__(self, function: Any, *args: Any) -> Any:
        raise Untraceable(f"numpy.{function.__name__} on a tracer: use the array's own module")

    def __pos__(self) -> "Tracer":
        return self

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what Python looks for, and does without
            raise AttributeError(name)
        raise Untraceable(f"the graph has no node for the method '{name}'")


def given(result: Tracer, out: Any) -> Tracer:
    """`result`, written into the array `out` where there is one."""
    if out is None:
        return result
    out[...] = result
    return out


class TracedUfunc:
    """A function of each element, on tracers."""

    def __init__(self, ufunc: Any, name: str):
        self.ufunc, self.__name__ = ufunc, name

    def __call__(self, *args: Any, out: Any = None, dtype: Any = None, **others: Any) -> Any:
        if others or (out is not None and isinstance(out, tuple)) or self.ufunc.nout > 1:
            raise Untraceable(f"{self.__name__} with {[*others]}")
        if not any(isinstance(x, Tracer) for x in (*args, out)):
            return self.ufunc(*args, dtype=dtype) if dtype else self.ufunc(*args)
        kwargs = {} if dtype is None else {"dtype": np.dtype(dtype)}
        return given(traced(self.__name__, args, kwargs), out)

    def reduce(self, a: Any, axis: Any = 0, dtype=None, out=None, keepdims: bool = False) -> Any:
        for op, repeated in REDUCTIONS.items():
            if repeated == self.__name__:
                return given(a.reduce(op, axis, keepdims, dtype), out)
        raise Untraceable(f"{self.__name__}.reduce")

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(f"{self.__name__}.{name}")


def expand_dims(a: Tracer, axis: int) -> Tracer:
    return a.reshape(np.expand_dims(a.value, axis).shape)


def moveaxis(a: Tracer, source: Any, destination: Any) -> Tracer:
    moved = np.lib.array_utils.normalize_axis_tuple(source, a.ndim)
    places = np.lib.array_utils.normalize_axis_tuple(destination, a.ndim)
    rest = [axis for axis in range(a.ndim) if axis not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        rest.insert(place, axis)
    return a.transpose(rest)


# Functions of the array library that are recorded, except for the element-wise ones: name ->
# function of tracers.
FUNCTIONS: dict[str, Callable] = {
    "sum": Tracer.sum,
    "prod": Tracer.prod,
    "mean": Tracer.mean,
    "max": Tracer.max,
    "min": Tracer.min,
    "amax": Tracer.max,
    "amin": Tracer.min,
    "all": Tracer.all,
    "any": Tracer.any,
    "reshape": Tracer.reshape,
    "transpose": lambda a, axes=None: a.transpose(*(axes or ())),
    "swapaxes": Tracer.swapaxes,
    "squeeze": Tracer.squeeze,
    "clip": Tracer.clip,
    "copy": Tracer.copy,
    "broadcast_to": lambda a, shape: a.show("broadcast_to", tuple(shape)),
    "where": lambda condition, a, b: traced("where", (condition, a, b)),
    "matmul": lambda a, b, out=None: given(traced("matmul", (a, b)), out),
    "dot": lambda a, b: traced("dot", (a, b)),
    "concatenate": lambda arrays, axis=0: traced("concatenate", (tuple(arrays), axis)),
    "stack": lambda arrays, axis=0: traced("stack", (tuple(arrays), axis)),
    "take": Tracer.take,
    "asarray": lambda a, dtype=None, **_: as_one(a, dtype, False),
    "array": lambda a, dtype=None, copy=True: as_one(a, dtype, copy),
    "ascontiguousarray": lambda a: a.copy(),
    "shape": lambda a: a.shape,
    "ndim": lambda a: a.ndim,
    "expand_dims": expand_dims,
    "moveaxis": moveaxis,
}


def as_one(a: Any, dtype: Any, copy: bool) -> Tracer:
    """An array, or a list of arrays as one."""
    if isinstance(a, (list, tuple)):
        a, copy = traced("stack", (tuple(a), 0)), False
    return a.astype(dtype or a.dtype, copy=copy)


# Functions that make arrays: they are computed once, and are constants of the graph.
MAKERS = frozenset("zeros ones full empty arange linspace eye identity tri".split())


LIKE = {"zeros_like": 0, "ones_like": 1, "empty_like": 0}


class TracedModule(types.ModuleType):
    """The array library's functions, on tracers."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        xp = tracing.trace.xp if tracing.trace is not None else np
        function = getattr(xp, name)
        if name in MAKERS:
            return lambda *args, **kwargs: constant(function(*as_value(args), **kwargs))
        if name in LIKE:
            return lambda a, dtype=None, shape=None: self.full_like(a, LIKE[name], dtype, shape)
        if isinstance(function, xp.ufunc):
            return TracedUfunc(function, getattr(np, name).__name__)  # "absolute" for abs
        if isinstance(function, type) or not callable(function):
            return function  # a type, or a number such as pi
        return self.either(name, FUNCTIONS.get(name), function)

    def full_like(self, a: Any, value: Any, dtype: Any = None, shape: Any = None) -> Tracer:
        shape = a.shape if shape is None else shape
        return constant(tracing.trace.xp.full(shape, value, dtype or a.dtype))

    def either(self, name: str, of_tracers: Callable | None, function: Callable) -> Callable:
        """The function of tracers if there is one among the arguments, else the library's own."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if not any(map(has_tracer, (*args, *kwargs.values()))):
                result = function(*args, **kwargs)
                return constant(result) if name in ("asarray", "array") else result
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


def constant(value: Any) -> Tracer:
    """An array that is the same in each run. Its memory is its own: a program may write into it."""
    value = tracing.trace.xp.asarray(value)
    return Tracer(value.copy(), record("constant", (value,), {}, value))


def refuse(*args: Any) -> Any:
    raise Untraceable("the memory of a tracer")


def make_device() -> Device:
    """The device whose arrays are tracers."""
    backend = Backend(
        TracedModule("traced"),
        Tracer,
        from_numpy=lambda array, index: constant(array),
        to_numpy=as_value,
        address=refuse,
        strided=refuse,
        chunk_elements=None,
    )
    register_backend("traced", backend)
    return Device("traced")


tracing_device = make_device()


# One trace at a time: tensors that several threads use hold tracers meanwhile.
tracing_lock = threading.RLock()


class Break(Exception):
    """The function cannot be one graph; the text says why, and where in the program."""


class TraceMode(FunctionMode):
    """Sees each call of a Function: makes its tensors tracers."""

    def __init__(self, trace: "Trace"):
        self.trace = trace

    def call(self, function: type, args: tuple) -> Any:
        trace = self.trace
        for x in args:
            if isinstance(x, Tensor):
                trace.lift(x)
        trace.line, tracing.made_by = line_of_the_program(), function.__name__
        return function.apply(*args)


# What the package itself notes in a tensor.
OWN = frozenset(
    "array device _requires_grad _edge _view _grad _hooks _after_hooks retains_grad".split()
)


def attributes_of(tensor: Tensor) -> dict[str, Any]:
    """The attributes that the program has given to a tensor."""
    return {name: item for name, item in vars(tensor).items() if name not in OWN}


@dataclasses.dataclass
class Source:
    """A tensor of the program that a trace has replaced by tracers, and what it was before."""

    tensor: Tensor
    node: Node
    array: Any
    tracer: Tracer
    edge: Any
    view: Any
    grad: Any
    requires_grad: bool
    attributes: dict  # the program's own


class Trace:
    """One run of a function on tracers.

    Attributes:
        nodes: what was recorded, in order.
        sources: the tensors that were used and not made inside; each is an input of the graph.
    """

    def __init__(self, device: Device):
        self.device, self.xp = device, device.xp
        self.nodes: list[Node] = []
        self.sources: dict[int, Source] = {}
        self.line = ""

    def lift(self, tensor: Tensor) -> None:
        """Makes a tensor of the program one on tracers, until the end of the trace."""
        array = tensor.array
        if isinstance(array, Tracer):
            if array.trace is not self:
                raise Break("a tensor of another trace")
            return
        if tensor.device is not self.device:  # for one element the program would bring it here
            raise Break(f"a tensor on {tensor.device} in a function on {self.device}")
        requires_grad = tensor.requires_grad
        node = Node("input", (), {}, array.shape, array.dtype)
        tracer = Tracer(array.copy(), node)
        self.sources[id(tensor)] = Source(
            *(tensor, node, array, tracer, tensor._edge, tensor._view, tensor._grad),
            requires_grad,
            attributes_of(tensor),
        )
        tensor.array, tensor.device, tensor._edge, tensor._view = tracer, tracing_device, None, None

    def restore(self) -> None:
        """Gives the program's tensors back what they were."""
        for source in self.sources.values():
            tensor = source.tensor
            tensor.array, tensor.device = source.array, self.device
            tensor._edge, tensor._view, tensor._grad = source.edge, source.view, source.grad
            tensor._requires_grad = source.requires_grad
            for name in attributes_of(tensor).keys() - source.attributes.keys():
                delattr(tensor, name)
            vars(tensor).update(source.attributes)

    def __enter__(self) -> "Trace":
        tracing.trace, self.mode = self, TraceMode(self)
        self.mode.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.mode.__exit__()
        tracing.trace, tracing.made_by = None, ""
        self.restore()


@dataclasses.dataclass
class Captured:
    """What a trace has found.

    Attributes:
        sources: the tensors of the program that the graph reads, in the order of its inputs.
        graph: forward and backward. Its last input is the gradient of the result. Its outputs are
            the result, what was written into sources, and the gradients of `wanted`.
        written: the numbers of the sources whose elements were changed in place.
        wanted: the numbers of the sources that get a gradient.
    """

    sources: list[Source]
    graph: Graph
    written: list[int]
    wanted: list[int]


def capture(function: Callable, args: tuple, kwargs: dict, tensors: Sequence[Tensor]) -> Captured:
    """Runs function(*args, **kwargs) on tracers. Nothing of the program is changed by it.

    Args:
        tensors: what the function uses, as far as it is known: its arguments, parameters, buffers.
    """
    with tracing_lock:
        trace = Trace(cpu)
        with trace:
            for tensor in tensors:
                trace.lift(tensor)
            return finish(trace, function(*args, **kwargs))


def check_sources(sources: Sequence[Source]) -> list[int]:
    """The numbers of the sources that were written in place.

    Raises:
        Break: something else was done to a source, or written memory has two tensors.
    """
    for source in sources:
        tensor = source.tensor
        if tensor.array is not source.tracer or tensor._grad is not source.grad:
            raise Break("a tensor's data or gradient is replaced inside the function")
        if tensor._requires_grad != source.requires_grad or tensor._edge is not None:
            raise Break("a tensor that was made outside gets a history, or gives it up")
        now, before = attributes_of(tensor), source.attributes
        if now.keys() != before.keys() or any(now[name] is not before[name] for name in now):
            raise Break("an attribute of a tensor is set inside the function")
    written = [number for number, source in enumerate(sources) if source.tracer.version]
    for number in written:
        shared = [s for s in sources if np.may_share_memory(s.array, sources[number].array)]
        if len(shared) > 1:
            raise Break("memory that several tensors share is changed in place")
    return written


def finish(trace: Trace, result: Any) -> Captured:
    """Everything that is known of a function that has run on tracers, its backward included."""
    sources = list(trace.sources.values())
    written = check_sources(sources)
    results = [result.array.node]
    writes = [sources[number].tracer.node for number in written]
    wanted = [n for n, s in enumerate(sources) if s.requires_grad and result.requires_grad]
    inputs, outs = [source.node for source in sources], [*results, *writes]
    if wanted:
        targets = [sources[n].tensor for n in wanted]
        grad_nodes, grads = trace_backward(trace, [result], targets)
        pairs = [(n, grad) for n, grad in zip(wanted, grads, strict=True) if grad is not None]
        wanted = [n for n, _ in pairs]
        inputs, outs = [*inputs, *grad_nodes], [*outs, *(grad for _, grad in pairs)]
    graph = Graph(inputs, without_dead_code(trace.nodes, outs), outs)
    return Captured(sources, graph, written, wanted)


def partition(graph: Graph, given: int, count: int) -> tuple[Graph, Graph | None]:
    """One graph as two. The forward has the first `given` inputs, and gives the first `count`
    outputs and then what the backward needs. From that and the other inputs, the gradients of
    outputs, the backward computes the other outputs. It is None where there are no gradients.
    Constants are made again instead of being kept.
    """
    outputs, gradients = graph.outputs[:count], graph.outputs[count:]
    inputs, grads = graph.inputs[:given], graph.inputs[given:]
    if not grads:
        return graph, None
    in_forward = set(without_dead_code(graph.nodes, outputs))
    nodes = [node for node in graph.nodes if node not in in_forward or node.op == "constant"]
    nodes = without_dead_code(nodes, gradients)
    made = {*nodes, *grads}
    kept = dict.fromkeys(x for node in nodes for x in node.inputs() if x not in made)
    kept |= dict.fromkeys(x for x in gradients if x not in made)
    forward = [node for node in graph.nodes if node in in_forward]
    return Graph(inputs, forward, [*outputs, *kept]), Graph([*kept, *grads], nodes, gradients)


def trace_backward(trace: Trace, roots: list[Tensor], targets: list[Tensor]) -> tuple:
    """Runs the backward pass on tracers: its formulas are written down as those of forward were.

    Returns the nodes for the gradients of the roots, and that of each target's gradient or None.
    """
    tracing.made_by, trace.line = "backward", ""
    nodes, grads = [], []
    for root in roots:
        ones = trace.xp.ones(root.array.shape, root.array.dtype)
        nodes.append(Node("input", (), {}, ones.shape, ones.dtype))
        grads.append(Tracer(ones, nodes[-1]))
    edges = [(target, 0) for target in targets]
    recording, modes = state.grad_enabled, state.modes
    state.grad_enabled, state.modes = False, ()
    try:
        found = backward_pass([x._edge or (x, 0) for x in roots], grads, True, False, set(edges))
    finally:
        state.grad_enabled, state.modes = recording, modes
    gradients = [found.get(edge) for edge in edges]
    return nodes, [None if grad is None else as_node(grad) for grad in gradients]


if __name__ == "__main__":
    x = tensor([[1.0, 2.0], [3.0, 6.0]])
    print(capture(lambda x: x.add_(1.0) * 2.0, (x,), {}, [x]).written)  # -> [0]

    def replaced(x):
        x.data = x.data * 2.0
        return x * 1.0

    def with_gradient(x):
        x.requires_grad_(True)
        return x * 1.0

    def tagged(x):
        x.tag = 5
        return x * 1.0

    shared = x[0]
    functions = {
        replaced: (x,),
        with_gradient: (x,),
        tagged: (x,),
        lambda x, y: x.add_(1.0) * y: (x, shared),
    }
    elsewhere = tensor([1.0])
    elsewhere.device = Device("cuda:1")
    functions[lambda x: x * elsewhere] = (x,)
    functions[lambda x: capture(lambda: x * 2.0, (), {}, [])] = (x,)
    for function, args in functions.items():
        try:
            capture(function, args, {}, args)
        except Break as error:
            print(error)
    # -> a tensor's data or gradient is replaced inside the function
    # -> a tensor that was made outside gets a history, or gives it up
    # -> an attribute of a tensor is set inside the function
    # -> memory that several tensors share is changed in place
    # -> a tensor on cuda:1 in a function on cpu
    # -> a tensor of another trace
    print(x.requires_grad, type(x.array).__name__, hasattr(x, "tag"))  # -> False ndarray False
