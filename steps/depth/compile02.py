"""Step compile02: An entry: a graph with its program

The program of step compile01 takes arrays and returns arrays. The function that was traced takes
tensors and returns any structure, such as a dict with tensors and numbers. An `Entry` combines the
two for one graph.

The graph reads two kinds of tensors, its sources. Some are arguments: each call passes its own, and
`places` says which argument it is. The others, such as weights, were found during the trace, and
are the same objects in each call:

    sources:   [x, weight, bias]        places:   [0, None, None]

`captured.result` (step tracer18) is a copy of what the function returned, with Output(0),
Output(1), ... in the places of the tensors. `run` rebuilds it with the new tensors. For a Shown
(step tracer26) it makes the calls that lead from an output to a view: so these share memory again.

The trap: a result may be a tensor that the function did not compute, such as its weight. Given(1)
stands for it, and each call returns that same tensor, not a copy.

New: Entry, view_of.
Try: call weight.fill_(0.0) and run the entry again. Which scores does it return?
"""

import functools
import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinytorch.autograd.modes import set_grad_enabled
from tinytorch.compiler.build import CompilerError
from tinytorch.compiler.capture import Captured, Output, Shown, capture, rebuilt
from tinytorch.compiler.graph import Graph
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.core.device import Device, cpu
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.ops.creation import ones


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
    program = generate(captured.graph, "inductor", cpu)
    print(type(program([x.array, weight.array])[0]).__name__)  # -> ndarray
    print("result:", captured.result["scores"], captured.result["of"])
    # -> result: Output(number=0) 3
    entry = Entry(captured, program, [0, None], 0.0)

    other = tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    sources = entry.sources([other])
    print("sources:", sources[0] is other, sources[1] is weight)  # -> sources: True True
    found = entry.run(sources, [source.array for source in sources])
    expected = scores(other)
    print((found["scores"] - expected["scores"]).abs().max().item() < 1e-6)  # -> True
    entry = Entry(capture(lambda x: (y := x * 2.0, y[0]), (x,), {}, [x]), None, [0], 0.0)
    entry.forward = generate(entry.captured.graph, "inductor", cpu)
    whole, row = entry.run([other], [other.array])
    row.fill_(7.0)
    print("a view:", whole.tolist())  # -> a view: [[7.0, 7.0], [2.0, 2.0], [4.0, 0.0]]
    print("passed on:", found["weight"] is weight, found["names"] is names)
    # -> passed on: True True
