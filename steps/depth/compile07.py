"""Step compile07: Writes in place by a compiled function

BatchNorm writes in training mode: it updates its running averages. So does x.add_(1). A graph never
overwrites a value (step tracer13): a write became a new node, and the last such node is the final
value of that memory. The program of step compile06 computes this value and throws it away, so the
averages do not change.

So the graph gets one more output for each source that was written. After the program has run, `run`
copies this output into the tensor's memory, and increments the tensor's version:

    outputs:   results | written values | saved for backward
    then:      array[...] = value,  version + 1

All writes happen at the end. Until then a run has changed nothing, and can be abandoned (step
compile20).

The traps: backward may need the value of an argument BEFORE the write, and the saved array may be
the argument's own memory. `own` copies it in this case. The same values are affected in each run,
so the first run finds them. And a run that writes cannot be repeated: a second derivative (step
compile06) raises an error.

PyTorch's word for it is functionalization.

New: Entry.once, Entry.own. Changed: Entry.run writes.
Try: leave out the copies of `own`. Which line of the demo is wrong then?
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
from tinytorch.nn.modules.batchnorm import BatchNorm1d
from tinytorch.ops.creation import ones, zeros
from tinytorch.ops.random import manual_seed, randn
from tinytorch.utils._nested import tensors_in

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
        entries: key of a call -> its graph.
        making: held while a graph is made for this function, code included.
    """

    function: Callable
    backend: Any = "inductor"
    entries: dict[tuple, Entry] = field(default_factory=dict)
    making: Any = field(default_factory=threading.RLock)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        modes = describe_modes(state.modes) if state.modes else ()
        if modes is None or tracing.trace is not None:
            return self.function(*args, **kwargs)
        with tracing_lock:  # while a function is traced, its tensors are not what they are
            key, tensors = call_key(args, kwargs, modes)
            entry = self.entries.get(key)
        if entry is None:
            entry = self.entry_for(key, tensors, args, kwargs)
        with tracing_lock:
            sources = entry.sources(tensors)
            arrays = [tensor.array for tensor in sources]
        return entry.run((self.function, args, kwargs), sources, arrays)

    def entry_for(self, key: tuple, tensors: list, args: tuple, kwargs: dict) -> Entry:
        """The graph for a call, made where there is none yet."""
        with self.making:
            if key not in self.entries:  # another thread may have made it by now
                self.entries[key] = self.compiled(tensors, args, kwargs)
        return self.entries[key]

    def traced(self, tensors: list, args: tuple, kwargs: dict) -> tuple:
        """The function, traced; for each source, which of `tensors` it is, or None; the device."""
        captured = capture(self.function, args, kwargs, tensors)
        numbers = {id(tensor): number for number, tensor in enumerate(tensors)}
        places = [numbers.get(id(source.tensor)) for source in captured.sources]
        for source, place in zip(captured.sources, places, strict=True):
            source.tracer = source.edge = source.view = source.grad = None
            if place is not None:  # the arguments of this call are not kept
                source.tensor = source.array = None
        return captured, places, tensors[0].device if tensors else cpu

    def compiled(self, tensors: list, args: tuple, kwargs: dict) -> Entry:
        """Traces the function, and generates code for it."""
        start = time.perf_counter()
        with tracing_lock:  # not while the C compiler runs: other threads do not wait for that
            captured, places, device = self.traced(tensors, args, kwargs)
        _, programs = programs_of(captured, self.backend, device)
        seconds = time.perf_counter() - start
        return Entry(captured, *programs, places, seconds)


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

    manual_seed(0)
    norm = BatchNorm1d(3)
    compiled = compile(lambda x: norm(x))
    x = randn(100, 3) + 5
    before = norm.running_mean.tolist()
    compiled(x)
    print("moved:", before, [round(n, 1) for n in norm.running_mean.tolist()])
    # -> moved: [0.0, 0.0, 0.0] [0.5, 0.5, 0.5]
    print("batches:", norm.num_batches_tracked.item())  # -> batches: 1

    def step_back(x, y):
        x.sub_(y)
        x[0] = 0
        return x

    a, b = ones(3), ones(3) * 0.5
    result = compile(step_back)(a, b)
    print(result is a, a.tolist(), a._version > 0)  # -> True [0.0, 0.5, 0.5] True

    class Odd(Function):
        """y = x with dy/dx = exp(c), a value that only backward needs."""

        def forward(ctx, x, c):
            ctx.saved = (ctx.xp.exp(c),)
            return x + 0 * c

        def backward(ctx, g):
            return g * ctx.saved[0], None

    # So the compiled backward computes it, from c as it was before the write.
    @compile
    def odd(x, c):
        y = Odd.apply(x, c)
        c.add_(1)
        return y.sum()

    c, w = zeros(2), ones(2, requires_grad=True)
    for _ in range(2):
        w.grad = None
        odd(w, c).backward()
        print("gradient:", [round(n, 3) for n in w.grad.tolist()], "c:", c.tolist())
    # -> gradient: [1.0, 1.0] c: [1.0, 1.0]
    # -> gradient: [2.718, 2.718] c: [2.0, 2.0]
    try:
        gradients(odd(w, c), w, create_graph=True)
    except RuntimeError as error:
        print(str(error).split(":")[0])
        # -> a compiled function that writes in place cannot be differentiated twice
