"""Step compile24: Compiling the update rule of an optimizer

Adam's update makes twelve passes over all parameters: each operation like `m *= beta1` reads and
writes memory. One loop would read and write each element once. The demo counts both. But
optimizer.step() is not a function of tensors: it counts steps, reads options, and writes.

Its update rule is such a function: `update_chunk` (step rules05) gets flat arrays and a dict of
numbers. So only update_chunk is traced, with tracers for the arrays, and what it wrote is copied
back. The loop that calls it stays in Python.

Two numbers change in each step: the count of steps and perhaps the learning rate. As constants they
would need a new graph each time. So they become a `Number` (step tracer22), a tracer for a Python
number: an input of the graph, which takes the type of the array that it meets, as Python numbers
do.

The trap: with momentum, the first step has another formula (`if step == 1`), so the key contains
whether it is the first step. And an update that depends on the value of an element cannot be
traced: it runs as it is.

PyTorch can compile the step of an optimizer, too.

New: CompiledUpdate.
Try: print the graph of Adam's update. How many operations are there, how many kernels?
"""

import dis
import functools
import importlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinytorch.compiler.capture import Break, Trace, at_line, capture, tracing_device, tracing_lock
from tinytorch.compiler.entry import Entry
from tinytorch.compiler.graph import CheckFailed, Graph, Node, without_dead_code
from tinytorch.compiler.guards import (
    Watch,
    call_key,
    describe_modes,
    is_library,
    no_effects,
    objects_in,
)
from tinytorch.compiler.pipeline import generate, programs_of
from tinytorch.compiler.simplify import simplify
from tinytorch.compiler.tracer import Number, Tracer, Untraceable, line_of_the_program, tracing
from tinytorch.core.device import cpu, device_of
from tinytorch.core.state import state
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.adam import Adam
from tinytorch.optim.flat import FlatOptimizer

RECOMPILE_LIMIT = 8  # kinds of calls that are traced; after that others run in eager
VARYING, OFTEN = 2, 3  # after so many kinds that differ in sizes, others are traced if called often
PATIENCE = 19  # calls in a row that have no graph; then only one of so many looks for one


FAILURES = 10  # of a graph's checks in a row; after that such calls run in eager


class Unsupported(RuntimeError):
    """With fullgraph=True: something in the function cannot be part of one graph."""


class SideEffect(Break):
    """The function has changed a variable of the program."""


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


def parts_of(found: Iterable, whole: Any) -> list[Module]:
    """The modules to compile where a function cannot be: the outermost of those that were found
    and of those in `whole`, a module which is the function itself.

    A layer of the package is left out: it is few operations, and a compiled call costs some, too.
    """
    found = [*found, *(whole.modules() if isinstance(whole, Module) else ())]
    modules = [x for x in found if isinstance(x, Module) and x is not whole]
    inside = {x for module in modules for x in module.modules() if x is not module}
    queue, parts = [x for x in dict.fromkeys(modules) if x not in inside], []
    for module in queue:
        children = list(module.children())
        if type(module).forward is Module.forward:  # a list of modules
            queue += children
        elif children or not is_library(type(module)):
            parts.append(module)
    return parts


@dataclass(eq=False, slots=True)  # slots: a Watch does not look inside
class Compiled:
    """What stands for a function: its graphs, for each kind of arguments.

    Attributes:
        function: the program's function.
        entries: key of a call -> its graphs; those whose guards fail are passed over.
        breaks: key of a call -> why it runs in eager.
        effects: the keys of calls that changed a variable of the program when they were traced.
        parts: the modules that are compiled instead when it does, and what stands for each.
        log: what has happened, in words.
        kinds: keys without numbers -> how many calls were traced.
        seldom: the keys of the last calls that ran in eager because their sizes vary.
        limits: why calls run in eager that could have a graph -> that, with the program's line.
        misses: how many calls in a row had no graph.
        running: how many threads run the parts.
        making: held while a graph is made for this function, code included.
    """

    function: Callable
    backend: Any = "inductor"
    fullgraph: bool = False
    dynamic: bool | None = None
    autotune: bool = False
    entries: dict[tuple, list[Entry]] = field(default_factory=dict)
    breaks: dict[tuple, str] = field(default_factory=dict)
    effects: set[tuple] = field(default_factory=set)
    parts: dict[Module, Callable] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    kinds: Counter = field(default_factory=Counter)
    seldom: deque = field(default_factory=lambda: deque(maxlen=50))
    count: int = 0
    limits: dict[str, str] = field(default_factory=dict)
    misses: int = 0
    running: int = 0
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
        found: list = []
        try:
            entry = self.compiled(*call, found)
        except Break as reason:
            if isinstance(reason, SideEffect) and key not in self.effects:
                self.effects.add(key)  # the call may fill a cache: the next one is traced again
                self.kinds[without_numbers(key)] -= 1
                self.note(f"runs in eager this time: {reason}")
                return None
            if self.fullgraph:
                raise Unsupported(str(reason)) from reason
            self.compile_parts(found)
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

    def compile_parts(self, found: list) -> None:
        """Notes which of the modules that were found are compiled when the function is not."""
        whole = getattr(self.function, "__self__", self.function)
        with tracing_lock:  # another thread may be in the loops of in_eager
            for module in parts_of(found, whole):
                if module not in self.parts and not vars(module).keys() & {"forward", "compiled"}:
                    part = Compiled(
                        module.forward, self.backend, False, self.dynamic, self.autotune
                    )
                    self.parts[module] = part

    def in_eager(self, args: tuple, kwargs: dict) -> Any:
        """Runs the function as it is, with its parts compiled."""
        if not self.parts:
            return self.function(*args, **kwargs)
        with tracing_lock:
            self.running += 1
            for module, part in self.parts.items():
                vars(module).setdefault("forward", part)  # hides the method of the class
        try:
            return self.function(*args, **kwargs)
        finally:
            with tracing_lock:
                self.running -= 1
                for module, part in () if self.running else self.parts.items():
                    if vars(module).get("forward") is part:
                        del vars(module)["forward"]

    def traced(self, tensors: list, args: tuple, kwargs: dict, found: list) -> tuple:
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
            found += watch.keep
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

    def compiled(self, tensors: list, args: tuple, kwargs: dict, found: list) -> Entry:
        """Traces the function, and generates code for it. What it sees when the trace fails is
        added to `found`."""
        start = time.perf_counter()
        with tracing_lock:  # not while the C compiler runs: other threads do not wait for that
            captured, watch, places, device = self.traced(tensors, args, kwargs, found)
        _, programs = programs_of(captured, self.backend, device, self.autotune)
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
        dynamic: each size, and each Python number among the arguments, has a graph of its own: no
            graph is for all sizes. None or True: after two that differ only in sizes or numbers, a
            call with others runs in eager, and is compiled when it has come three times in the
            last 50 such calls. False: it is compiled at once. At most 8 graphs are made.
        backend: "inductor" (the best that there is: "c" on the CPU, "cuda" on a GPU), "c", "cuda",
            "numpy" (generated Python), "eager" (the graph, operation by operation); or a function
            (graph, example arrays) -> function from a list of arrays to a list of arrays.
        mode: all mean the same: what "max-autotune" generates, products of matrices on the CPU,
            is generated in any case. There are no CUDA graphs: CuPy raises an error when cuBLAS is
            called while a stream is being recorded, so that a graph could hold no product.
        options: {"max_autotune": False} leaves products of matrices to BLAS: the first call takes
            down to a quarter of the time, and the steps of a small network up to half as long
            again. Other options have no effect.
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
    chosen = dict(backend=backend, fullgraph=fullgraph, dynamic=dynamic)
    chosen["autotune"] = (options or {}).get("max_autotune", True)
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

    # How many passes over the parameters are there, operation by operation, and as kernels?
    graphs, plain = [], generate

    def generate(graph, *args):
        graphs.append(simplify(graph))
        return plain(graph, *args)

    trained(Adam, True)
    fuse = importlib.import_module("tinytorch.compiler.fuse").fuse
    passes = [sum(node.shape != () for node in graph.nodes) for graph in graphs]
    print("passes:", passes, "kernels:", [len(fuse(graph)) for graph in graphs])
    # -> passes: [12, 12] kernels: [1, 1]
    generate = plain

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
