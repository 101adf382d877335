"""Step compile20: When a check of a graph fails

A graph contains some decisions as nodes (step tracer24). For example, cross_entropy tests whether a
target is to be ignored, and in the trace none was. A run in which one is ignored raises
CheckFailed. In step compile19 this error reaches the user.

But a run changes nothing until its end, where the writes are copied. So Compiled abandons the run,
and calls the original function. Only the random stream may have moved, if dropout drew numbers
before the check. So its state is saved before a run that draws, and restored.

A check that fails in each call makes the call slower than eager: the program runs in vain, and then
the function. After more than 10 failures in a row, calls with this key run in eager.

The trap is a call that cannot be repeated. A second derivative (step compile06) calls the function
again, and a function that draws random numbers would draw other ones. `once` refuses this case.

New: FAILURES. Changed: Compiled.__call__, Entry.once.
Try: take out `set_state`. Which line of the demo goes wrong?
"""

import dis
import functools
import importlib
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
    at_line,
    capture,
    rebuilt,
    tracing_lock,
)
from tinytorch.compiler.graph import CheckFailed, Graph
from tinytorch.compiler.guards import Watch, call_key, describe_modes, no_effects, objects_in
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.compiler.tracer import line_of_the_program, tracing
from tinytorch.core.device import Device, cpu, silence_numpy
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.core.version import bump_version, next_sequence_nr
from tinytorch.nn.modules.dropout import dropout
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.ops.creation import ones
from tinytorch.ops.random import manual_seed, rand, randn
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
                "a compiled function that draws random numbers or writes in place cannot be "
                "differentiated twice: call the function itself"
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
        generator: whose random numbers it draws, or None.
        once: it cannot run a second time for the same call: it draws random numbers, or writes.
    """

    captured: Captured
    forward: Callable[[list], list]
    backward: Callable[[list], list] | None
    watch: Watch
    places: list[int | None]
    generator: Any
    seconds: float
    failures: int = 0  # how often in a row a check has failed
    shown: list[int] | None = None  # the saved values that show memory which a run writes

    @property
    def once(self) -> bool:
        return bool(self.generator is not None or self.captured.written)

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
        """What the function returns.

        Raises:
            CheckFailed: the values lead another way than those of the trace. Nothing is changed.
        """
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
VARYING, OFTEN = 2, 3  # after so many kinds that differ in sizes, others are traced if called often
PATIENCE = 19  # calls in a row that have no graph; then only one of so many looks for one


FAILURES = 10  # of a graph's checks in a row; after that such calls run in eager


class Unsupported(RuntimeError):
    """With fullgraph=True: something in the function cannot be part of one graph."""


class SideEffect(Break):
    """The function has changed a variable of the program."""


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


def without_numbers(key: Any) -> Any:
    """The key of a call without its sizes, numbers and ids: calls that differ only in these have
    the same."""
    if isinstance(key, tuple):
        return tuple(map(without_numbers, key))
    return None if type(key) in (int, float) else key


def place_of_change(watch: Watch, reason: str) -> str:
    """Where the program's code writes the global or attribute that `reason` names: "model.py:12: ";
    "" where that is not found."""
    stores = [
        f"{code.co_filename.rpartition('/')[2]}:{each.positions.lineno}: "
        for _, code, _ in watch.functions
        for each in dis.get_instructions(code)
        if each.opname in ("STORE_GLOBAL", "STORE_ATTR") and reason.startswith(f"{each.argval} is ")
    ]
    return stores[0] if stores else ""


@dataclass(eq=False)
class Compiled:
    """What stands for a function: its graphs, for each kind of arguments.

    Attributes:
        function: the program's function.
        entries: key of a call -> its graphs; those whose guards fail are passed over.
        breaks: key of a call -> why it runs in eager.
        effects: the keys of calls that changed a variable of the program when they were traced.
        log: what has happened, in words.
        kinds: keys without numbers -> how many calls were traced.
        seldom: the keys of the last calls that ran in eager because their sizes vary.
        limits: why calls run in eager that could have a graph -> that, with the program's line.
        misses: how many calls in a row had no graph.
        making: held while a graph is made for this function, code included.
    """

    function: Callable
    backend: Any = "inductor"
    fullgraph: bool = False
    dynamic: bool | None = None
    entries: dict[tuple, list[Entry]] = field(default_factory=dict)
    breaks: dict[tuple, str] = field(default_factory=dict)
    effects: set[tuple] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    kinds: Counter = field(default_factory=Counter)
    seldom: deque = field(default_factory=lambda: deque(maxlen=50))
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
        if entry is None and self.may_trace(key, reason):
            entry = self.entry_for(key, tensors, args, kwargs)
        if entry is None:
            self.misses += 1
            return self.in_eager(args, kwargs)
        self.misses = 0
        with tracing_lock:
            sources = entry.sources(tensors)
            arrays = [tensor.array for tensor in sources]
        stream = None if entry.generator is None else entry.generator.get_state()
        try:
            result = entry.run((self.function, args, kwargs), sources, arrays)
        except CheckFailed as error:
            self.note(f"runs in eager: {error}")
            entry.failures += 1
            if entry.failures > FAILURES:
                self.refuse(key, f"{error}, {entry.failures} times")
            if stream is not None:
                entry.generator.set_state(stream)
            return self.in_eager(args, kwargs)
        entry.failures = 0
        return result

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

    def may_trace(self, key: tuple, reason: str | None) -> bool:
        """Whether to make a graph for a call that has none."""
        if key in self.breaks:
            return False
        traced_in_vain = len(self.breaks.keys() | self.effects)
        if (count := self.count + traced_in_vain) >= RECOMPILE_LIMIT:  # its graphs stay in use
            return self.limited(f"traced {count} times: other kinds of calls run in eager")
        if self.dynamic is False or reason or self.kinds[without_numbers(key)] < VARYING:
            return True
        self.seldom.append(key)
        return self.seldom.count(key) >= OFTEN or self.limited(
            f"its graphs are for other sizes or numbers: another one after {OFTEN} calls"
        )

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
        self.kinds[without_numbers(key)] += 1
        try:
            entry = self.compiled(*call)
        except Break as reason:
            if isinstance(reason, SideEffect) and key not in self.effects:
                self.effects.add(key)  # the call may fill a cache: the next one is traced again
                self.kinds[without_numbers(key)] -= 1
                self.note(f"runs in eager this time: {reason}")
                return None
            if self.fullgraph:
                raise Unsupported(str(reason)) from reason
            return self.refuse(key, str(reason))
        except Exception as error:  # in eager, the program's own error is raised where it belongs
            if self.fullgraph:
                raise
            return self.refuse(
                key, at_line(f"{type(error).__name__}: {error}", error, self.function)
            )
        self.effects.discard(key)
        self.entries.setdefault(key, []).append(entry)
        self.count += 1
        return entry

    def refuse(self, key: tuple, reason: str) -> None:
        """Notes why a call runs in eager, and all calls like it."""
        self.note(f"runs in eager: {reason}")
        self.breaks[key] = reason
        self.entries.pop(key, None)

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
            if reason := watch.changed():
                text = f"the function changes a variable of the program: {reason}"
                text = place_of_change(watch, reason) + text
                raise Break(at_line(text, Break(), self.function))
        except BaseException as error:  # the function is going to run in eager
            effect = isinstance(error, Break) and watch.changed()
            watch.restore()
            if effect:
                raise SideEffect(str(error)) from error
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
        draws = [node.args[0] for node in captured.graph.nodes if node.op == "random"]
        seconds = time.perf_counter() - start
        self.note(f"compiled in {seconds:.2f} s: {captured.calls} calls")
        return Entry(captured, *programs, watch, places, draws[0] if draws else None, seconds)


def compile(model: Callable, *, fullgraph: bool = False, dynamic: bool | None = None) -> Callable:
    """A function that runs as a graph, and gives what it gave before.

    Args:
        fullgraph: raise Unsupported, with the line of the program, where it cannot be one graph;
            without it the function then runs as it is.
        dynamic: False: compile a call at once, though only its sizes or numbers are new.
    """
    compiled = Compiled(model, fullgraph=fullgraph, dynamic=dynamic)

    @functools.wraps(model)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    call.compiled = compiled
    return call


def disable(function: Callable | None = None, recursive: bool = True) -> Callable:
    """A function that is never part of a graph: what calls it runs in eager. Also a decorator."""
    if function is None:
        return disable

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            raise Break(f"{function.__name__} is disabled")
        return function(*args, **kwargs)

    return call


def is_compiling() -> bool:
    """Whether the program runs on tracers now."""
    return tracing.trace is not None


if __name__ == "__main__":
    for name in "comparison elementwise indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods
    importlib.import_module("tinytorch.core.printing")

    manual_seed(0)

    def loss(x, target):
        return cross_entropy(dropout(x, 0.5), target)

    compiled = compile(loss, fullgraph=True)
    x = randn(4, 3)
    target, ignoring = tensor([0, 1, 2, 1]), tensor([0, 1, 2, -100])
    for y in (target, ignoring, target):
        manual_seed(1)
        expected = [loss(x, y).item() for _ in range(2)]
        manual_seed(1)
        found = [compiled(x, y).item() for _ in range(2)]
        print("as in eager:", [abs(a - b) < 1e-6 for a, b in zip(expected, found, strict=True)])
    # -> as in eager: [True, True]
    # -> as in eager: [True, True]
    # -> as in eager: [True, True]
    print(len(compiled.compiled.log), compiled.compiled.log[-1].split(": ")[1])
    # -> 3 a check gave True

    for _ in range(11):
        compiled(x, ignoring)
    (reason,) = compiled.compiled.breaks.values()
    print("given up:", reason.split(": ")[0], reason.split(", ")[-1])
    # -> given up: a check gave True 11 times

    w = ones(3, requires_grad=True)
    try:
        gradients(compile(lambda w: (w * rand(3)).sum())(w), w, create_graph=True)
    except RuntimeError as error:
        print(str(error).split(" cannot")[0])
        # -> a compiled function that draws random numbers or writes in place

    # A check without random numbers before it.
    plain = compile(cross_entropy)
    print(abs(plain(x, target) - cross_entropy(x, target)).item() < 1e-6)  # -> True
    print(abs(plain(x, ignoring) - cross_entropy(x, ignoring)).item() < 1e-6)  # -> True
