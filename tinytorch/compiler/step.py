"""The step of an optimizer, compiled: its formula for some elements becomes one loop."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.compiler.capture import Trace, tracing_lock, without_dead_code
from tinytorch.compiler.graph import CheckFailed, Graph, Node
from tinytorch.compiler.tracer import Number, Tracer, Untraceable, tracing_device
from tinytorch.core.device import device_of
from tinytorch.optim.flat import FlatOptimizer

# Elements that a program handles at once; what is left over is done by the formula itself. So few
# programs serve parameters of all sizes.
BLOCKS = (16384, 1024)


class CompiledUpdate:
    """`update_chunk` of an optimizer as generated code.

    Attributes:
        generate: from a graph and a device to a function of arrays.
        programs: (size, types, options) -> the function and which arrays it writes; None where the
            formula cannot be traced.
    """

    def __init__(self, update: Callable, generate: Callable):
        self.update, self.generate, self.programs = update, generate, {}

    def __call__(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        names = [name for name, value in state.items() if getattr(value, "shape", None) == p.shape]
        names = [name for name in names if name != "scratch"]
        numbers = [np.asarray(float(x)) for x in (state["step"], group["lr"])]
        options = str([(name, x) for name, x in group.items() if name not in ("params", "lr")])
        first = 0
        for size in BLOCKS:
            while p.size - first >= size:
                part = slice(first, first + size)
                arrays = [p[part], g[part], *(state[name][part] for name in names)]
                if not self.run((size, p.dtype, g.dtype, options), arrays, names, numbers, group):
                    break
                first += size
        if first < p.size:
            rest = {name: state[name][first:] for name in [*names, "scratch"]}
            self.update(p[first:], g[first:], {**state, **rest}, group)

    def run(self, key: tuple, arrays: list, names: list, numbers: list, group: dict) -> bool:
        """Whether the program for these arrays has done the step."""
        for _ in range(2):
            if key not in self.programs:
                self.programs[key] = self.compiled(arrays, names, numbers, group)
            if self.programs[key] is None:
                return False
            program, written = self.programs[key]
            try:
                values = program([*arrays, *numbers])
            except CheckFailed:  # the first step of a momentum is another formula
                del self.programs[key]
                continue
            for number, value in zip(written, values, strict=True):
                arrays[number][...] = value
            return True
        return False

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
        graph = Graph(inputs, without_dead_code(trace.nodes, outputs), outputs)
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
