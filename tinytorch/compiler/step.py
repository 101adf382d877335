"""The step of an optimizer, compiled: its formula for some elements becomes one loop."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.compiler.capture import Trace, tracing_lock
from tinytorch.compiler.graph import CheckFailed, Graph, Node
from tinytorch.compiler.simplify import simplify
from tinytorch.compiler.tracer import Number, Tracer, Untraceable, tracing_device
from tinytorch.core.device import device_of
from tinytorch.optim.flat import FlatOptimizer

CHANGING = ("step", "lr")  # numbers that differ from step to step: they are inputs of the graph


class CompiledUpdate:
    """`update_chunk` of an optimizer as generated code, for each size and choice of options.

    Attributes:
        generate: from a graph and a device to a function of arrays.
        programs: key -> the function, or None where the formula cannot be traced.
    """

    def __init__(self, update: Callable, generate: Callable):
        self.update, self.generate, self.programs = update, generate, {}

    def __call__(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        names = [name for name in state if name not in ("xp", "scratch", "step")]
        options = {name: x for name, x in group.items() if name not in ("params", "lr")}
        key = p.size, p.dtype, g.dtype, tuple(names), str(options)
        arrays = [p, g, *(state[name] for name in names)]
        numbers = [np.asarray(float(x)) for x in (state["step"], group["lr"])]
        for _ in range(2):
            if key not in self.programs:
                self.programs[key] = self.compiled(arrays, names, numbers, group)
            if self.programs[key] is None:
                break
            program, written = self.programs[key]
            try:
                values = program([*arrays, *numbers])
            except CheckFailed:  # the first step of a momentum is another formula
                del self.programs[key]
                continue
            for number, value in zip(written, values, strict=True):
                arrays[number][...] = value
            return
        self.update(p, g, state, group)

    def compiled(self, arrays: list, names: list, numbers: list, group: dict) -> tuple | None:
        """(function of arrays, which of them it writes), or None if the formula has no graph."""
        device = device_of(arrays[0])
        trace = Trace(device)
        with tracing_lock, trace:
            inputs = [Node("input", (), {}, x.shape, x.dtype) for x in (*arrays, *numbers)]
            tracers = [Tracer(x.copy(), node) for x, node in zip(arrays, inputs, strict=False)]
            p, g, *states = tracers
            step, lr = map(Number, numbers, inputs[-2:])
            state = dict(zip(names, states, strict=True), step=step, xp=tracing_device.xp)
            state["scratch"] = tracing_device.xp.empty(p.shape, p.dtype)
            try:
                self.update(p, g, state, {**group, "lr": lr})
            except (Untraceable, TypeError):
                return None
            written = [number for number, tracer in enumerate(tracers) if tracer.version]
            outputs = [tracers[number].node for number in written]
        graph = simplify(Graph(inputs, trace.nodes, outputs))
        return self.generate(graph, device), written


def compile_step(step: Callable, generate: Callable) -> Callable:
    """The bound method `step` of an optimizer, with its formula compiled while it runs."""
    optimizer = step.__self__
    if not isinstance(optimizer, FlatOptimizer):
        return step
    update = CompiledUpdate(optimizer.update_chunk, generate)

    @functools.wraps(step)
    def call(*args: Any, **kwargs: Any) -> Any:
        vars(optimizer)["update_chunk"] = update
        try:
            return step(*args, **kwargs)
        finally:
            del vars(optimizer)["update_chunk"]

    call.compiled = update
    return call
