"""Step compile27: TINYTORCH_LOGS, and reset()

A compiler that silently falls back to eager is hard to use. The log exists, but the program would
have to print it. An environment variable does it without a change of the program:

    TINYTORCH_LOGS=code,graph_breaks python train.py

    code            the generated source
    graph           the graphs
    recompiles      what was compiled, and why again
    graph_breaks    what runs in eager, and why

The text goes to stderr, so the output of the program stays the same. Another word, say "graphs",
would print nothing, so a warning names it.

`reset` deletes all graphs, for a test or after a change that no guard detects. It has to find all
compiled functions without keeping them alive, so a WeakSet holds them.

The trap: a WeakSet needs objects that are hashable and can be referred to weakly. A dataclass that
compares its fields is not hashable, hence `eq=False`. An object with slots has no place for weak
references, unless it asks for one: `weakref_slot=True`.

PyTorch's variable is TORCH_LOGS.

New: LOGS, show, reset, all_compiled. Changed: Compiled.note prints.
Try: TINYTORCH_LOGS=graph,code python steps/depth/compile27.py
"""

import dis
import functools
import importlib
import os
import sys
import threading
import time
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tinytorch.compiler.capture import Break, at_line, capture, tracing_lock
from tinytorch.compiler.entry import Entry
from tinytorch.compiler.graph import CheckFailed
from tinytorch.compiler.guards import (
    Watch,
    call_key,
    describe_modes,
    is_library,
    no_effects,
    objects_in,
)
from tinytorch.compiler.pipeline import programs_of
from tinytorch.compiler.step import compile_step
from tinytorch.compiler.tracer import line_of_the_program, tracing
from tinytorch.core.device import cpu
from tinytorch.core.state import state
from tinytorch.core.tensor import tensor
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import ones
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.optimizer import Optimizer

RECOMPILE_LIMIT = 8  # kinds of calls that are traced; after that others run in eager
VARYING, OFTEN = 2, 3  # after so many kinds that differ in sizes, others are traced if called often
PATIENCE = 19  # calls in a row that have no graph; then only one of so many looks for one


FAILURES = 10  # of a graph's checks in a row; after that such calls run in eager


all_compiled: weakref.WeakSet = weakref.WeakSet()  # for reset()


class Unsupported(RuntimeError):
    """With fullgraph=True: something in the function cannot be part of one graph."""


class SideEffect(Break):
    """The function has changed a variable of the program."""


LOGS = ("graph", "code", "recompiles", "graph_breaks")


def show(what: str, text: str) -> None:
    """Prints on stderr what TINYTORCH_LOGS asks for: names out of LOGS, with commas between them.
    Warns of other names."""
    words = [word.strip() for word in os.environ.get("TINYTORCH_LOGS", "").split(",")]
    for word in {*words} - {*LOGS, ""}:
        known = ", ".join(LOGS)
        warnings.warn(f"TINYTORCH_LOGS: {word} is unknown; known are {known}", stacklevel=2)
    if what in words:
        print(text, file=sys.stderr)


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


@dataclass(eq=False, slots=True, weakref_slot=True)  # slots: a Watch does not look inside
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

    def __post_init__(self):
        all_compiled.add(self)

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
            self.note("graph_breaks", f"runs in eager: {error}")
            entry.failures += 1
            if entry.failures > FAILURES:
                self.refuse(key, f"{error}, {entry.failures} times")
            if stream is not None:
                entry.generator.set_state(stream)
            return self.in_eager(args, kwargs)
        entry.failures = 0
        return result

    def note(self, what: str, text: str) -> None:
        """Adds to the log, and prints it where TINYTORCH_LOGS asks for it."""
        self.log.append(text)
        show(what, f"{getattr(self.function, '__name__', type(self.function).__name__)}: {text}")

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
            self.note("graph_breaks", f"runs in eager: {self.limits[reason]}")
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
            self.note("recompiles", f"compiled anew: {reason}")
        self.kinds[without_numbers(key)] += 1
        found: list = []
        try:
            entry = self.compiled(*call, found)
        except Break as reason:
            if isinstance(reason, SideEffect) and key not in self.effects:
                self.effects.add(key)  # the call may fill a cache: the next one is traced again
                self.kinds[without_numbers(key)] -= 1
                self.note("graph_breaks", f"runs in eager this time: {reason}")
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
        self.note("graph_breaks", f"runs in eager: {reason}")
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
        graphs, programs = programs_of(captured, self.backend, device, self.autotune)
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
        for known in (compiled.entries, compiled.breaks, compiled.kinds, compiled.seldom):
            known.clear()
        compiled.limits.clear()
        compiled.count, compiled.misses = 0, 0


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
    # -> broken: runs in eager: ...: the value of an element is needed while the function is ...
    calls = []
    compile(lambda x: calls.append(1) or x)(ones(2))
    # -> <lambda>: runs in eager this time: ...: the function changes a variable of the program: ...
    loss = compile(cross_entropy)
    x, target, ignoring = randn(2, 3), tensor([0, 1]), tensor([0, -100])
    loss(x, target)  # -> cross_entropy: compiled in ... s: 1 calls
    loss(x, ignoring)  # -> cross_entropy: runs in eager: a check gave True: check(v4, False)
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

    many = compile(lambda x, n: x + n, dynamic=False)
    for n in range(9):
        many(ones(1), n)
    print(many.compiled.log[-1])
    # -> runs in eager: ...: traced 8 times: other kinds of calls run in eager

    os.environ["TINYTORCH_LOGS"] = "graphs"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compile(broken)(ones(3))
    print(told[0].message)
    # -> TINYTORCH_LOGS: graphs is unknown; known are graph, code, recompiles, graph_breaks
