"""Step 102s: Compiling the update rule of an optimizer

Adam's update makes twelve passes over all parameters: each operation like `m *= beta1` reads and
writes memory. One loop would read and write each element once. But optimizer.step() is not a
function of tensors: it counts steps, reads options, and writes.

Its update rule is such a function: `update_chunk` (step 77d) gets flat arrays and a dict of
numbers. So only update_chunk is traced, with tracers for the arrays, and what it wrote is copied
back. The loop that calls it stays in Python.

Two numbers change in each step: the count of steps and perhaps the learning rate. As constants they
would need a new graph each time. So they become a `Number` (step 97v), a tracer for a Python
number: an input of the graph, which takes the type of the array that it meets, as Python numbers
do.

The trap: with momentum, the first step has another formula (`if step == 1`), so the key contains
whether it is the first step. And an update that depends on the value of an element cannot be
traced: it runs as it is.

PyTorch can compile the step of an optimizer, too.

New: CompiledUpdate.
Try: print the graph of Adam's update. How many operations are there, how many kernels?
"""

import functools
import importlib
import time
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinytorch.compiler.build import CompilerError
from tinytorch.compiler.capture import Break, Trace, capture, tracing_device, tracing_lock
from tinytorch.compiler.entry import Entry
from tinytorch.compiler.graph import CheckFailed, Graph, Node, without_dead_code
from tinytorch.compiler.guards import Watch, call_key, describe_modes, no_effects, objects_in
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.compiler.tracer import Number, Tracer, Untraceable, tracing
from tinytorch.core.device import Device, as_device, cpu, device_of
from tinytorch.core.state import state
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.adam import Adam
from tinytorch.optim.flat import FlatOptimizer

RECOMPILE_LIMIT = 8  # graphs for one function; after that it runs in eager


FAILURES = 10  # of a graph's checks in a row; after that such calls run in eager


class Unsupported(RuntimeError):
    """With fullgraph=True: something in the function cannot be part of one graph."""


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
            self.note(f"runs in eager: {error}")
            entry.failures += 1
            if entry.failures > FAILURES:
                self.refuse(key, f"{error}, {entry.failures} times")
            if stream is not None:
                entry.generator.set_state(stream)
            return self.function(*args, **kwargs)
        entry.failures = 0
        return result

    def note(self, text: str) -> None:
        """Adds to the log."""
        self.log.append(text)

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
                self.note(f"compiled {self.count} times: other calls run in eager")
            self.full = True
            return None
        if reasons:
            self.note(f"compiled anew: {reasons[-1]}")
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
        self.note(f"runs in eager: {reason}")
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
        self.note(f"compiled in {seconds:.2f} s: {captured.calls} calls")
        return Entry(captured, *programs, watch, places, draws[0] if draws else None, seconds)


class CompiledUpdate:
    """`update_chunk` of an optimizer as a graph that is run.

    Attributes:
        loops: (types, options) -> a function of arrays that does the step, or None where there is
            no such graph: then the formula runs as it is.
    """

    def __init__(self, update: Callable):
        self.update = update
        self.loops: dict[tuple, Callable | None] = {}

    def __call__(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        names = [name for name in state if name not in ("xp", "scratch", "step")]
        options = {name: x for name, x in group.items() if name not in ("params", "lr")}
        first = state["step"] == 1  # the first step of a momentum is another formula
        key = p.size, p.dtype, g.dtype, first, str(options)
        arrays = [p, g, *(state[name] for name in names)]
        if key not in self.loops:
            self.loops[key] = self.loop_for(arrays, names, state["step"], group)
        loop = self.loops[key]
        if loop is None:
            self.update(p, g, state, group)
        else:
            loop(arrays, state["step"], group["lr"])

    def loop_for(self, arrays: list, names: list, step: int, group: dict) -> Callable | None:
        """A function that does the step, or None where the formula has no graph."""
        graph, written = self.traced(arrays, names, step, group)
        if graph is None:
            return None
        program = generate(graph, "inductor", cpu)

        def loop(arrays: list, *numbers: float) -> None:
            values = program([*arrays, *(np.asarray(float(x)) for x in numbers)])
            for number, value in zip(written, values, strict=True):
                arrays[number][...] = value

        return loop

    def traced(self, arrays: list, names: list, step: int, group: dict) -> tuple:
        """The graph of the formula, and which of the arrays it writes; None where it has none."""
        trace = Trace(device_of(arrays[0]))
        with tracing_lock, trace:
            numbers = [np.asarray(float(x)) for x in (step, group["lr"])]
            inputs = [Node("input", (), {}, x.shape, x.dtype) for x in (*arrays, *numbers)]
            tracers = [Tracer(x.copy(), node) for x, node in zip(arrays, inputs, strict=False)]
            p, g, *states = tracers
            count, lr = map(Number, numbers, inputs[-2:])
            state = dict(zip(names, states, strict=True), step=count, xp=tracing_device.xp)
            state["scratch"] = tracing_device.xp.empty(p.shape, p.dtype)
            try:
                self.update(p, g, state, {**group, "lr": lr})
            except (Untraceable, TypeError):
                return None, []
            written = [number for number, tracer in enumerate(tracers) if tracer.version]
            outputs = [tracers[number].node for number in written]
        # The only question that a formula of the package asks is in the key: the first step?
        nodes = [node for node in trace.nodes if node.op != "check"]
        return Graph(inputs, without_dead_code(nodes, outputs), outputs), written


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
        model: a function or a Module.
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


if __name__ == "__main__":
    for name in "comparison elementwise indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods
    importlib.import_module("tinytorch.core.printing")

    def trained(make, compiled):
        """The parameters after 20 steps, and the optimizer."""
        manual_seed(0)
        params = [Parameter(randn(100, 7)), Parameter(randn(7))]
        optimizer = make(params)
        if compiled:
            optimizer.update_chunk = CompiledUpdate(optimizer.update_chunk)
        for number in range(20):
            for param in params:
                param.grad = param.detach() * 2 + 1
            optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
            optimizer.step()
        return params, optimizer.update_chunk

    SGD = importlib.import_module("tinytorch.optim.sgd").SGD
    for make in (Adam, lambda params: SGD(params, 0.1, momentum=0.9)):
        expected, _ = trained(make, False)
        found, update = trained(make, True)
        worst = max((a - b).abs().max().item() for a, b in zip(expected, found, strict=True))
        print("as in eager:", worst < 1e-5, "programs:", len(update.loops))
    # -> as in eager: True programs: 2
    # -> as in eager: True programs: 2

    class Noisy(FlatOptimizer):
        """An update that depends on a value cannot be traced. It runs as it is."""

        def __init__(self, params):
            options = {"lr": 0.1, "weight_decay": 0, "maximize": False, "differentiable": False}
            super().__init__(params, options)

        def state_names(self, group):
            return []

        def update_chunk(self, p, g, state, group):
            p -= group["lr"] * g / float(abs(g).max())

    expected, _ = trained(Noisy, False)
    found, update = trained(Noisy, True)
    print("in eager:", (expected[0] - found[0]).abs().max().item(), set(update.loops.values()))
    # -> in eager: 0.0 {None}
