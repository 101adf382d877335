"""Step compile04: compile(): trace once, run many times

Step compile03 can tell which calls may share a graph. At each call, something has to compute the
key, look for the graph, and make it if there is none. That is the task of `Compiled`, which takes
the place of the function. In the demo five calls with two shapes are traced twice:

    call  ->  key  ->  is there a graph for it?  --no-->  trace, simplify, generate code
                              | yes                                    |
                              +------------------>  run  <-------------+

The trap is a second thread. While one thread traces a function, the tensors that it uses hold
tracers instead of arrays, and another thread must not read them. Two locks keep them apart:

    tracing_lock   one for all functions. A trace holds it, and a run holds it while it takes the
                   arrays out of the tensors. The C compiler takes longer than both, and does not
                   touch tensors: it runs without this lock, so that other functions do not wait.
    making         one for each function. Two threads that call the function for the first time wait
                   for one another, and get the same graph.

PyTorch's name for it is torch.compile.

New: Compiled, compile.
Try: print compiled.compiled.entries. What is in a key?
"""

import functools
import importlib
import threading
import time
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.modes import FunctionMode, set_grad_enabled
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
from tinytorch.core.device import Device, cpu
from tinytorch.core.dtype import Defaults, DType
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.ops.creation import ones, zeros
from tinytorch.ops.random import manual_seed, randn

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
    """

    captured: Captured
    forward: Callable[[list], list]
    places: list[int | None]
    seconds: float

    def sources(self, tensors: list[Tensor]) -> list[Tensor]:
        """The tensors that the graph reads, in a call with these among its arguments."""
        return [
            source.tensor if place is None else tensors[place]
            for source, place in zip(self.captured.sources, self.places, strict=True)
        ]

    def run(self, sources: list[Tensor], arrays: list) -> Any:
        """What the function returns."""
        device = sources[0].device if sources else cpu
        outs = [wrap(value, device) for value in self.forward(arrays)]
        views: dict[Shown, Tensor] = {}

        def leaf(x: Any) -> Tensor:
            if isinstance(x, Tensor):
                return x
            if isinstance(x, Shown):
                if x not in views:
                    views[x] = view_of(outs[x.number], x)
                return views[x]
            return outs[x.number] if isinstance(x, Output) else sources[x.number]

        return rebuilt(self.captured.result, leaf)


def generate(graph: Graph, backend: Any, device: Device) -> Callable[[list], list]:
    """A function from the arrays of a graph's inputs to those of its outputs."""
    if callable(backend):
        return backend(graph, [np.zeros(node.shape, node.dtype) for node in graph.inputs])
    if backend == "eager":
        return functools.partial(graph.run, device.xp)
    graph, kind = simplify(graph), "cuda" if device.type == "cuda" else "c"
    if backend not in ("inductor", "numpy", kind):
        raise RuntimeError(f"the backend {backend!r} cannot compile for tensors on {device}")
    if backend != "numpy":
        try:
            return compile_graph(graph, kind, device.xp)
        except CompilerError as error:
            warnings.warn(f"{error}; the generated code uses NumPy instead", stacklevel=2)
    return compile_graph(graph, "numpy", device.xp)


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
        return entry.run(sources, arrays)

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
        program = generate(captured.graph, self.backend, device)
        seconds = time.perf_counter() - start
        return Entry(captured, program, places, seconds)


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

    calls = []

    def normalized(x):
        calls.append(x.shape)  # a Python function runs; a graph does not
        e = (x - x.amax(-1, keepdim=True)).exp()
        return {"softmax": e / e.sum(-1, keepdim=True), "count": len(x)}

    compiled = compile(normalized)
    manual_seed(0)
    for shape in ((2, 3), (2, 3), (2, 3), (4, 3), (4, 3)):
        x = randn(*shape)
        right = (compiled(x)["softmax"] - normalized(x)["softmax"]).abs().max().item() < 1e-6
        calls.pop()  # that was the call for comparison
        print(shape, "right:", right, "traced so far:", len(calls))
    # -> (2, 3) right: True traced so far: 1
    # -> (2, 3) right: True traced so far: 1
    # -> (2, 3) right: True traced so far: 1
    # -> (4, 3) right: True traced so far: 2
    # -> (4, 3) right: True traced so far: 2
    print("with a mode:", compiled.compiled(ones(2, 3))["count"], len(calls))  # -> with a mode: 2 2
    with FunctionMode():  # this mode must see each call: no graph
        compiled(ones(2, 3))
    print("and now:", len(calls))  # -> and now: 3

    # A compiled function inside another one: the outer trace goes through the inner one.
    outer = compile(lambda x: compiled(x)["softmax"] * 2)
    print([round(n, 3) for n in outer(zeros(1, 4)).tolist()[0]])  # -> [0.5, 0.5, 0.5, 0.5]

    # Many small calls become one graph.
    many = compile(lambda x: ((x * 2 + 1).tanh() * 3 - x).exp())
    many(ones(1000))
    ((entry,),) = [many.compiled.entries.values()]
    print("operations in the graph:", len(entry.captured.graph.nodes))
    # -> operations in the graph: 6

    # While code is generated for one function, another one runs.
    started, finish = threading.Event(), threading.Event()

    def slow(graph, examples):  # in the place of a C compiler
        started.set()
        finish.wait(5)
        return functools.partial(graph.run, np)

    waiting = Compiled(lambda x: x + 1, backend=slow)
    threads = [threading.Thread(target=waiting, args=(ones(2),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    started.wait(5)
    print("another function runs:", many(ones(3)).shape, len(waiting.entries))
    # -> another function runs: tinytorch.Size([3]) 0
    finish.set()
    for thread in threads:
        thread.join()
    print("graphs for two threads:", len(waiting.entries))  # -> graphs for two threads: 1
