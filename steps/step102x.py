"""Step 102x: TINYTORCH_LOGS, and reset()

A compiler that silently falls back to eager is hard to use. The log exists, but the program would
have to print it. An environment variable does it without a change of the program:

    TINYTORCH_LOGS=code,graph_breaks python train.py

    code            the generated source
    graph           the graphs
    recompiles      what was compiled, and why again
    graph_breaks    what runs in eager, and why

The text goes to stderr, so the output of the program stays the same.

`reset` deletes all graphs, for a test or after a change that no guard detects. It has to find all
compiled functions without keeping them alive, so a WeakSet holds them.

The trap: a WeakSet needs hashable objects, and a dataclass that compares its fields is not
hashable. `eq=False` makes Compiled compare by identity.

PyTorch's variable is TORCH_LOGS.

New: show, reset, all_compiled. Changed: Compiled.note prints.
Try: TINYTORCH_LOGS=graph,code python steps/step102x.py
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
from tinytorch.compiler.graph import CheckFailed, Graph, Node
from tinytorch.compiler.guards import Watch, call_key, describe_modes, no_effects, objects_in
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.compiler.step import compile_step
from tinytorch.compiler.tracer import tracing
from tinytorch.core.device import Device, as_device, cpu
from tinytorch.core.state import state
from tinytorch.core.tensor import tensor
from tinytorch.nn.activation import ReLU
from tinytorch.nn.class_loss import cross_entropy
from tinytorch.nn.container import Sequential
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.ops.creation import ones
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.optimizer import Optimizer

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


BACKENDS = ("inductor", "c", "cuda", "numpy", "eager")


MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class OptimizedModule(Module):
    """A network that is compiled. It shares its parameters and buffers with `_orig_mod`."""

    def __init__(self, module: Module, **options: Any):
        super().__init__()
        self._orig_mod = module
        self.__dict__.update(options=options, compiled=Compiled(module, **options))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if "_orig_mod" not in modules:  # a copy that is not filled yet
            raise AttributeError(name)
        return modules["_orig_mod"] if name == "_orig_mod" else getattr(self._orig_mod, name)

    def __getstate__(self) -> dict:
        return {name: value for name, value in vars(self).items() if name != "compiled"}

    def __setstate__(self, state: dict) -> None:
        """A copy is compiled by itself."""
        compiled = Compiled(state["_modules"]["_orig_mod"], **state["options"])
        self.__dict__.update(state, compiled=compiled)


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
        compiled.count, compiled.full = 0, False


if __name__ == "__main__":
    for name in "comparison elementwise indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods
    importlib.import_module("tinytorch.core.printing")

    manual_seed(0)
    model = Sequential(Linear(4, 8), ReLU(), Linear(8, 2))
    network = compile(model)
    network(randn(3, 4))
    sys.stderr = sys.stdout  # so that this demo shows what is printed there
    os.environ["TINYTORCH_LOGS"] = "recompiles,graph_breaks"
    network.eval()
    network(randn(3, 4))
    # -> Sequential: compiled anew: training is False, and was True
    # -> Sequential: compiled in ... s: 3 calls

    def broken(x):
        return x if x.sum() > 0 else -x

    compile(broken)(ones(2))
    # -> broken: runs in eager: ...: the value of an element is needed while the function is traced
    loss = compile(cross_entropy)
    x, target, ignoring = randn(2, 3), tensor([0, 1]), tensor([0, -100])
    loss(x, target)  # -> cross_entropy: compiled in ... s: 1 calls
    loss(x, ignoring)  # -> cross_entropy: runs in eager: a check gave True: ...
    os.environ["TINYTORCH_LOGS"] = "graph"
    compile(lambda x: x * 2)(ones(2))
    # -> forward
    # -> inputs: %0 float32[2]
    # -> %1 = multiply(%0, 2.0)  float32[2]  # Mul, ...
    # -> return %1
    os.environ["TINYTORCH_LOGS"] = ""

    print("graphs:", network.compiled.count)  # -> graphs: 2
    reset()
    print("after reset:", network.compiled.count)  # -> after reset: 0
    network(randn(3, 4))
    print("traced again:", network.compiled.count)  # -> traced again: 1

    many = compile(lambda x, n: x + n)
    for n in range(9):
        many(ones(1), n)
    print(many.compiled.log[-1])  # -> compiled 8 times: other calls run in eager
