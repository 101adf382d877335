"""What stands for a compiled function: it picks the graph for a call, or makes one."""

import functools
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinytorch.compiler.build import CompilerError
from tinytorch.compiler.capture import Break, capture, tracing_lock
from tinytorch.compiler.entry import Entry
from tinytorch.compiler.graph import CheckFailed, Graph, Node
from tinytorch.compiler.guards import Watch, call_key, describe_modes, no_effects, objects_in
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.compiler.tracer import tracing
from tinytorch.core.device import Device, as_device, cpu
from tinytorch.core.state import state

RECOMPILE_LIMIT = 8  # graphs for one function; after that it runs in eager
FAILURES = 10  # of a graph's checks in a row; after that such calls run in eager
all_compiled: weakref.WeakSet = weakref.WeakSet()  # for reset()


class Unsupported(RuntimeError):
    """With fullgraph=True: something in the function cannot be part of one graph."""


def show(what: str, text: str) -> None:
    """Prints on stderr what TINYTORCH_LOGS asks for: names out of "graph", "code", "recompiles",
    "graph_breaks", with commas between them."""
    if what in os.environ.get("TINYTORCH_LOGS", "").split(","):
        print(text, file=sys.stderr)


def example_of(node: Node) -> np.ndarray | None:
    """Zeros like an input of a graph; None for one that is no array, such as a kept Function."""
    return None if node.dtype is None else np.zeros(node.shape, node.dtype)


def generate(
    graph: Graph | None, backend: Any, device: Device, shared: Collection[int] = ()
) -> Callable[[list], list] | None:
    """A function from the arrays of a graph's inputs to those of its outputs; None for no graph.

    Args:
        shared: the numbers of outputs that may show the memory of others, as nothing writes there.
    """
    as_device(None)  # in a new thread this silences NumPy
    if graph is None:
        return None
    if callable(backend):
        return backend(graph, [example_of(node) for node in graph.inputs])
    if backend == "eager":
        return functools.partial(graph.run, device.xp)
    graph, kind = simplify(graph), "cuda" if device.type == "cuda" else "c"
    if backend not in ("inductor", "numpy", kind):
        raise RuntimeError(f"the backend {backend!r} cannot compile for tensors on {device}")
    if backend != "numpy":
        try:
            return compile_graph(graph, kind, device.xp, shared)
        except CompilerError as error:
            warnings.warn(f"{error}; the generated code uses NumPy instead", stacklevel=2)
    return compile_graph(graph, "numpy", device.xp, shared)


@dataclass(eq=False)
class Compiled:
    """What stands for a function: its graphs, for each kind of arguments.

    Attributes:
        function: the program's function.
        entries: key of a call -> its graphs; those whose guards fail are passed over.
        breaks: key of a call -> why it runs in eager.
        log: what has happened, in words.
    """

    function: Callable
    backend: Any = "inductor"
    mode: str | None = None
    fullgraph: bool = False
    entries: dict[tuple, list[Entry]] = field(default_factory=dict)
    breaks: dict[tuple, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    count: int = 0
    full: bool = False  # more graphs than the limit were asked for

    def __post_init__(self):
        all_compiled.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        modes = describe_modes(state.modes) if state.modes else ()
        if modes is None or tracing.trace is not None:
            return self.function(*args, **kwargs)
        with tracing_lock:  # while a function is traced, its tensors are not what they are
            key, tensors = call_key(args, kwargs, modes)
            entry = None if key in self.breaks else self.entry_for(key, tensors, args, kwargs)
            if entry is not None:
                sources = entry.sources(tensors)
                arrays = [tensor.array for tensor in sources]
        if entry is None:
            return self.function(*args, **kwargs)
        stream = None if entry.generator is None else entry.generator.get_state()
        try:
            result = entry.run((self.function, args, kwargs), sources, arrays)
        except CheckFailed as error:
            self.note("graph_breaks", f"runs in eager: {error}")
            entry.failures += 1
            if entry.failures > FAILURES:
                self.refuse(key, f"{error}, {entry.failures} times")
            if stream is not None:
                entry.generator.set_state(stream)
            return self.function(*args, **kwargs)
        entry.failures = 0
        return result

    def note(self, what: str, text: str) -> None:
        """Adds to the log, and prints it where TINYTORCH_LOGS asks for it."""
        self.log.append(text)
        show(what, f"{getattr(self.function, '__name__', type(self.function).__name__)}: {text}")

    def entry_for(self, key: tuple, tensors: list, args: tuple, kwargs: dict) -> Entry | None:
        """The graph for a call, made where there is none yet; None where it has to run in eager."""
        reasons = []
        for entry in self.entries.get(key, ()):
            reason = entry.changed(tensors)
            if reason is None:
                return entry
            reasons.append(reason)
        if self.count >= RECOMPILE_LIMIT:  # the graphs that are there stay in use
            if not self.full:
                self.note("graph_breaks", f"compiled {self.count} times: other calls run in eager")
            self.full = True
            return None
        if reasons:
            self.note("recompiles", f"compiled anew: {reasons[-1]}")
        try:
            entry = self.compiled(tensors, args, kwargs)
        except Break as reason:
            if self.fullgraph:
                raise Unsupported(str(reason)) from reason
            return self.refuse(key, str(reason))
        except Exception as error:  # in eager, the program's own error is raised where it belongs
            if self.fullgraph:
                raise
            return self.refuse(key, f"{type(error).__name__}: {error}")
        self.entries.setdefault(key, []).append(entry)
        self.count += 1
        return entry

    def refuse(self, key: tuple, reason: str) -> None:
        """Notes why a call runs in eager, and all calls like it."""
        self.note("graph_breaks", f"runs in eager: {reason}")
        self.breaks[key] = reason

    def compiled(self, tensors: list, args: tuple, kwargs: dict) -> Entry:
        """Traces the function, and generates code for it."""
        start, watch = time.perf_counter(), Watch((self.function, *objects_in((args, kwargs))))
        known = list(dict.fromkeys([*tensors, *watch.tensors]))
        try:
            with no_effects(watch.streams):
                captured = capture(self.function, args, kwargs, known)
            if reason := watch.changed():
                raise Break(f"the function changes a variable of the program: {reason}")
        except BaseException:  # the function is going to run in eager
            watch.restore()
            raise
        numbers = {id(tensor): number for number, tensor in enumerate(tensors)}
        places = [numbers.get(id(source.tensor)) for source in captured.sources]
        for source, place in zip(captured.sources, places, strict=True):
            source.tracer = source.edge = source.view = source.grad = None
            if place is not None:  # the arguments of this call are not kept
                source.tensor = source.array = None
        device = known[0].device if known else cpu
        graphs = captured.graph, captured.backward
        kept = range(captured.count + len(captured.written), len(captured.graph.outputs))
        with ThreadPoolExecutor(2) as pool:  # most of the time is the C compiler's
            backends, devices = (self.backend,) * 2, (device,) * 2
            programs = list(pool.map(generate, graphs, backends, devices, (kept, ())))
        draws = [node.args[0] for node in captured.graph.nodes if node.op == "random"]
        seconds = time.perf_counter() - start
        self.note("recompiles", f"compiled in {seconds:.2f} s: {captured.calls} calls")
        for name, graph, program in zip(("forward", "backward"), graphs, programs, strict=True):
            if graph is not None:
                show("graph", f"{name}\n{graph}")
                show("code", f"{name}\n{getattr(program, 'source', '')}")
        return Entry(captured, *programs, watch, places, draws[0] if draws else None, seconds)
