"""Step 102b: An entry: a graph with its program

The parts exist: a trace (topic 97), kernels (topic 100), a program (topic 101). An `Entry` combines
them for one graph. The graph reads two kinds of tensors, its sources. Some are arguments: each call
passes its own, and `places` says which argument it is. The others, such as weights, were found
during the trace, and are the same objects in each call:

    sources:   [x, weight, bias]        places:   [0, None, None]

The program returns arrays. `captured.result` is a copy of what the function returned, with
Output(0), Output(1), ... in the places of the tensors. `run` rebuilds it with the new tensors.

`generate` makes the program for a backend. "inductor" means generated kernels. If the C compiler is
missing or fails, NumPy does the work, and a warning says so. "eager" runs the graph node by node,
which helps to find a fault. A backend may also be a function of a graph, for experiments.

The trap: a program that ran yesterday must run today. A missing compiler is a warning, not an
error; but a backend that the caller chose for the wrong device is an error.

PyTorch's words are backend, and inductor for its own default backend.

New: Entry, generate.
Try: write a backend that prints the nodes of its graph.
"""

import functools
import importlib
import os
import tempfile
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.modes import FunctionMode
from tinytorch.compiler.build import CompilerError
from tinytorch.compiler.capture import Captured, Output, capture, rebuilt
from tinytorch.compiler.graph import Graph
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.core.device import Device, cpu
from tinytorch.core.dtype import Defaults, DType
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.ops.creation import ones

PLAIN = (bool, int, float, str, bytes, type(None), DType, Device, type, types.BuiltinFunctionType)


def kind_of_value(value: Any, tensors: list[Tensor]) -> Any:
    """A key for an argument. Two arguments with equal keys are alike for a graph; the tensors in
    it, which may differ in their elements, are added to `tensors`."""
    if isinstance(value, Tensor):
        tensors.append(value)
        array = value.array
        return type(value), array.shape, array.dtype, value.device, value.requires_grad
    if isinstance(value, PLAIN):
        return type(value), value or repr(value)  # 0.0 and -0.0 are equal, and not the same
    if isinstance(value, (tuple, list)):
        return type(value), tuple(kind_of_value(item, tensors) for item in value)
    if isinstance(value, dict):
        items = [(name, kind_of_value(item, tensors)) for name, item in value.items()]
        return type(value), tuple(items)
    return id(value)


def call_key(args: tuple, kwargs: dict, modes: tuple) -> tuple[tuple, list[Tensor]]:
    """(what a graph for this call depends on, the tensors among the arguments)."""
    tensors: list[Tensor] = []
    key = kind_of_value(args, tensors), kind_of_value(kwargs, tensors) if kwargs else None
    places = {id(tensor): number for number, tensor in enumerate(tensors)}
    alike = () if len(places) == len(tensors) else tuple(places[id(tensor)] for tensor in tensors)
    return (*key, alike, state.grad_enabled, state.inference, Defaults.dtype, modes), tensors


def describe_modes(modes: tuple[FunctionMode, ...]) -> tuple | None:
    """A key for the open modes, or None where one of them has to see each call as it happens.

    autocast only decides about types: a graph can hold its casts.
    """
    if not all(isinstance(mode, autocast) for mode in modes):
        return None
    return tuple((mode.device_type, mode.dtype, mode.one_type) for mode in modes)


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

        def leaf(x: Any) -> Tensor:
            if isinstance(x, Tensor):
                return x
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


if __name__ == "__main__":
    for name in "comparison elementwise indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods
    importlib.import_module("tinytorch.core.printing")

    weight, names = tensor([[1.0, -1.0], [0.5, 2.0]]), tensor([7, 8])  # names is only returned

    def scores(x):
        y = x @ weight
        return {"scores": y.tanh(), "of": len(x), "weight": weight, "names": names}

    x = ones(3, 2)
    captured = capture(scores, (x,), {}, [x])
    print("result:", captured.result["scores"], captured.result["of"])
    # -> result: Output(number=0) 3
    program = generate(captured.graph, "inductor", cpu)
    entry = Entry(captured, program, [0, None], 0.0)

    other = tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    sources = entry.sources([other])
    print("sources:", sources[0] is other, sources[1] is weight)  # -> sources: True True
    found = entry.run(sources, [source.array for source in sources])
    expected = scores(other)
    print(
        (found["scores"] - expected["scores"]).abs().max().item() < 1e-6, found["weight"] is weight
    )
    # -> True True
    print("passed on:", found["names"] is names)  # -> passed on: True

    def counting(graph, examples):
        print("a graph of", len(graph.nodes), "nodes for", len(examples), "arrays")
        return lambda arrays: graph.run(cpu.xp, arrays)

    arrays = [source.array for source in sources]
    programs = [generate(captured.graph, each, cpu) for each in (counting, "eager", "numpy")]
    # -> a graph of 2 nodes for 2 arrays
    for program in programs:
        print(abs(program(arrays)[0] - expected["scores"].array).max() < 1e-6)
    # -> True
    # -> True
    # -> True

    try:
        generate(captured.graph, "cuda", cpu)
    except RuntimeError as error:
        print(error)  # -> the backend 'cuda' cannot compile for tensors on cpu

    # A C compiler that fails, and an empty cache.
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        os.environ.update(CC="/bin/false", TINYTORCH_CACHE=folder)
        program = generate(capture(lambda x: (x * 7 + 1).tanh(), (x,), {}, [x]).graph, "c", cpu)
        print("runs:", program([x.array])[0].shape, "warned:", len(caught))
        # -> runs: (3, 2) warned: 1
