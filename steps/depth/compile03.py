"""Step compile03: Guards: which calls may share a graph

A traced graph is fast because its shapes and types are fixed: 4 rows, 3 columns, float32. For 5
rows it computes nonsense or fails. So before a graph runs, the call must be compared with the call
that was traced. These checks are called guards.

Most of what a graph depends on fits into one tuple, the key of the call:

    a tensor     its class, shape, type, device, requires_grad, and what the program has
                 written to it, such as x.tag; not its elements
    a number     its type and its value, since the graph contains it as a constant
    a tuple      the keys of its items
    the modes    grad mode, the default type, the open autocast blocks

Calls with equal keys may share a graph. A dict finds the graph in a fraction of a microsecond.

The traps: 1, 1.0 and True are equal in Python, so the type is part of the key. 0.0 == -0.0, but
x / -0.0 differs from x / 0.0. And f(x, x) differs from f(x, y), because a write to the first
argument then changes the second. So the key records which arguments are the same tensor.

Modes other than autocast, such as a profiler, must see each call as it happens. For these,
describe_modes returns None: the call cannot use a graph.

PyTorch uses the word guard too; torch.compile checks its guards in C++.

New: PLAIN, kind_of_value, call_key, describe_modes.
Try: leave `alike` out of the key, and find the line of the demo that goes wrong.
"""

import functools
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.modes import FunctionMode, no_grad, set_grad_enabled
from tinytorch.compiler.build import CompilerError
from tinytorch.compiler.capture import (
    OWN,
    Captured,
    Output,
    Shown,
    attributes_of,
    rebuilt,
)
from tinytorch.compiler.graph import Graph
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.core.device import Device, cpu
from tinytorch.core.dtype import Defaults, DType, float16
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.ops.creation import ones, zeros

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


if __name__ == "__main__":
    x, y = ones(2, 3), zeros(2, 3)
    key, tensors = call_key((x, 2.0), {"flag": True}, ())
    print("tensors:", [t.tolist()[0] for t in tensors])  # -> tensors: [[1.0, 1.0, 1.0]]

    def alike(first, second, **kwargs):
        """Whether two calls have the same key."""
        return call_key(first, kwargs, ())[0] == call_key(second, kwargs, ())[0]

    print("other values:", alike((x,), (y,)))  # -> other values: True
    print("another shape:", alike((x,), (ones(3, 2),)))  # -> another shape: False
    print("requires grad:", alike((x,), (ones(2, 3).requires_grad_(),)))  # -> requires grad: False
    y.tag = 5
    print("an attribute:", alike((x,), (y,)))  # -> an attribute: False
    del y.tag
    print("inside lists:", alike(([x, 1],), ([y, 1],)))  # -> inside lists: True
    print("1 and True:", alike((1,), (True,)))  # -> 1 and True: False
    print("0.0 and -0.0:", alike((0.0,), (-0.0,)))  # -> 0.0 and -0.0: False
    print("f(x, x) and f(x, y):", alike((x, x), (x, y)))  # -> f(x, x) and f(x, y): False
    print("two objects:", alike((object(),), (object(),)))  # -> two objects: False
    with no_grad():
        inside = call_key((x,), {}, ())[0]
    print("without gradients:", inside == call_key((x,), {}, ())[0])  # -> without gradients: False
    with autocast("cpu", float16):
        print("autocast:", describe_modes(state.modes))
        # -> autocast: (('cpu', tinytorch.float16, True),)
    with FunctionMode():
        print("another mode:", describe_modes(state.modes))  # -> another mode: None
