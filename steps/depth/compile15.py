"""Step compile15: Side effects: random streams, iterators, print

    def f(x):
        print("called")
        return x * rng.random() + next(numbers)

A graph contains operations on arrays only. All other Python code runs once, during the trace: step
compile14 prints once, and multiplies by the same random number in each call. Such a function has to
run in eager, so the trace must detect it. Three cases need three ways:

    rng          The state of a generator of NumPy or Python can be read. It is compared before and
                 after the trace, and restored, so that the eager run draws the same numbers.
    numbers      An iterator has no readable state: looking at the next item consumes it. So an
                 iterator that the function can reach is a Break, before the trace.
    print        It changes nothing that could be compared. But Python calls the function given to
                 sys.setprofile at each call, calls of C functions such as print included.

In the same way the trace notices functions that ask or change the world outside: files, clocks, the
name of a thread, a ContextVar (OUTSIDE, ONCE). Python's import and warnings open files, too, and
this package its compiler's: such calls are no part of what the function means.

The package's own random numbers are nodes of the graph (step tracer21).

The trap: Python allows one such profiling function at a time. If there is one already, it stays,
and print is not detected.

PyTorch breaks the graph at print and at clocks, and replays a generator's calls or breaks.

New: CLOCKS, ONCE, OUTSIDE, PURE, OUTER, MACHINERY, STREAMS, state_of, set_state, listen,
is_outside, is_machinery, no_effects.
Changed: Watch.__init__, Watch.visit, Compiled.traced.
Try: take out set_state. Which lines of the demo go wrong?
"""

import array
import contextlib
import datetime
import dis
import functools
import gc
import importlib
import io
import mmap
import os
import random
import sys
import threading
import time
import types
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.backward import grad as gradients
from tinytorch.autograd.engine import edge_of
from tinytorch.autograd.modes import FunctionMode, enable_grad, set_grad_enabled
from tinytorch.autograd.node import Function, new
from tinytorch.compiler.border import partition
from tinytorch.compiler.build import CompilerError
from tinytorch.compiler.capture import (
    OWN,
    Break,
    Captured,
    Output,
    Shown,
    attributes_of,
    capture,
    rebuilt,
    tracing_lock,
)
from tinytorch.compiler.graph import Graph
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.compiler.tracer import line_of_the_program, tracing
from tinytorch.core.device import Device, cpu, silence_numpy
from tinytorch.core.dtype import Defaults, DType
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import bump_version, next_sequence_nr
from tinytorch.ops.creation import ones
from tinytorch.utils._nested import tensors_in

LARGE = 1 << 20  # bytes of an array: comparing more than these at each call would take too long
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
IMPORTS = ("IMPORT_NAME",)
# getattr(x, "scale") names an attribute too.
ATTRIBUTES = (
    "LOAD_ATTR",
    "LOAD_METHOD",
    "LOAD_SUPER_ATTR",
    "STORE_ATTR",
    "IMPORT_FROM",
    "LOAD_CONST",
)
# Methods that are called although no code names them: operators and their like.
UNNAMED = {"forward", "__call__", "__getattr__", *dir(int), *dir(dict)} - {"__init__"}
# What modules have for state_dict() and load_state_dict(): a call does not read it.
NOT_FOR_CALLS = {"_non_persistent", "_load_state_dict_pre_hooks"}
LIBRARIES = {"tinytorch", "numpy", *sys.stdlib_module_names}
CLOCKS = {datetime.datetime.now, datetime.datetime.utcnow, datetime.date.today}
ONCE = {print, input, globals, threading.get_ident, threading.get_native_id, *CLOCKS}
# Modules of Python whose functions and types ask, or change, the world outside: files, clocks ...
OUTSIDE = {"posix", "nt", "io", "_io", "time", "_contextvars", "_socket", "select"}
PURE = {"fspath", "_path_normpath", "_path_splitroot", "_path_splitroot_ex"}  # of texts only
# Where these are called for Python or for the package: no part of what a function means.
OUTER = "importlib warnings numpy._core".split()
MACHINERY = OUTER + "tinytorch.compiler.build tinytorch.compiler.capture tinytorch.kernels".split()
MISSING = object()
STREAMS = (random.Random, np.random.Generator, np.random.RandomState)
PLAIN = (bool, int, float, str, bytes, type(None), DType, Device, type, types.BuiltinFunctionType)


def kind_of_value(value: Any, tensors: list[Tensor]) -> Any:
    """A key for an argument. Two arguments with equal keys are alike for a graph; the tensors in
    it, which may differ in their elements, are added to `tensors`."""
    if isinstance(value, Tensor):
        tensors.append(value)
        array = value.array
        own = None  # attributes that the program has given it: most tensors have none
        if not OWN.issuperset(value.__dict__):
            own = kind_of_value(attributes_of(value), tensors)
        return type(value), array.shape, array.dtype, value.device, value.requires_grad, own
    if isinstance(value, PLAIN):
        return type(value), value or repr(value)  # 0.0 and -0.0 are equal, and not the same
    if isinstance(value, (tuple, list)):
        return type(value), tuple([kind_of_value(item, tensors) for item in value])
    if isinstance(value, dict):
        items = [(name, kind_of_value(item, tensors)) for name, item in value.items()]
        return type(value), tuple(items)
    return id(value)  # what is inside is watched


def objects_in(value: Any) -> list:
    """The arguments for which a key has only their id."""
    if isinstance(value, Tensor):
        value = attributes_of(value)
    if isinstance(value, (tuple, list, dict)):
        items = value.values() if isinstance(value, dict) else value
        return [found for item in items for found in objects_in(item)]
    return [] if isinstance(value, PLAIN) else [value]


def call_key(args: tuple, kwargs: dict, modes: tuple) -> tuple[tuple, list[Tensor]]:
    """(what a graph for this call depends on, the tensors among the arguments)."""
    tensors: list[Tensor] = []
    key = kind_of_value(args, tensors), kind_of_value(kwargs, tensors) if kwargs else None
    alike: tuple = ()
    if len(tensors) > 1:
        places = {id(tensor): number for number, tensor in enumerate(tensors)}
        if len(places) < len(tensors):
            alike = tuple(places[id(tensor)] for tensor in tensors)
    return (*key, alike, state.grad_enabled, state.inference, Defaults.dtype, modes), tensors


class Watch:
    """The Python values that a function can see: attributes of its modules, variables of the
    functions that enclose it, the globals that its code names.

    A graph holds what these were when it was traced. `changed` says what has changed since.
    """

    def __init__(self, root: Any):
        self.entries: list[tuple[Any, Any, Any]] = []  # (container, key, value)
        self.fields: list[tuple[Any, str, Any]] = []  # (object, name, value): not in a container
        self.functions: list[tuple] = []  # (function, code, defaults)
        self.sizes: list[tuple[Any, int]] = []
        self.cells: list[tuple[Any, Any]] = []
        self.copies: list[tuple[Any, Callable, Any]] = []  # (object, how it was copied, its copy)
        self.tensors: list[Tensor] = []
        self.streams: list[Any] = []  # random numbers that are not the package's
        self.seen: set[int] = set()
        self.keep: list = []  # an id in `seen` is not used again
        self.used: set[str] = set()  # the attributes that code names
        self.classes: list[type] = []  # of the program
        self.modules: list[types.ModuleType] = []
        self.visit(root)
        self.named_attributes()
        self.dicts = [vars(tensor) for tensor in self.tensors]
        self.lengths = [*map(len, self.dicts)]

    def visit(self, value: Any) -> None:
        if isinstance(value, type):
            new = [each for each in value.__mro__ if not is_library(each)]
            self.classes += [each for each in new if each not in self.classes]
        if isinstance(value, PLAIN) or id(value) in self.seen:
            return
        self.seen.add(id(value))
        self.keep.append(value)
        if isinstance(value, Tensor):
            self.tensors.append(value)
            for name, item in attributes_of(value).items():
                self.entries.append((vars(value), name, item))
                self.visit(item)
        elif isinstance(value, (tuple, list)):
            self.contents(value, enumerate(value))
        elif isinstance(value, dict):
            self.contents(value, value.items())
        elif isinstance(value, types.MethodType):
            self.visit(value.__self__)
            self.visit(value.__func__)
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, (staticmethod, classmethod)):
            self.visit(value.__func__)
        elif isinstance(value, property):
            self.visit(value.fget)
        elif isinstance(value, functools.partial):
            self.visit((value.func, value.args, value.keywords))
        elif isinstance(value, STREAMS):
            self.streams.append(value)
        elif how := how_to_copy(value):
            self.copies.append((value, how, how(value)))
            for item in value if how is list else ():
                self.visit(item)
        elif isinstance(value, frozenset):
            self.visit(tuple(value))
        elif isinstance(value, types.MappingProxyType):
            self.visit(*gc.get_referents(value))
        elif hasattr(type(value), "__next__"):
            raise Break(f"the function can see {value!r:.60}: what is next is not known")
        elif isinstance(value, threading.local) and "tinytorch" not in type(value).__module__:
            raise Break(f"the function can see {value!r:.60}: another thread finds other values")
        elif isinstance(value, types.ModuleType):
            self.modules.append(value)  # what it holds is watched if code names it
        else:
            self.slots(value)
            if hasattr(value, "__dict__"):
                self.contents(vars(value), vars(value).items())
            self.visit(type(value))

    def slots(self, value: Any) -> None:
        """Notes the attributes that an object has without a dict."""
        for each in type(value).__mro__:
            for name, slot in () if is_library(each) else vars(each).items():
                if isinstance(slot, types.MemberDescriptorType):
                    self.field(value, name)

    def field(self, value: Any, name: str) -> None:
        """Notes an attribute that is in no container."""
        item = getattr(value, name, MISSING)
        self.fields.append((value, name, item))
        self.visit(item)

    def contents(self, container: Any, items: Any) -> None:
        if not isinstance(container, tuple):
            self.sizes.append((container, len(container)))
        for key, item in list(items):
            if key in NOT_FOR_CALLS:
                continue
            if not isinstance(container, tuple):
                self.entries.append((container, key, item))
            self.visit(item)

    def function(self, function: types.FunctionType) -> None:
        if is_library(function):
            return  # what it returns depends on its arguments only
        self.used.update(names_in(function.__code__, ATTRIBUTES))
        self.variables(function.__globals__, function.__code__)
        for cell in function.__closure__ or ():
            try:
                self.cells.append((cell, cell.cell_contents))
            except ValueError:
                continue  # a variable that is not there yet
            self.visit(cell.cell_contents)
        self.functions.append((function, function.__code__, function.__defaults__))
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        self.visit(getattr(function, "__wrapped__", None))

    def variables(self, names: dict[str, Any], code: types.CodeType) -> None:
        """Notes the variables of a module that code names, and the modules that it imports."""
        for name in set(names_in(code, GLOBALS)):
            if name in names:
                self.entries.append((names, name, names[name]))
                self.visit(names[name])
        for name in names_in(code, IMPORTS):
            for whole in (name, name.partition(".")[0], f"{names.get('__package__')}.{name}"):
                self.visit(sys.modules.get(whole))

    def named_attributes(self) -> None:
        """Notes what classes and modules hold under names that code uses, until no new names turn
        up. Of what a library holds, only modules and lists are looked into."""
        done: set[tuple] = set()
        while (
            new := {
                (holder, name)
                for holders, names in (
                    (self.classes, self.used | UNNAMED),
                    (self.modules, self.used),
                )
                for holder in holders
                for name in names & vars(holder).keys()
            }
            - done
        ):
            done |= new
            for holder, name in new:
                value = vars(holder)[name]
                self.entries.append((vars(holder), name, value))
                own = isinstance(holder, type) or holder.__name__.partition(".")[0] not in LIBRARIES
                if own or isinstance(value, (types.ModuleType, list)):
                    self.visit(value)

    def changed(self) -> str | None:
        """What is not as it was, in words; None where all is."""
        try:
            for container, key, value in self.entries:
                now = container[key]
                if now is not value and not (isinstance(value, PLAIN) and same(now, value)):
                    return f"{key} is {now!r:.60}, and was {value!r:.60}"
        except (KeyError, IndexError):
            return f"{key} is gone"
        for each, name, value in self.fields:
            now = getattr(each, name, MISSING)
            if now is not value and not (isinstance(value, PLAIN) and same(now, value)):
                return f"{name} of {each!r:.60} is not what it was"
        for function, code, defaults in self.functions:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return f"the function {function.__name__} has another code, or other defaults"
        if self.lengths != [*map(len, self.dicts)]:
            noted = {(id(container), key) for container, key, _ in self.entries}
            for tensor, attributes in zip(self.tensors, self.dicts, strict=True):
                for name in attributes_of(tensor):
                    if (id(attributes), name) not in noted:
                        return f"a tensor has got an attribute '{name}'"
            self.lengths = [*map(len, self.dicts)]  # it was the package's own: a gradient
        for container, size in self.sizes:
            if len(container) != size:
                return f"something was added to, or removed from, {list(container)!r:.80}"
        for value, how, copy in self.copies:
            if differ(how(value), copy):
                return f"the contents of {value!r:.60} have changed"
        for cell, value in self.cells:
            now = cell.cell_contents
            if now is not value and not (isinstance(value, PLAIN) and same(now, value)):
                return f"a variable of the enclosing function is {now!r:.60}, was {value!r:.60}"
        return None


def state_of(stream: Any) -> Any:
    """The state of random numbers of Python (random, random.Random) or NumPy (np.random,
    RandomState, Generator)."""
    if hasattr(stream, "getstate"):
        return stream.getstate()
    return stream.get_state() if hasattr(stream, "get_state") else stream.bit_generator.state


def set_state(stream: Any, value: Any) -> None:
    """Gives random numbers the state that state_of has returned."""
    if hasattr(stream, "setstate"):
        stream.setstate(value)
    elif hasattr(stream, "set_state"):
        stream.set_state(value)
    else:
        stream.bit_generator.state = value


def listen(frame: Any, event: str, called: Any) -> None:
    """Python calls this for each call of a program (sys.setprofile)."""
    if event == "c_call" and (called in ONCE or is_outside(called)) and not is_machinery(frame):
        raise Break(f"{line_of_the_program()}: {called.__name__}() is not part of a graph")


def is_outside(called: Any) -> bool:
    """Whether a function of C asks or changes what is outside of the program."""
    where = called.__module__ or type(called.__self__).__module__
    return where in OUTSIDE and called.__name__ not in PURE


def is_machinery(frame: Any) -> bool:
    """Whether Python's import, a warning or the package's own use of a C compiler is at work."""
    while frame and (name := frame.f_globals.get("__name__", "")).partition(".")[0] in LIBRARIES:
        if name.startswith((*MACHINERY,)):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def no_effects(found: list) -> Iterator[None]:
    """Around a trace: stops a function that does what a graph would not do again.

    It may not draw random numbers that are not the package's (`found` are those that it sees);
    what it has drawn is put back. Nor may it call what is in ONCE, if no other profiler listens.

    Raises:
        Break: the function did one of these.
    """
    streams, others = [random, np.random, *found], sys.getprofile()
    before = [state_of(stream) for stream in streams]
    if others is None:
        sys.setprofile(listen)
    try:
        yield
    finally:
        if others is None:
            sys.setprofile(None)
        after = [state_of(stream) for stream in streams]
        for stream, state_before in zip(streams, before, strict=True):
            set_state(stream, state_before)
    if str(after) != str(before):
        raise Break("the function draws random numbers from outside of the package")


def is_constant(value: Any) -> bool:
    """Whether an array is read-only, and so is the memory that it shows."""
    while isinstance(value, np.ndarray) and not value.flags.writeable and not value.dtype.hasobject:
        value = value.base
    return value is None or isinstance(value, (bytes, mmap.mmap))


def how_to_copy(value: Any) -> Callable | None:
    """For an array or collection whose contents may change: the function that copies them.

    Raises:
        Break: an array is too large to be compared at each call, or holds objects.
    """
    if isinstance(value, np.ndarray) and not is_constant(value):
        if value.nbytes > LARGE or value.dtype.hasobject:
            raise Break(
                f"the function can see an array of {value.nbytes:,} bytes that may change: make it "
                "a tensor, or read-only (array.flags.writeable = False)"
            )
        return np.ndarray.tobytes
    return list if isinstance(value, (set, deque, bytearray, array.array)) else None


def differ(a: Any, b: Any) -> bool:
    """Whether what how_to_copy has copied differs."""
    if isinstance(a, list):
        pairs = zip(a, b, strict=False)
        alike = all(x is y or (isinstance(y, PLAIN) and same(x, y)) for x, y in pairs)
        return len(a) != len(b) or not alike
    return a != b


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are the same; 0.0 and -0.0 are not."""
    return type(a) is type(b) and a == b and (bool(a) or repr(a) == repr(b))


def is_library(value: Any) -> bool:
    """Whether a class or function is the package's, NumPy's or Python's own."""
    return (value.__module__ or "").partition(".")[0] in LIBRARIES


def names_in(code: types.CodeType, opcodes: tuple[str, ...]) -> Iterator[str]:
    """The names that instructions of these kinds use in some code, and in functions inside it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in opcodes and isinstance(instruction.argval, str):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant, opcodes)


def describe_modes(modes: tuple[FunctionMode, ...]) -> tuple | None:
    """A key for the open modes, or None where one of them has to see each call as it happens.

    autocast only decides about types: a graph can hold its casts.
    """
    if not all(isinstance(mode, autocast) for mode in modes):
        return None
    return tuple((mode.device_type, mode.dtype, mode.one_type) for mode in modes)


class CompiledCall(Function):
    """One run of a compiled function in the graph of autograd: its backward is generated, too."""

    entry: "Entry"
    call_made: tuple  # (function, args, kwargs)
    sources: list[Tensor]

    def backward(ctx, *grads: Any) -> tuple:
        return tuple(ctx.entry.backward([*ctx.saved, *grads]))

    def gradients(ctx, grads: list) -> tuple:
        """Gradients that are to be differentiated: the function runs once more, in eager."""
        entry, (function, args, kwargs) = ctx.entry, ctx.call_made
        if entry.once:
            raise RuntimeError(
                "a compiled function that writes in place cannot be differentiated twice: "
                "call the function itself"
            )
        with enable_grad():
            result = function(*args, **kwargs)
        given = {id(source) for source in ctx.sources}
        roots = [x for x in dict.fromkeys(tensors_in(result)) if x._edge and id(x) not in given]
        if len(roots) != len(grads):  # its views have one gradient, that of their base
            raise RuntimeError(
                "a compiled function that returns views of one memory cannot be differentiated "
                "twice: call the function itself"
            )
        pairs = [(x, g) for x, g in zip(roots, grads, strict=True) if g is not None]
        wanted = [ctx.sources[number] for number in entry.captured.wanted]
        outs, gs = zip(*pairs, strict=True)
        return gradients(outs, wanted, gs, create_graph=True, allow_unused=True)

    def name(ctx) -> str:
        return "CompiledFunctionBackward"


def view_of(tensor: Tensor, shown: Shown) -> Tensor:
    """What the function returned beside `tensor`, of the same memory."""
    with set_grad_enabled(shown.requires_grad):
        for function, parameters in shown.calls:
            tensor = function.apply(tensor, *parameters)
    return tensor


@dataclass
class Entry:
    """A graph of a function, compiled, with what it holds for.

    Attributes:
        places: for each source of the graph, which tensor of the arguments it is; None for one that
            the function found elsewhere, such as a parameter.
        once: it cannot run a second time for the same call: it writes.
    """

    captured: Captured
    forward: Callable[[list], list]
    backward: Callable[[list], list] | None
    watch: Watch
    places: list[int | None]
    seconds: float
    shown: list[int] | None = None  # the saved values that show memory which a run writes

    @property
    def once(self) -> bool:
        return bool(self.captured.written)

    def sources(self, tensors: list[Tensor]) -> list[Tensor]:
        """The tensors that the graph reads, in a call with these among its arguments."""
        return [
            source.tensor if place is None else tensors[place]
            for source, place in zip(self.captured.sources, self.places, strict=True)
        ]

    def changed(self, tensors: list[Tensor]) -> str | None:
        """Why the graph does not hold for a call, in words; None where it does."""
        for source, place in zip(self.captured.sources, self.places, strict=True):
            if place is not None:
                continue
            tensor, array = source.tensor, source.tensor.array
            if array is not source.array:
                if (array.shape, array.dtype) != (source.array.shape, source.array.dtype):
                    return f"a tensor of the function is now {array.dtype}{list(array.shape)}"
                source.array = array
            if tensor.requires_grad != source.requires_grad:
                return f"a tensor of the function has requires_grad={tensor.requires_grad} now"
        return self.overlap(tensors) or self.watch.changed()

    def overlap(self, tensors: list[Tensor]) -> str | None:
        """Whether a write would change another tensor too. Those that the function found elsewhere
        were compared with each other when it was traced."""
        if not self.captured.written:
            return None
        arrays = [tensor.array for tensor in self.sources(tensors)]
        for number in self.captured.written:
            for other, place in enumerate(self.places):
                known = place is None and self.places[number] is None
                if other != number and not known:
                    if np.may_share_memory(arrays[number], arrays[other]):
                        return "memory that several tensors share would be changed in place"
        return None

    def own(self, saved: list, arrays: list) -> list:
        """What backward needs, with copies of those that show memory which is to be written now."""
        if self.shown is None:
            written = [arrays[number] for number in self.captured.written]
            self.shown = [
                number
                for number, value in enumerate(saved)
                if hasattr(value, "dtype") and any(np.may_share_memory(value, x) for x in written)
            ]
        for number in self.shown:
            saved[number] = saved[number].copy()
        return saved

    def run(self, call: tuple, sources: list[Tensor], arrays: list) -> Any:
        """What the function returns."""
        captured, count = self.captured, self.captured.count
        values = self.forward(arrays)
        saved = self.own(values[count + len(captured.written) :], arrays)
        for number, value in zip(captured.written, values[count:], strict=False):
            arrays[number][...] = value
            bump_version(arrays[number])
        device = sources[0].device if sources else cpu
        outs = [wrap(value, device) for value in values[:count]]
        if self.backward is not None:
            ctx = new(CompiledCall)
            ctx.device, ctx.xp, ctx.entry, ctx.call_made = device, device.xp, self, call
            ctx.edges = [edge_of(sources[number]) for number in captured.wanted]
            ctx.sources, ctx.saved = sources, tuple(saved)
            ctx.sequence_nr = next_sequence_nr()
            ctx.record_outputs([outs[number] for number in captured.roots])

        views: dict[Shown, Tensor] = {}

        def leaf(x: Any) -> Tensor:
            if isinstance(x, Tensor):
                return x
            if isinstance(x, Shown):
                if x not in views:
                    views[x] = view_of(outs[x.number], x)
                return views[x]
            return outs[x.number] if isinstance(x, Output) else sources[x.number]

        return rebuilt(captured.result, leaf)


class Unsupported(RuntimeError):
    """With fullgraph=True: something in the function cannot be part of one graph."""


def generate(
    graph: Graph | None, backend: Any, device: Device, shared: Collection[int] = ()
) -> Callable[[list], list] | None:
    """A function from the arrays of a graph's inputs to those of its outputs; None for no graph.

    Args:
        shared: the numbers of outputs that may show the memory of others, as nothing writes there.
    """
    silence_numpy()  # the caller's thread may be a new one
    if graph is None:
        return None
    if callable(backend):
        return backend(graph, [np.zeros(node.shape, node.dtype) for node in graph.inputs])
    if backend == "eager":
        return functools.partial(graph.run, device.xp)
    kind = "cuda" if device.type == "cuda" else "c"
    if backend not in ("inductor", "numpy", kind):
        raise RuntimeError(f"the backend {backend!r} cannot compile for tensors on {device}")
    if backend != "numpy":
        try:
            return compile_graph(graph, kind, device.xp, shared)
        except CompilerError as error:
            warnings.warn(f"{error}; the generated code uses NumPy instead", stacklevel=2)
    return compile_graph(graph, "numpy", device.xp, shared)


def programs_of(captured: Captured, backend: Any, device: Device) -> tuple[tuple, list]:
    """The graphs of forward and backward, and the programs for them: all passes, in their order."""
    count = captured.count + len(captured.written)
    graph = simplify(captured.graph)
    graphs = partition(graph, len(captured.sources), count)
    kept = range(count, len(graphs[0].outputs))
    with ThreadPoolExecutor(2) as pool:  # most of the time is the C compiler's
        backends, devices = (backend,) * 2, (device,) * 2
        programs = pool.map(generate, graphs, backends, devices, (kept, ()))
        return graphs, list(programs)


@dataclass(eq=False)
class Compiled:
    """What stands for a function: its graphs, for each kind of arguments.

    Attributes:
        function: the program's function.
        entries: key of a call -> its graphs; those whose guards fail are passed over.
        breaks: key of a call -> why it runs in eager.
        log: what has happened, in words.
        making: held while a graph is made for this function, code included.
    """

    function: Callable
    backend: Any = "inductor"
    fullgraph: bool = False
    entries: dict[tuple, list[Entry]] = field(default_factory=dict)
    breaks: dict[tuple, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    making: Any = field(default_factory=threading.RLock)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        modes = describe_modes(state.modes) if state.modes else ()
        if modes is None or tracing.trace is not None:
            return self.function(*args, **kwargs)
        with tracing_lock:  # while a function is traced, its tensors are not what they are
            key, tensors = call_key(args, kwargs, modes)
            entry, reason = self.known(key, tensors)
        if entry is None and key not in self.breaks:
            entry = self.entry_for(key, tensors, args, kwargs)
        if entry is None:
            return self.function(*args, **kwargs)
        with tracing_lock:
            sources = entry.sources(tensors)
            arrays = [tensor.array for tensor in sources]
        return entry.run((self.function, args, kwargs), sources, arrays)

    def note(self, text: str) -> None:
        """Adds to the log."""
        self.log.append(text)

    def known(self, key: tuple, tensors: list) -> tuple[Entry | None, str | None]:
        """The graph that holds for a call; or None, and why the last one that was made does not."""
        reason = None
        for entry in self.entries.get(key, ()):
            reason = entry.changed(tensors)
            if reason is None:
                return entry, None
        return None, reason

    def entry_for(self, key: tuple, tensors: list, args: tuple, kwargs: dict) -> Entry | None:
        """The graph for a call, made where there is none yet; None where it has to run in eager."""
        with self.making:
            with tracing_lock:  # another thread may have made it by now
                entry, reason = self.known(key, tensors)
            if entry is None and key not in self.breaks:
                entry = self.made(key, reason, tensors, args, kwargs)
        return entry

    def made(self, key: tuple, reason: str | None, *call: Any) -> Entry | None:
        """A new graph for a call; None where it has to run in eager."""
        if reason:
            self.note(f"compiled anew: {reason}")
        try:
            entry = self.compiled(*call)
        except Break as reason:
            if self.fullgraph:
                raise Unsupported(str(reason)) from reason
            return self.refuse(key, str(reason))
        self.entries.setdefault(key, []).append(entry)
        return entry

    def refuse(self, key: tuple, reason: str) -> None:
        """Notes why a call runs in eager, and all calls like it."""
        self.note(f"runs in eager: {reason}")
        self.breaks[key] = reason

    def traced(self, tensors: list, args: tuple, kwargs: dict) -> tuple:
        """The function, traced; the watch on what it can see; for each source, which of `tensors`
        it is, or None; and the device."""
        watch = Watch((self.function, *objects_in((args, kwargs))))
        known = list(dict.fromkeys([*tensors, *watch.tensors]))
        with no_effects(watch.streams):
            captured = capture(self.function, args, kwargs, known)
        numbers = {id(tensor): number for number, tensor in enumerate(tensors)}
        places = [numbers.get(id(source.tensor)) for source in captured.sources]
        for source, place in zip(captured.sources, places, strict=True):
            source.tracer = source.edge = source.view = source.grad = None
            if place is not None:  # the arguments of this call are not kept
                source.tensor = source.array = None
        return captured, watch, places, known[0].device if known else cpu

    def compiled(self, tensors: list, args: tuple, kwargs: dict) -> Entry:
        """Traces the function, and generates code for it."""
        start = time.perf_counter()
        with tracing_lock:  # not while the C compiler runs: other threads do not wait for that
            captured, watch, places, device = self.traced(tensors, args, kwargs)
        _, programs = programs_of(captured, self.backend, device)
        seconds = time.perf_counter() - start
        self.note(f"compiled in {seconds:.2f} s: {captured.calls} calls")
        return Entry(captured, *programs, watch, places, seconds)


def compile(model: Callable, *, fullgraph: bool = False) -> Callable:
    """A function that runs as a graph, and gives what it gave before.

    Args:
        fullgraph: raise Unsupported, with the line of the program, where it cannot be one graph;
            without it the function then runs as it is.
    """
    compiled = Compiled(model, fullgraph=fullgraph)

    @functools.wraps(model)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    call.compiled = compiled
    return call


if __name__ == "__main__":
    for name in "comparison elementwise indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods
    importlib.import_module("tinytorch.core.printing")

    rng, own = np.random.default_rng(0), random.Random(0)
    streams = {
        "NumPy's": lambda x: x * np.random.rand(),  # noqa: NPY002 (what programs still use)
        "a generator of NumPy": lambda x: x * rng.random(),
        "Python's": lambda x: x * random.random(),
        "a generator of Python": lambda x: x * own.random(),
    }
    for name, draws in streams.items():
        found = []
        for function in (draws, compile(draws)):
            np.random.seed(0)  # noqa: NPY002
            random.seed(0)
            own.seed(0)
            rng = np.random.default_rng(0)
            found.append([function(ones(1)).item() for _ in range(2)])
        print(f"{name}, as in eager:", found[0] == found[1])
    # -> NumPy's, as in eager: True
    # -> a generator of NumPy, as in eager: True
    # -> Python's, as in eager: True
    # -> a generator of Python, as in eager: True

    numbers = iter([1.0, 2.0])
    f = compile(lambda x: x * next(numbers))
    print(f(ones(1)).item(), f(ones(1)).item(), f.compiled.log[0][:39])
    # -> 1.0 2.0 runs in eager: the function can see <li

    def talks(x):
        print("called")
        return x + 1.0

    f = compile(talks)
    f(ones(1))  # -> called
    f(ones(1))  # -> called
    print(f.compiled.log[0].split(": ", 2)[2])  # -> print() is not part of a graph
    timed = compile(lambda x: x * time.time())
    timed(ones(1))
    print(timed.compiled.log[0].split(": ", 2)[2])  # -> time() is not part of a graph

    def reads(x):
        with open(os.devnull) as file:
            return x + float(len(file.read()))

    f = compile(reads)
    f(ones(1))
    print(f.compiled.log[0].split(": ", 2)[2])  # -> open() is not part of a graph

    def warns(x):
        warnings.warn("on stderr", stacklevel=1)
        return x + float(len(os.path.join("a", "b")))

    f = compile(warns)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("always")
        print(f(ones(1)).item(), f.compiled.log[0].split(" in ")[0])  # -> 4.0 compiled

    # Python does this before it calls print, and before a library's code calls open.
    frames = [
        eval("sys._getframe()", {"sys": sys, "__name__": name}) for name in ("json", "importlib")
    ]
    for frame, called in ((None, print), (frames[0], open)):
        try:
            listen(frame, "c_call", called)
        except Break as error:
            print(error)
    # -> compile15.py...: print() is not part of a graph
    # -> compile15.py...: open() is not part of a graph
    listen(frames[1], "c_call", open)  # an import may

    sys.setprofile(lambda *event: None)  # another profiler
    f = compile(talks)
    f(ones(1))  # -> called
    sys.setprofile(None)
    f(ones(1))
    print(f.compiled.log[0].split(" in ")[0])  # -> compiled
