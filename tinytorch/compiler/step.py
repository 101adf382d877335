"""The step of an optimizer, compiled: its formula becomes one loop that writes in place."""

import ctypes
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.compiler.build import CompilerError, build
from tinytorch.compiler.c_code import FLAGS, CFunction, c_file, comment_of
from tinytorch.compiler.capture import Trace, tracing_device, tracing_lock
from tinytorch.compiler.fuse import fuse
from tinytorch.compiler.graph import Graph, Node, without_dead_code
from tinytorch.compiler.kernel import Kernel
from tinytorch.compiler.program import threads_now
from tinytorch.compiler.simplify import simplify
from tinytorch.compiler.tracer import Number, Tracer, Untraceable
from tinytorch.core.device import device_of
from tinytorch.optim.flat import FlatOptimizer


class LoopOverAll(CFunction):
    """A kernel for flat arrays of any length. It may write into what it reads: each element is read
    before it is written, in the same round of the loop."""

    def parameters(self) -> list[str]:
        return [x.replace("*restrict ", "*") for x in super().parameters()] + ["long n"]

    def loop(self, i: int) -> None:
        self.open(
            f"for (long {self.counters[i]} = 0; {self.counters[i]} < n; {self.counters[i]}++)"
        )


class CompiledUpdate:
    """`update_chunk` of an optimizer as generated code.

    Attributes:
        loops: (types, options) -> a function of arrays that does the step, or None where there is
            no such loop: then the formula runs as it is.
        sources: the generated files.
    """

    def __init__(self, update: Callable):
        self.update = update
        self.loops: dict[tuple, Callable | None] = {}
        self.sources: list[str] = []

    def __call__(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        names = [name for name in state if name not in ("xp", "scratch", "step")]
        options = {name: x for name, x in group.items() if name not in ("params", "lr")}
        first = state["step"] == 1  # the first step of a momentum is another formula
        key = type(p), p.dtype, g.dtype, first, str(options)
        arrays = [p, g, *(state[name] for name in names)]
        if key not in self.loops:
            self.loops[key] = self.loop_for(arrays, names, state["step"], group)
        loop = self.loops[key]
        if loop is None or not all(array.flags.c_contiguous for array in arrays):
            self.update(p, g, state, group)
        else:
            loop(arrays, state["step"], group["lr"])

    def loop_for(self, arrays: list, names: list, step: int, group: dict) -> Callable | None:
        """The generated function, or None where the formula is no single loop."""
        graph, written = self.traced(arrays, names, step, group)
        graph = None if graph is None else simplify(graph)
        host = isinstance(arrays[0], np.ndarray)
        kernels = fuse(graph) if graph is not None and host else []
        if len(kernels) != 1 or not isinstance(kernels[0], Kernel) or len(kernels[0].sizes) != 1:
            return None
        (kernel,) = kernels
        kernel.name = "step"
        text = f"{comment_of(kernel)}void step({LoopOverAll(kernel).text()}"
        self.sources.append(c_file(text))
        try:
            function = build(self.sources[-1], FLAGS).step
        except CompilerError as error:
            warnings.warn(f"{error}; the step runs in NumPy", stacklevel=4)
            return None
        places = {node: number for number, node in enumerate(graph.inputs)}
        order = [places[node] for node in kernel.inputs]
        order += [written[graph.outputs.index(node)] for node in kernel.outputs]
        function.argtypes = [ctypes.c_void_p] * len(order) + [ctypes.c_int, ctypes.c_long]

        def loop(arrays: list, *numbers: float) -> None:
            given = [*arrays, *(np.asarray(float(x)) for x in numbers)]
            pointers = [given[number].__array_interface__["data"][0] for number in order]
            function(*pointers, threads_now(), arrays[0].size)

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


def compile_step(step: Callable) -> Callable:
    """The bound method `step` of an optimizer, with its formula compiled while it runs."""
    optimizer = step.__self__
    if not isinstance(optimizer, FlatOptimizer):
        return step
    update = CompiledUpdate(optimizer.update_chunk)

    @functools.wraps(step)
    def call(*args: Any, **kwargs: Any) -> Any:
        vars(optimizer)["update_chunk"] = update
        try:
            return step(*args, **kwargs)
        finally:
            del vars(optimizer)["update_chunk"]

    call.compiled = update
    return call
