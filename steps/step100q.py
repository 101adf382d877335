"""Step 100q: What was compiled, and why not

How many graphs, how many breaks and where, which values are guarded, how many operations were there
and how many steps are left of them? `explain(f)(*args)` calls f and says so. Of the steps, views
are not counted: they compute nothing.

That is the compiler. Look back at what it took: an array that writes down what is done to it. All
the rest, 150 operations and the whole backward pass, was there, because no formula of the package
names its array library.

The demo ends with a small table. For each program, eager's time over that of the compiled one, on
your machine. The chain gains most: a thousand calls become two. In a network most of the time is in
matrix products, and these stay with BLAS.

PyTorch's word for it is torch._dynamo.explain.
New: Explanation, explain.
Try: python -m benchmarks.compiled, which compares with PyTorch.
"""

import functools
import importlib
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
from tinytorch.compiler.graph import VIEWS, CheckFailed, Graph
from tinytorch.compiler.guards import PLAIN, Watch, call_key, describe_modes, objects_in
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.compiler.step import compile_step
from tinytorch.compiler.tracer import tracing
from tinytorch.core.device import Device, as_device, cpu
from tinytorch.core.state import state
from tinytorch.nn.activation import ReLU
from tinytorch.nn.container import Sequential
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.nn.norm_layers import BatchNorm1d
from tinytorch.ops.creation import ones
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.optimizer import Optimizer

RECOMPILE_LIMIT = 8  # graphs for one function; after that it runs in eager


FAILURES = 10  # of a graph's checks; after that such calls run in eager


all_compiled: weakref.WeakSet = weakref.WeakSet()  # for reset()


class Unsupported(RuntimeError):
    """With fullgraph=True: something in the function cannot be part of one graph."""


def show(what: str, text: str) -> None:
    """Prints on stderr what TINYTORCH_LOGS asks for: names out of "graph", "code", "recompiles",
    "graph_breaks", with commas between them."""
    if what in os.environ.get("TINYTORCH_LOGS", "").split(","):
        print(text, file=sys.stderr)


def generate(
    graph: Graph | None, backend: Any, device: Device, shared: Collection[int] = ()
) -> Callable[[list], list] | None:
    """A function from the arrays of a graph's inputs to those of its outputs; None for no graph.

    Args:
        shared: the numbers of outputs that may show the memory of others, as nobody writes there.
    """
    as_device(None)  # in a new thread this silences NumPy
    if graph is None:
        return None
    if callable(backend):
        return backend(graph, [np.zeros(node.shape, node.dtype) for node in graph.inputs])
    if backend == "eager":
        return functools.partial(graph.run, device.xp)
    graph = simplify(graph)
    if device.type == "cpu" and backend in ("inductor", "c"):
        try:
            return compile_graph(graph, "c", device.xp, shared)
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
        captured = capture(self.function, args, kwargs, known)
        if reason := watch.changed():
            raise Break(f"the function changes a variable of the program: {reason}")
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


BACKENDS = ("inductor", "c", "cuda", "numpy", "eager")


MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


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
        return compile_step(model)
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
                schedule = getattr(program, "schedule", ())
                steps += sum(getattr(step, "op", "") not in VIEWS for step in schedule)
            values = [(k, v) for _, k, v in last.watch.entries if isinstance(v, PLAIN)]
            guards = [f"{key} == {value!r}" for key, value in values]
        return Explanation(
            len(entries), calls, nodes, steps, list(compiled.breaks.values()), guards, compiled.log
        )

    return call


if __name__ == "__main__":
    for name in "comparison elementwise indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods
    importlib.import_module("tinytorch.core.printing")

    def chain(x):
        for _ in range(100):
            x = (x * 0.9 + 0.1).tanh()
        return x

    def softmax(x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    manual_seed(0)
    model = Sequential(Linear(16, 32), ReLU(), BatchNorm1d(32), Linear(32, 4)).eval()
    programs = {
        "chain": (chain, randn(10)),
        "softmax": (softmax, randn(64, 100)),
        "network": (model, randn(32, 16)),
    }
    for name, (function, x) in programs.items():
        compiled = compile(function)
        explanation = explain(compiled)(x)
        print(f"{name}: {explanation.nodes} operations, {explanation.steps} steps")
    # -> chain: 300 operations, 1 steps
    # -> softmax: 5 operations, 1 steps
    # -> network: ... operations, ... steps
    print("guards:", "training == False" in explanation.guards)  # -> guards: True

    def broken(x):
        return x if x.sum() > 0 else -x

    print(str(explain(broken)(ones(2))).splitlines()[:2])  # -> ['graphs: 0', 'breaks: 1']
    print([line[:7] for line in str(explanation).splitlines()[:2]])  # -> ['graphs:', 'breaks:']

    seconds = {}
    for name, (function, x) in programs.items():
        compiled, times = compile(function), []
        for call in (function, compiled):
            call(x)
            start = time.perf_counter()
            for _ in range(20):
                call(x)
            times.append(time.perf_counter() - start)
        seconds[name] = times
    print("the chain is faster:", seconds["chain"][0] > 3 * seconds["chain"][1])
    # -> the chain is faster: True
    for name, (eager, compiled) in seconds.items():
        print(f"{name}: {eager / compiled:.1f} times as fast as eager")
    # -> chain: ... times as fast as eager
    # -> softmax: ... times as fast as eager
    # -> network: ... times as fast as eager
