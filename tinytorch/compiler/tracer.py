"""An array that writes down what is done to it: the array library of the device `traced`.

A Tracer has a real array, so that shapes, types and errors are those of the array library, and a
node of the graph that is being written. Nothing in a graph is ever overwritten: a write makes a
new node ("put"), and the tracers that show the same memory look up what they show from then on.
"""

import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.compiler.graph import REDUCTIONS, Node, like, perform
from tinytorch.core.device import Backend, Device, register_backend
from tinytorch.ops.random import Generator


class Untraceable(Exception):
    """An operation that the graph has no node for. The Function that uses it becomes one node."""


class ValueNeeded(Untraceable):
    """Python asks for the value of an element, which is known only when the graph runs."""


class Tracing(threading.local):
    """What is being traced on this thread."""

    trace: Any = None  # the Trace (see capture.py), or None
    made_by = ""  # the Function that was called last


tracing = Tracing()


def line_of_the_program() -> str:
    """Where the program that is traced called the package: "model.py:12"."""
    frame = sys._getframe(2)  # our caller is not the program, wherever it is written
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "tinytorch":
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def asked_by_the_program() -> bool:
    """Whether the value of an array is asked for by the program, not by the package."""
    frame = sys._getframe(2)
    while frame.f_globals.get("__name__", "") in (__name__, "tinytorch.core.tensor"):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").partition(".")[0] != "tinytorch"


def record(op: str, args: tuple, kwargs: dict, value: Any) -> Node:
    """A new node of the graph, with the shape and type of `value`."""
    trace = tracing.trace
    if trace is None:
        raise Untraceable("a tracer of a trace that is over")
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    node = Node(op, args, kwargs, shape, dtype, tracing.made_by, trace.line)
    trace.nodes.append(node)
    return node


def as_node(value: Any) -> Any:
    """`value` with nodes in place of tracers and arrays, also inside tuples and slices."""
    if isinstance(value, Tracer):
        if value.trace is tracing.trace:
            return value.node
        value = value.value  # kept by a cache since an earlier trace
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
    kwargs, xp, kind = kwargs or {}, tracing.trace.xp, Tracer
    if any(isinstance(x, Number) for x in args):
        others = [x for x in args if isinstance(x, Tracer) and not isinstance(x, Number)]
        if others:  # as Python's numbers do, it takes the type of the array
            dtype = others[0].dtype
            args = tuple(x.astype(dtype) if isinstance(x, Number) else x for x in args)
        else:
            kind = Number
    node_args = as_node(args)
    value = xp.asarray(perform(xp, op, as_value(args), kwargs))
    return kind(value, record(op, node_args, kwargs, value))


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
        trace: where its node is written.
        root: of a view, the tracer whose memory it shows; None for one that owns its memory.
        path: of a view, the operations ((op, args), ...) that lead from the root to it.
    """

    __array_ufunc__ = None  # NumPy must not take it for an operand of its own
    __hash__ = None

    def __init__(self, value: Any, node: Node, root: "Tracer | None" = None, path: tuple = ()):
        self.value, self.trace, self.root, self.path = value, tracing.trace, root, path
        self._node, self.version = node, 0 if root is None else root.version
        self.trace.tracers.append(weakref.ref(self))

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

    def pick(self, key: tuple) -> "Tracer":
        """The elements at arrays of integers, in place of a view that can only be read."""
        value, root = self.value[as_value(key)], self if self.root is None else self.root
        node = record("getitem", (self.node, as_node(key)), {}, value)
        return Tracer(value, node, root, (*self.path, ("getitem", (key,), value)))

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
        if any(op == "getitem" for op, _, _ in path):
            raise Untraceable("a write through a view that the graph has only as a copy")
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

    # Values are known only in a run. The program gets none. The package's own decisions, such as a
    # test of the range of targets, become nodes that check whether a run decides in the same way.

    def __bool__(self) -> bool:
        if asked_by_the_program():
            raise ValueNeeded("the value of an element is needed while the function is traced")
        record("check", (self.node, bool(self.value)), {}, None)
        return bool(self.value)

    def item(self) -> int | bool:
        if asked_by_the_program() or self.dtype.kind not in "biu":
            raise ValueNeeded("the value of an element is needed while the function is traced")
        record("check", (traced("equal", (self, self.value.item())).node, True), {}, None)
        return self.value.item()

    __int__ = __float__ = __index__ = item

    def refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueNeeded("the values of a tensor are needed while the function is traced")

    __complex__ = __array__ = tolist = refuse

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


class Number(Tracer):
    """A Python number that may differ from run to run, such as the count of steps."""

    def astype(self, dtype: Any, copy: bool = True) -> Tracer:
        value = self.value.astype(dtype)
        return Tracer(value, record("astype", (self.node, value.dtype), {}, value))


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


class TracedSource:
    """Random numbers of the device's default generator, drawn again in each run."""

    def __init__(self, device: Device):
        self.device = device

    def seed(self, seed: int) -> None:
        """A trace begins with one generator. A run would not seed it, or others, again."""
        if self.device in Generator.default:
            raise Untraceable("a generator is made or seeded")

    def __getattr__(self, method: str) -> Callable:
        if method not in ("uniform", "normal", "integers", "permutation"):
            raise Untraceable(f"the generator's '{method}'")

        def draw(*args: Any) -> Tracer:
            generator = tracing.trace.generator
            value = getattr(generator.source, method)(*args)
            return Tracer(value, record("random", (generator, method, *args), {}, value))

        return draw


def refuse(*args: Any) -> Any:
    raise Untraceable("the memory of a tracer")


def needs_value(array: Any) -> Any:
    raise ValueNeeded("the values of a tensor are needed while the function is traced")


def make_device() -> Device:
    """The device whose arrays are tracers."""
    backend = Backend(
        TracedModule("traced"),
        Tracer,
        from_numpy=lambda array, index: constant(array),
        to_numpy=needs_value,
        address=refuse,
        strided=refuse,
        random_source=TracedSource,
        chunk_elements=None,
    )
    register_backend("traced", backend)
    device = Device("traced")
    # Looked up now: while a trace runs, it says that its type is that of the real device.
    device.xp  # noqa: B018
    return device


tracing_device = make_device()
