"""Step compile11: Graph breaks: fall back to eager

    def f(x):
        if x.sum() > 0: ...

Which branch? A tracer has no value, so the trace raises an error, and so does the compiled function
of step compile10. But the program was correct, and compile() should not change what it does. So a
function that cannot be traced now runs as it is, in eager. `log` records the reason with the line
of the program, and `breaks` records the key, so that the next call with this key is not traced
again.

With fullgraph=True, such a function raises Unsupported instead, with the same reason.

The trap: the error is caught in the middle of the function, and the trace must not have changed
anything by then. A trace restores all tensors when it ends (step tracer26), so this is safe.

PyTorch calls this a graph break. It compiles the parts before and after the break; here the whole
function runs in eager, until step compile21.

New: Unsupported, Compiled.made, Compiled.note, Compiled.refuse.
Changed: Compiled.__call__, Compiled.known, Compiled.entry_for, compile.
Try: print(absolute.compiled.log) after each call of the demo.
"""

import functools
import importlib
import threading
import time
import types
import warnings
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
from tinytorch.compiler.tracer import tracing
from tinytorch.core.device import Device, cpu, silence_numpy
from tinytorch.core.dtype import Defaults, DType
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import bump_version, next_sequence_nr
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.creation import ones
from tinytorch.utils._nested import tensors_in

# What modules have for state_dict() and load_state_dict(): a call does not read it.
NOT_FOR_CALLS = {"_non_persistent", "_load_state_dict_pre_hooks"}
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
        self.sizes: list[tuple[Any, int]] = []
        self.cells: list[tuple[Any, Any]] = []
        self.tensors: list[Tensor] = []
        self.seen: set[int] = set()
        self.keep: list = []  # an id in `seen` is not used again
        self.visit(root)

    def visit(self, value: Any) -> None:
        if isinstance(value, PLAIN) or id(value) in self.seen:
            return
        self.seen.add(id(value))
        self.keep.append(value)
        if isinstance(value, Tensor):
            self.tensors.append(value)
        elif isinstance(value, (tuple, list)):
            self.contents(value, enumerate(value))
        elif isinstance(value, dict):
            self.contents(value, value.items())
        elif isinstance(value, types.MethodType):
            self.visit(value.__self__)
            self.visit(value.__func__)
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif hasattr(value, "__dict__") and not isinstance(value, types.ModuleType):
            self.contents(vars(value), vars(value).items())
            self.visit(getattr(type(value), "forward", None))

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
        if (function.__module__ or "").partition(".")[0] == "tinytorch":
            return  # the package's own functions depend on nothing else
        names = function.__globals__
        for name in names_in(function.__code__):
            if name in names:
                self.entries.append((names, name, names[name]))
                self.visit(names[name])
        for cell in function.__closure__ or ():
            try:
                self.cells.append((cell, cell.cell_contents))
            except ValueError:
                continue  # a variable that is not there yet
            self.visit(cell.cell_contents)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        self.visit(getattr(function, "__wrapped__", None))

    def changed(self) -> str | None:
        """What is not as it was, in words; None where all is."""
        try:
            for container, key, value in self.entries:
                now = container[key]
                if now is not value and not (isinstance(value, PLAIN) and same(now, value)):
                    return f"{key} is {now!r:.60}, and was {value!r:.60}"
        except (KeyError, IndexError):
            return f"{key} is gone"
        for container, size in self.sizes:
            if len(container) != size:
                return f"something was added to, or removed from, {list(container)!r:.80}"
        for cell, value in self.cells:
            now = cell.cell_contents
            if now is not value and not (isinstance(value, PLAIN) and same(now, value)):
                return f"a variable of the enclosing function is {now!r:.60}, was {value!r:.60}"
        return None


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are the same; 0.0 and -0.0 are not."""
    return type(a) is type(b) and a == b and (bool(a) or repr(a) == repr(b))


def names_in(code: types.CodeType) -> Iterator[str]:
    """The globals and attributes that some code names, those of functions inside it too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


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

    @compile
    def absolute(x):
        if x.sum() > 0:
            return x
        return -x

    print(absolute(ones(2)).tolist(), absolute(ones(2) * -3).tolist())  # -> [1.0, 1.0] [3.0, 3.0]
    print("runs in eager:", len(absolute.compiled.breaks))  # -> runs in eager: 1
    line, reason = absolute.compiled.log[0].split(".py:")
    print(reason.split(": ", 1)[1])
    # -> the value of an element is needed while the function is traced, in `if x.sum() > 0:`

    strict = compile(lambda x: x * x.sum().item(), fullgraph=True)
    try:
        strict(ones(2))
    except Unsupported as error:
        print("with fullgraph:", error)
        # -> with fullgraph: ...: the value of an element is needed while the function is ...

    fixed = Compiled(Linear(2, 2))
    fixed(ones(1, 2))
    fixed(ones(1, 2))  # the same graph
    fixed.function.eval()
    fixed(ones(1, 2))
    print(fixed.log[1])  # -> compiled anew: training is False, and was True
