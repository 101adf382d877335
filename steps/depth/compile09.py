"""Step compile09: Several graphs for one key: recompilation

Now Compiled asks the watch before it runs a graph. A graph is valid as long as what the watch
recorded has not changed. So a key has a list of graphs, such as one for training and one for
evaluation. The first valid one runs. If there is none, the function is traced once more.

The tensors found by the watch get guards too. Their elements may change, and an optimizer may even
put another array into a weight. But another shape, type or requires_grad needs another graph.

A graph that writes (step compile07) needs one more check: do two of its tensors share memory? In
the trace they did not. In a call f(x, x.view(-1)) they do, and the graph, which treats them as
separate, would give a wrong result. `overlap` compares them.

The trap is comparing too much. Tensors that are not arguments were compared with each other during
the trace, so `overlap` looks only at pairs with at least one argument. Otherwise a network with 20
BatchNorm layers would spend a millisecond here.

PyTorch does the same, and calls it recompilation.

New: Entry.changed, Entry.overlap, Compiled.known. Changed: Compiled keeps a list for each key.
Try: change an attribute that the network does not use. What happens?
"""

import functools
import importlib
import threading
import time
import types
import warnings
from collections.abc import Callable, Collection
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
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import ones, zeros
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
    return id(value)


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
    """The Python values in a network: attributes of its modules, what lists and dicts contain.

    A graph holds what these were when it was traced. `changed` says what has changed since.
    """

    def __init__(self, root: Any):
        self.entries: list[tuple[Any, Any, Any]] = []  # (container, key, value)
        self.sizes: list[tuple[Any, int]] = []
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
        elif hasattr(value, "__dict__"):
            self.contents(vars(value), vars(value).items())

    def contents(self, container: Any, items: Any) -> None:
        if not isinstance(container, tuple):
            self.sizes.append((container, len(container)))
        for key, item in list(items):
            if key in NOT_FOR_CALLS:
                continue
            if not isinstance(container, tuple):
                self.entries.append((container, key, item))
            self.visit(item)

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
        return None


def same(a: Any, b: Any) -> bool:
    """Whether two plain values are the same; 0.0 and -0.0 are not."""
    return type(a) is type(b) and a == b and (bool(a) or repr(a) == repr(b))


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
        making: held while a graph is made for this function, code included.
    """

    function: Callable
    backend: Any = "inductor"
    entries: dict[tuple, list[Entry]] = field(default_factory=dict)
    making: Any = field(default_factory=threading.RLock)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        modes = describe_modes(state.modes) if state.modes else ()
        if modes is None or tracing.trace is not None:
            return self.function(*args, **kwargs)
        with tracing_lock:  # while a function is traced, its tensors are not what they are
            key, tensors = call_key(args, kwargs, modes)
            entry = self.known(key, tensors)
        if entry is None:
            entry = self.entry_for(key, tensors, args, kwargs)
        with tracing_lock:
            sources = entry.sources(tensors)
            arrays = [tensor.array for tensor in sources]
        return entry.run((self.function, args, kwargs), sources, arrays)

    def known(self, key: tuple, tensors: list) -> Entry | None:
        """The graph that holds for a call, if there is one."""
        for entry in self.entries.get(key, ()):
            if entry.changed(tensors) is None:
                return entry
        return None

    def entry_for(self, key: tuple, tensors: list, args: tuple, kwargs: dict) -> Entry:
        """The graph for a call, made where there is none yet."""
        with self.making:
            with tracing_lock:  # another thread may have made it by now
                entry = self.known(key, tensors)
            if entry is None:
                entry = self.compiled(tensors, args, kwargs)
                self.entries.setdefault(key, []).append(entry)
        return entry

    def traced(self, tensors: list, args: tuple, kwargs: dict) -> tuple:
        """The function, traced; the watch on what it can see; for each source, which of `tensors`
        it is, or None; and the device."""
        watch = Watch(self.function)
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
        return Entry(captured, *programs, watch, places, seconds)


def compile(model: Callable) -> Callable:
    """A function that runs as a graph, and gives what it gave before."""
    compiled = Compiled(model)

    @functools.wraps(model)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    call.compiled = compiled
    return call


if __name__ == "__main__":
    for name in "comparison elementwise indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods
    importlib.import_module("tinytorch.core.printing")

    class Scale(Module):
        def __init__(self):
            super().__init__()
            self.layers = [Linear(2, 2, bias=False)]  # a plain list
            self.options = {"factor": 2.0, "sizes": (1, 2)}

        def forward(self, x):
            y = self.layers[0](x) * self.options["factor"]
            return y + 1 if self.training else y

    def times(compiled):
        return sum(len(entries) for entries in compiled.entries.values())

    model = Scale()
    model.layers[0].weight.data.fill_(1.0)
    compiled, x = Compiled(model), ones(1, 2)
    print(compiled(x).tolist(), times(compiled))  # -> [[5.0, 5.0]] 1
    model.eval()
    print(compiled(x).tolist(), times(compiled))  # -> [[4.0, 4.0]] 2
    model.train()
    print(compiled(x).tolist(), times(compiled))  # -> [[5.0, 5.0]] 2
    model.options["factor"] = 3.0
    print(compiled(x).tolist(), times(compiled))  # -> [[7.0, 7.0]] 3
    model.layers[0].weight.data.fill_(2.0)  # elements may change
    print(compiled(x).tolist(), times(compiled))  # -> [[13.0, 13.0]] 3

    # The tensors that the watch found have guards, too.
    found = Compiled(holder := Scale())
    holder.layers = [Linear(2, 2, bias=False)]
    found(x)
    ((entry,),) = found.entries.values()
    w = holder.layers[0].weight
    w.requires_grad_(False)
    print(entry.changed([x]))  # -> a tensor of the function has requires_grad=False now
    w.requires_grad_(True)
    w.data = zeros(2, 2)
    print(entry.changed([x]))  # -> None
    w.data = zeros(3, 2)
    print(entry.changed([x]))  # -> a tensor of the function is now float32[3, 2]
    adds = Compiled(lambda a, b: a.add_(b))
    a = zeros(3)
    adds(a, ones(3))
    ((entry,),) = adds.entries.values()
    print(entry.changed([a, ones(3)]), "|", entry.changed([a, a.detach()]))
    # -> None | memory that several tensors share would be changed in place
