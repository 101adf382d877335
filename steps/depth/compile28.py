"""Step compile28: explain(): what was compiled, and why not

How many graphs are there? How many breaks, and where? Which values are guarded? How many operations
did the trace record, and how many steps are left of them? `explain(f)(*args)` calls f and reports
all this. Views are not counted as steps, since they compute nothing. Where the function runs in
eager, the modules that are compiled instead (step compile21) are listed, each with a report of its
own.

The demo ends with a table: for each program, the time in eager divided by the compiled time, on
your machine. The chain gains most, since 300 calls become one step. In a network most of the time
is in matrix products, which BLAS computes as before.

PyTorch's name for it is torch._dynamo.explain.

New: Explanation, explanation_of, explain.
Try: python -m benchmarks.compiled, which compares with PyTorch.
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinytorch.compiler.api import compile
from tinytorch.compiler.compiled import Compiled
from tinytorch.compiler.graph import VIEWS
from tinytorch.compiler.guards import PLAIN
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.batchnorm import BatchNorm1d
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import ones
from tinytorch.ops.random import manual_seed, randn


@dataclass
class Explanation:
    """What compile() has made of a function.

    Attributes:
        graphs: how many were made.
        calls: of the program's operations, in the last of them, forward.
        nodes: operations on arrays that the last one has recorded, forward and backward.
        steps: what is left of them: kernels, and calls of the array library.
        breaks: why a call ran in eager, with the line of the program.
        parts: the modules that are compiled when the function runs in eager: (class, explanation).
        guards: the Python values that were seen, and are compared at each call.
        log: what happened, in order.
    """

    graphs: int
    calls: int
    nodes: int
    steps: int
    breaks: list[str]
    parts: list[tuple[str, "Explanation"]]
    guards: list[str]
    log: list[str]

    def summary(self) -> list[str]:
        lines = [f"graphs: {self.graphs}", f"breaks: {len(self.breaks)}"]
        lines += [f"    {reason}" for reason in self.breaks]
        lines.append(f"calls: {self.calls}, array operations: {self.nodes}, after: {self.steps}")
        for name, part in self.parts:
            lines += [f"compiled instead: {name}", *(f"    {line}" for line in part.summary())]
        return lines

    def __str__(self) -> str:
        return "\n".join([*self.summary(), "guards:", *(f"    {guard}" for guard in self.guards)])


def explanation_of(compiled: Compiled) -> Explanation:
    """What was made of a function until now."""
    entries = [entry for entries in compiled.entries.values() for entry in entries]
    nodes = steps = calls = 0
    guards: list[str] = []
    if entries:
        last = entries[-1]
        calls = last.captured.calls
        nodes = len(last.captured.graph.nodes)
        for program in (last.forward, last.backward):
            schedule = getattr(program, "schedule", ())
            steps += sum(getattr(step, "op", "") not in VIEWS for step in schedule)
        values = [(k, v) for _, k, v in last.watch.entries if isinstance(v, PLAIN)]
        guards = [f"{key} == {value!r}" for key, value in values]
    breaks = [*compiled.breaks.values(), *compiled.limits.values()]
    parts = [(type(x).__name__, explanation_of(part)) for x, part in compiled.parts.items()]
    return Explanation(len(entries), calls, nodes, steps, breaks, parts, guards, compiled.log)


def explain(function: Callable, **options: Any) -> Callable[..., Explanation]:
    """explain(f)(*args) calls f, compiled, and says what was made of it."""

    def call(*args: Any, **kwargs: Any) -> Explanation:
        compiled = function.compiled if hasattr(function, "compiled") else None
        compiled = compiled or Compiled(function, **options)
        compiled(*args, **kwargs)
        return explanation_of(compiled)

    return call


if __name__ == "__main__":
    for name in "comparison elementwise indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods
    importlib.import_module("tinytorch.core.printing")

    def chain(x):
        for _ in range(100):
            x = (x * 0.9 + 0.1).tanh()
        return x

    def softmax(x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)

    manual_seed(0)
    model = Sequential(Linear(64, 128), ReLU(), BatchNorm1d(128), Linear(128, 4)).eval()
    programs = {
        "chain": (chain, randn(10)),
        "softmax": (softmax, randn(64, 100)),
        "network": (model, randn(256, 64)),
    }
    for name, (function, x) in programs.items():
        compiled = compile(function)
        explanation = explain(compiled)(x)
        print(f"{name}: {explanation.nodes} operations, {explanation.steps} steps")
    # -> chain: 300 operations, 1 steps
    # -> softmax: 6 operations, 1 steps
    # -> network: ... operations, ... steps
    print("guards:", "training == False" in explanation.guards)  # -> guards: True

    def broken(x):
        return x if x.sum() > 0 else -x

    print(str(explain(broken)(ones(2))).splitlines()[:2])  # -> ['graphs: 0', 'breaks: 1']
    print([line[:7] for line in str(explanation).splitlines()[:2]])  # -> ['graphs:', 'breaks:']

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.head = Sequential(Linear(64, 4), ReLU())

        def forward(self, x):
            print(x.shape)  # not part of a graph
            return self.head(x)

    print("\n".join(explain(Net())(randn(2, 64)).summary()[4:7]))
    # -> tinytorch.Size([2, 64])
    # -> compiled instead: Sequential
    # ->     graphs: 1
    # ->     breaks: 0

    seconds = {}
    for name, (function, x) in programs.items():
        compiled, times = compile(function), []
        for call in (function, compiled):
            call(x)
            start = time.perf_counter()
            for _ in range(20):
                call(x)
            times.append(time.perf_counter() - start)
        seconds[name] = times
    print("the chain is faster:", seconds["chain"][0] > 3 * seconds["chain"][1])
    # -> the chain is faster: True
    for name, (eager, compiled) in seconds.items():
        print(f"{name}: {eager / compiled:.1f} times as fast as eager")
    # -> chain: ... times as fast as eager
    # -> softmax: ... times as fast as eager
    # -> network: ... times as fast as eager
