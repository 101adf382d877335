"""Step compile17: The recompile limit

An argument of a function is a counter n. Its value is a part of the key (step compile03), so each
call has a key of its own. In step compile16 each of these calls is traced and compiled, which takes
thousands of times as long as the call in eager, and no graph is ever used again.

Compiling pays off only for calls that come again. So there is a limit: after 8 kinds of calls,
compiled or refused by a graph break, nothing is compiled any more. The graphs that exist stay in
use, and all other calls run in eager.

Where most calls have no graph, even the search for one costs something: 6 microseconds, as much as
two operations. After 19 calls in a row without a graph (PATIENCE), only one call in 19 searches. 19
and 4 have no common divisor, so in a loop of 4 calls each of the four is searched for in turn.

The trap is a silent limit: a program that is compiled again in each step gives the right numbers,
but is far slower than eager. So `limited` writes to the log, once, why a call has no graph, and the
line of the program that made the first such call.

PyTorch: torch._dynamo.config.recompile_limit, which is 8 too.

New: RECOMPILE_LIMIT, PATIENCE, Compiled.may_trace, limited, in_eager. Changed: Compiled.__call__,
Compiled.made.
Try: a limit of 20. Which lines of the demo change?
"""

import functools
import importlib
import threading
import time
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from tinytorch.autograd.backward import grad as gradients
from tinytorch.autograd.engine import edge_of
from tinytorch.autograd.modes import enable_grad, set_grad_enabled
from tinytorch.autograd.node import Function, new
from tinytorch.compiler.border import partition
from tinytorch.compiler.build import CompilerError
from tinytorch.compiler.capture import (
    Break,
    Captured,
    Output,
    Shown,
    capture,
    rebuilt,
    tracing_lock,
)
from tinytorch.compiler.graph import Graph
from tinytorch.compiler.guards import Watch, call_key, describe_modes, no_effects, objects_in
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.compiler.tracer import line_of_the_program, tracing
from tinytorch.core.device import Device, cpu, silence_numpy
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import bump_version, next_sequence_nr
from tinytorch.ops.creation import ones
from tinytorch.utils._nested import tensors_in


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


RECOMPILE_LIMIT = 8  # kinds of calls that are traced; after that others run in eager
PATIENCE = 19  # calls in a row that have no graph; then only one of so many looks for one


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
        limits: why calls run in eager that could have a graph -> that, with the program's line.
        misses: how many calls in a row had no graph.
        making: held while a graph is made for this function, code included.
    """

    function: Callable
    backend: Any = "inductor"
    fullgraph: bool = False
    entries: dict[tuple, list[Entry]] = field(default_factory=dict)
    breaks: dict[tuple, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    count: int = 0
    limits: dict[str, str] = field(default_factory=dict)
    misses: int = 0
    making: Any = field(default_factory=threading.RLock)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        modes = describe_modes(state.modes) if state.modes else ()
        if modes is None or tracing.trace is not None:
            return self.function(*args, **kwargs)
        if self.misses > PATIENCE and self.misses % PATIENCE:
            self.misses += 1
            return self.in_eager(args, kwargs)
        with tracing_lock:  # while a function is traced, its tensors are not what they are
            key, tensors = call_key(args, kwargs, modes)
            entry, reason = self.known(key, tensors)
        if entry is None and self.may_trace(key):
            entry = self.entry_for(key, tensors, args, kwargs)
        if entry is None:
            self.misses += 1
            return self.in_eager(args, kwargs)
        self.misses = 0
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

    def may_trace(self, key: tuple) -> bool:
        """Whether to make a graph for a call that has none."""
        if key in self.breaks:
            return False
        if (count := self.count + len(self.breaks)) >= RECOMPILE_LIMIT:  # its graphs stay in use
            return self.limited(f"traced {count} times: other kinds of calls run in eager")
        return True

    def limited(self, reason: str) -> bool:
        """Notes that a call is not traced, and where the program makes the first of its kind."""
        if reason not in self.limits:
            self.limits[reason] = f"{line_of_the_program()}: {reason}"
            self.note(f"runs in eager: {self.limits[reason]}")
        return False

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
        self.count += 1
        return entry

    def refuse(self, key: tuple, reason: str) -> None:
        """Notes why a call runs in eager, and all calls like it."""
        self.note(f"runs in eager: {reason}")
        self.breaks[key] = reason

    def in_eager(self, args: tuple, kwargs: dict) -> Any:
        """Runs the function as it is."""
        return self.function(*args, **kwargs)

    def traced(self, tensors: list, args: tuple, kwargs: dict) -> tuple:
        """The function, traced; the watch on what it can see; for each source, which of `tensors`
        it is, or None; and the device."""
        watch = Watch((self.function, *objects_in((args, kwargs))))
        known = list(dict.fromkeys([*tensors, *watch.tensors]))
        try:
            with no_effects(watch.streams):
                captured = capture(self.function, args, kwargs, known)
        except BaseException:  # the function is going to run in eager
            watch.restore()
            raise
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

    def seconds(function, *args):
        start = time.perf_counter()
        function(*args)
        return time.perf_counter() - start

    def plus(x, n):
        return x + n

    add, x = compile(plus), ones(1)
    eager = median(seconds(plus, x, 0) for _ in range(100))
    print(f"compiled and called: {seconds(add, x, 0) / eager:.0f} times as long as in eager")
    # -> compiled and called: ... times as long as in eager

    print([add(x, n).item() for n in range(10)] == [float(n + 1) for n in range(10)])  # -> True
    print(add.compiled.count, add.compiled.log[-1])
    # -> 8 runs in eager: ...: traced 8 times: other kinds of calls run in eager
    print(add(x, 3).item(), len(add.compiled.log))  # -> 4.0 9

    broken = compile(lambda x: x if x.item() > 0 else -x)
    print([broken(x).item() for _ in range(2)], len(broken.compiled.log))  # -> [1.0, 1.0] 1

    # Calls without a graph: after PATIENCE of them in a row, few look for one.
    for n in range(100, 122):
        add(x, n)
    print("misses:", add.compiled.misses)  # -> misses: 22
    print(add(x, 3).item(), add.compiled.misses)  # -> 4.0 23
    for n in range(200, 215):
        add(x, n)
    print(add(x, 3).item(), add.compiled.misses)  # -> 4.0 0
