"""Step compile05: A compiled function as a node of autograd

The compiled softmax of step compile04 returns tensors without history: loss.backward() stops there.
But the trace can contain the backward pass as a second graph (step tracer10). Its program takes the
values that the forward saved and the gradients of the results, and returns the gradients of the
sources.

So for autograd, the whole function is ONE node, with one program as its forward and the other as
its backward:

    w --+                     +--> loss
        +--> CompiledCall ----+              backward: saved, g  ->  gradients of w and x
    x --+                     +--> count

`Entry.run` fills the node by hand. Function.apply would call a forward; here the results exist
already. `edges` leads to the sources that need a gradient, `saved` holds the arrays for backward,
and `record_outputs` makes the node the grad_fn of the results.

`programs_of` has all passes in their order: simplify the graph of both directions, cut it in two
(step tracer39), and generate a program for each.

The traps: `sequence_nr` must be taken after the forward has run, because the engine visits nodes
from the newest to the oldest, and refuses saved values that were written after the node. And the
two programs are compiled in two threads. NumPy's warnings are on in a new thread;
silence_numpy turns them off.

PyTorch calls the node CompiledFunction, and the tracing of the backward AOTAutograd.

New: CompiledCall, programs_of. Changed: Entry has a backward, and run records it; generate.
Try: return the same tensor twice, `return x, x`, from a compiled function. What does backward give?
"""

import functools
import importlib
import threading
import time
import types
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.backward import grad as gradients
from tinytorch.autograd.engine import edge_of
from tinytorch.autograd.modes import FunctionMode, set_grad_enabled
from tinytorch.autograd.node import Function, new
from tinytorch.compiler.border import partition
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
from tinytorch.core.device import Device, cpu, silence_numpy
from tinytorch.core.dtype import Defaults, DType
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import next_sequence_nr
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.ops.random import manual_seed, randint, randn

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


class CompiledCall(Function):
    """One run of a compiled function in the graph of autograd: its backward is generated, too."""

    entry: "Entry"

    def backward(ctx, *grads: Any) -> tuple:
        return tuple(ctx.entry.backward([*ctx.saved, *grads]))

    def gradients(ctx, grads: list) -> tuple:
        raise NotImplementedError("a compiled function cannot be differentiated twice yet")

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
    """

    captured: Captured
    forward: Callable[[list], list]
    backward: Callable[[list], list] | None
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
        captured, count = self.captured, self.captured.count
        values = self.forward(arrays)
        device = sources[0].device if sources else cpu
        outs = [wrap(value, device) for value in values[:count]]
        if self.backward is not None:
            ctx = new(CompiledCall)
            ctx.device, ctx.xp, ctx.entry = device, device.xp, self
            ctx.edges = [edge_of(sources[number]) for number in captured.wanted]
            ctx.saved = tuple(values[count:])
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
    count = captured.count
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
        _, programs = programs_of(captured, self.backend, device)
        seconds = time.perf_counter() - start
        return Entry(captured, *programs, places, seconds)


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

    manual_seed(0)
    model = Sequential(Linear(4, 16), ReLU(), Linear(16, 3))
    x, target = randn(8, 4), randint(3, (8,))

    def loss_of(x, target):
        return cross_entropy(model(x), target)

    loss = loss_of(x, target)
    print("nodes in eager:", loss.grad_fn.name())  # -> nodes in eager: NllLossBackward0
    expected = gradients(loss, list(model.parameters()))

    compiled = compile(lambda w, x: ((x @ w).tanh() ** 2).sum())
    w = randn(4, 3).requires_grad_()
    y = compiled(w, x)
    print("one node:", y.grad_fn.name(), [edge[0] is w for edge in y.grad_fn.edges])
    # -> one node: CompiledFunctionBackward [True]
    y.backward()
    v = w.detach().clone().requires_grad_()
    ((x @ v).tanh() ** 2).sum().backward()
    print("same gradient:", (w.grad - v.grad).abs().max().item() < 1e-5)  # -> same gradient: True

    try:
        gradients(compiled(w, x), w, create_graph=True)
    except NotImplementedError as error:
        print(error)  # -> a compiled function cannot be differentiated twice yet

    # Without a source that requires a gradient, nothing is recorded.
    plain = Compiled(lambda x: x + 1, "numpy")
    print("without gradients:", plain(x).requires_grad)  # -> without gradients: False

    # Before and after the node, the graph of autograd goes on as usual.
    w.grad = None
    (compiled(w * 2, x) * 3).backward()
    print("through both sides:", w.grad.shape == w.shape)  # -> through both sides: True

    # The weights of a network are not arguments, but they get their gradients.
    network = compile(loss_of)
    found = gradients(network(x, target), list(model.parameters()))
    worst = max((a - b).abs().max().item() for a, b in zip(expected, found, strict=True))
    print("all gradients of the network:", worst < 1e-6)  # -> all gradients of the network: True
