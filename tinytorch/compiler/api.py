"""tinytorch.compile: a function or network that runs as generated code, and gives what it gave."""

import functools
import os
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinytorch.autograd.engine import edge_of
from tinytorch.autograd.engine import grad as gradients
from tinytorch.autograd.modes import enable_grad
from tinytorch.autograd.node import Function, new
from tinytorch.compiler.capture import (
    Break,
    Captured,
    Output,
    capture,
    rebuilt,
    tensors_in,
    tracing_lock,
)
from tinytorch.compiler.graph import CheckFailed, Graph
from tinytorch.compiler.guards import PLAIN, Watch, call_key, describe_modes
from tinytorch.compiler.step import compile_step
from tinytorch.compiler.tracer import tracing
from tinytorch.core.device import Device, cpu
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import bump_version, next_sequence_nr
from tinytorch.nn.module import Module
from tinytorch.optim.optimizer import Optimizer

RECOMPILE_LIMIT = 8  # graphs for one function; after that it runs in eager
all_compiled: weakref.WeakSet = weakref.WeakSet()  # for reset()
BACKENDS = ("inductor", "c", "cuda", "numpy", "eager")
FAILURES = 10  # of a graph's checks; after that such calls run in eager
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class Unsupported(RuntimeError):
    """With fullgraph=True: something in the function cannot be part of one graph."""


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
        pairs = [(x, g) for x, g in zip(roots, grads, strict=True) if g is not None]
        wanted = [ctx.sources[number] for number in entry.captured.wanted]
        outs, gs = zip(*pairs, strict=True)
        return gradients(outs, wanted, gs, create_graph=True, allow_unused=True)

    def name(ctx) -> str:
        return "CompiledFunctionBackward"


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
    failures: int = 0  # how often a check has failed

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
        arrays = [tensor.array for tensor in self.sources(tensors)] if self.captured.written else []
        for number in self.captured.written:
            if sum(np.may_share_memory(arrays[number], array) for array in arrays) > 1:
                return "memory that several tensors share would be changed in place"
        return self.watch.changed()

    def run(self, call: tuple, sources: list[Tensor], arrays: list) -> Any:
        """What the function returns.

        Raises:
            CheckFailed: the values lead another way than those of the trace. Nothing is changed.
        """
        captured, count = self.captured, self.captured.count
        values = self.forward(arrays)
        for number, value in zip(captured.written, values[count:], strict=False):
            arrays[number][...] = value
            bump_version(arrays[number])
        device = sources[0].device if sources else cpu
        outs = [wrap(value, device) for value in values[:count]]
        if self.backward is not None:
            ctx = new(CompiledCall)
            ctx.device, ctx.xp, ctx.entry, ctx.call_made = device, device.xp, self, call
            ctx.edges = [edge_of(sources[number]) for number in captured.wanted]
            ctx.sources, ctx.saved = sources, tuple(values[count + len(captured.written) :])
            ctx.sequence_nr = next_sequence_nr()
            ctx.record_outputs([outs[number] for number in captured.roots])

        def leaf(x: Any) -> Tensor:
            if isinstance(x, Tensor):
                return x
            return outs[x.number] if isinstance(x, Output) else sources[x.number]

        return rebuilt(captured.result, leaf)


@dataclass(eq=False)
class Compiled:
    """What stands for a function: its graphs, for each kind of arguments.

    Attributes:
        function: the program's function.
        entries: key of a call -> its graphs; those whose guards fail are passed over.
        breaks: key of a call -> why it runs in eager.
        log: what has happened, in words, for explain().
    """

    function: Callable
    backend: Any = "inductor"
    mode: str | None = None
    fullgraph: bool = False
    entries: dict[tuple, list[Entry]] = field(default_factory=dict)
    breaks: dict[tuple, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    count: int = 0

    def __post_init__(self):
        all_compiled.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        modes = describe_modes(state.modes) if state.modes else ()
        if modes is None or tracing.trace is not None:
            return self.function(*args, **kwargs)
        with (
            tracing_lock
        ):  # while a function is traced, the tensors that it uses are not as they are
            key, tensors = call_key(args, kwargs, modes)
            entry = None if key in self.breaks else self.entry_for(key, tensors, args, kwargs)
            if entry is not None:
                sources = entry.sources(tensors)
                arrays = [tensor.array for tensor in sources]
        if entry is None:
            return self.function(*args, **kwargs)
        stream = None if entry.generator is None else entry.generator.get_state()
        try:
            return entry.run((self.function, args, kwargs), sources, arrays)
        except CheckFailed as error:
            self.note("graph_breaks", f"runs in eager: {error}")
            entry.failures += 1
            if entry.failures > FAILURES:
                self.refuse(key, f"{error}, {entry.failures} times")
            if stream is not None:
                entry.generator.set_state(stream)
            return self.function(*args, **kwargs)

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
        if self.count >= RECOMPILE_LIMIT:
            return self.refuse(key, f"it was compiled {RECOMPILE_LIMIT} times; {reasons[-1:]}")
        if reasons:
            self.note("recompiles", f"compiled anew: {reasons[-1]}")
        try:
            entry = self.compiled(tensors, args, kwargs)
        except Break as reason:
            if self.fullgraph:
                raise Unsupported(str(reason)) from reason
            return self.refuse(key, str(reason))
        except (
            Exception
        ) as error:  # the program's own error: in eager, it is raised where it belongs
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
        start, watch = time.perf_counter(), Watch(self.function)
        known = list(dict.fromkeys([*tensors, *watch.tensors]))
        captured = capture(self.function, args, kwargs, known)
        if reason := watch.changed():
            raise Break(f"the function changes a variable of the program: {reason}")
        numbers = {id(tensor): number for number, tensor in enumerate(tensors)}
        places = [numbers.get(id(source.tensor)) for source in captured.sources]
        for source, place in zip(captured.sources, places, strict=True):
            source.tracer = source.edge = source.view = source.grad = None
            if place is not None:  # the arguments of this call are not kept
                source.tensor = source.array = None
        device = tensors[0].device if tensors else cpu
        graphs = captured.graph, captured.backward
        programs = [g and generate(g, self.backend, device) for g in graphs]
        draws = [node.args[0] for node in captured.graph.nodes if node.op == "random"]
        seconds = time.perf_counter() - start
        self.note("recompiles", f"compiled in {seconds:.2f} s: {captured.calls} calls")
        for name, graph, program in zip(("forward", "backward"), graphs, programs, strict=True):
            if graph is not None:
                show("graph", f"{name}\n{graph}")
                show("code", f"{name}\n{getattr(program, 'source', '')}")
        generator = draws[0] if draws else None
        return Entry(captured, *programs, watch, places, generator, seconds)


def generate(graph: Graph, backend: Any, device: Device) -> Callable[[list], list]:
    """A function from the arrays of a graph's inputs to those of its outputs."""
    return functools.partial(graph.run, device.xp)


def show(what: str, text: str) -> None:
    """Prints on stderr what TINYTORCH_LOGS asks for: names out of "graph", "code", "recompiles",
    "graph_breaks", with commas between them."""
    if what in os.environ.get("TINYTORCH_LOGS", "").split(","):
        print(text, file=sys.stderr)


@dataclass
class Explanation:
    """What compile() has made of a function.

    Attributes:
        graphs: how many were made.
        calls: of the program's operations, in the last of them, forward.
        nodes: operations on arrays in the last one, forward and backward.
        steps: what is left of them: kernels, and calls of the array library.
        breaks: why a call ran in eager, with the line of the program.
        guards: the Python values that were seen, and are compared at each call.
        log: what happened, in order.
    """

    graphs: int
    calls: int
    nodes: int
    steps: int
    breaks: list[str]
    guards: list[str]
    log: list[str]

    def __str__(self) -> str:
        lines = [f"graphs: {self.graphs}", f"breaks: {len(self.breaks)}"]
        lines += [f"    {reason}" for reason in self.breaks]
        lines.append(f"calls: {self.calls}, array operations: {self.nodes}, after: {self.steps}")
        return "\n".join([*lines, "guards:", *(f"    {guard}" for guard in self.guards)])


def explain(function: Callable, **options: Any) -> Callable[..., Explanation]:
    """explain(f)(*args) calls f, compiled, and says what was made of it."""

    def call(*args: Any, **kwargs: Any) -> Explanation:
        compiled = function.compiled if hasattr(function, "compiled") else None
        compiled = compiled or Compiled(function, **options)
        compiled(*args, **kwargs)
        entries = [entry for entries in compiled.entries.values() for entry in entries]
        nodes = steps = calls = 0
        guards: list[str] = []
        if entries:
            last = entries[-1]
            calls = last.captured.calls
            for graph in (last.captured.graph, last.captured.backward):
                nodes += 0 if graph is None else len(graph.nodes)
            for program in (last.forward, last.backward):
                steps += len(getattr(program, "schedule", ()))
            values = [(k, v) for _, k, v in last.watch.entries if isinstance(v, PLAIN)]
            guards = [f"{key} == {value!r}" for key, value in values]
        return Explanation(
            len(entries), calls, nodes, steps, list(compiled.breaks.values()), guards, compiled.log
        )

    return call


class OptimizedModule(Module):
    """A network that is compiled. It shares its parameters and buffers with `_orig_mod`."""

    def __init__(self, module: Module, **options: Any):
        super().__init__()
        self._orig_mod = module
        self.__dict__["compiled"] = Compiled(module, **options)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)


def compile(
    model: Callable | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable = "inductor",
    mode: str | None = None,
    options: dict | None = None,
    disable: bool = False,
) -> Any:
    """A function or network that runs as generated code, and gives what it gave before.

    The first call traces it: it runs once on arrays that write down what is done to them. Later
    calls of the same kind run the code that was generated from that. Also a decorator:
    `@compile` or `@compile(fullgraph=True)`.

    Args:
        model: a function, a Module, or the `step` of an optimizer.
        fullgraph: raise Unsupported, with the line of the program, where it cannot be one graph;
            without it the function then runs as it is.
        dynamic: has no effect: each shape has a graph of its own.
        backend: "inductor" (the best that there is: "c" on the CPU, "cuda" on a GPU), "c", "cuda",
            "numpy" (generated Python), "eager" (the graph, operation by operation); or a function
            (graph, example arrays) -> function from a list of arrays to a list of arrays.
        mode: "default"; "reduce-overhead" uses CUDA graphs; "max-autotune" is the default here.
        options: has no effect.
        disable: return the model as it is.
    Raises:
        RuntimeError: there is no such backend or mode.
        TypeError: the model is not callable.
    """
    if model is None:
        settings = dict(fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode)
        return functools.partial(compile, **settings, options=options, disable=disable)
    if not callable(model):
        raise TypeError(f"compile(): argument 'model' must be callable, not {type(model).__name__}")
    if not callable(backend) and backend not in BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}, known are {', '.join(BACKENDS)}")
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode!r}, should be one of: {', '.join(MODES)}")
    if disable:
        return model
    chosen = dict(backend=backend, mode=mode, fullgraph=fullgraph)
    if isinstance(model, Module):
        return OptimizedModule(model, **chosen)
    if isinstance(getattr(model, "__self__", None), Optimizer) and model.__name__ == "step":
        return compile_step(model, lambda graph, device: generate(graph, backend, device))
    compiled = Compiled(model, **chosen)

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


def reset() -> None:
    """Forgets all graphs, so that each function is traced anew."""
    for compiled in list(all_compiled):
        compiled.entries.clear()
        compiled.breaks.clear()
        compiled.count = 0
