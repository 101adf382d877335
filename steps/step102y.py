"""Step 102y: explain(): what was compiled, and why not

How many graphs are there? How many breaks, and where? Which values are guarded? How many operations
did the trace record, and how many steps are left of them? `explain(f)(*args)` calls f and reports
all this. Views are not counted as steps, since they compute nothing.

This completes the compiler. It needed little of the rest of the package: an array that records what
is done to it. The 150 operations and the backward pass are used as they are, because their formulas
call any array library (ctx.xp).

tinytorch.compile is the name that programs use. Most programs do not need it, so the compiler is
imported at the first use: Python calls a module's `__getattr__` for a name that it does not have.

The demo ends with a table: for each program, the time in eager divided by the compiled time, on
your machine. The chain gains most, since 300 calls become one step. In a network most of the time
is in matrix products, which BLAS computes as before.

PyTorch's name for it is torch._dynamo.explain.

New: Explanation, explain, lazy.__getattr__.
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
from tinytorch.nn.activation import ReLU
from tinytorch.nn.container import Sequential
from tinytorch.nn.linear import Linear
from tinytorch.nn.norm_layers import BatchNorm1d
from tinytorch.ops.creation import ones
from tinytorch.ops.random import manual_seed, randn


@dataclass
class Explanation:
    """What compile() has made of a function.

    Attributes:
        graphs: how many were made.
        calls: of the program's operations, in the last of them, forward.
        nodes: operations on arrays in the last one, forward and backward.
        steps: what is left of them: kernels, and calls of the array library.
        breaks: why a call ran in eager, with the line of the program.
        guards: the Python values that were seen, and are compared at each call.
        log: what happened, in order.
    """

    graphs: int
    calls: int
    nodes: int
    steps: int
    breaks: list[str]
    guards: list[str]
    log: list[str]

    def __str__(self) -> str:
        lines = [f"graphs: {self.graphs}", f"breaks: {len(self.breaks)}"]
        lines += [f"    {reason}" for reason in self.breaks]
        lines.append(f"calls: {self.calls}, array operations: {self.nodes}, after: {self.steps}")
        return "\n".join([*lines, "guards:", *(f"    {guard}" for guard in self.guards)])


def explain(function: Callable, **options: Any) -> Callable[..., Explanation]:
    """explain(f)(*args) calls f, compiled, and says what was made of it."""

    def call(*args: Any, **kwargs: Any) -> Explanation:
        compiled = function.compiled if hasattr(function, "compiled") else None
        compiled = compiled or Compiled(function, **options)
        compiled(*args, **kwargs)
        entries = [entry for entries in compiled.entries.values() for entry in entries]
        nodes = steps = calls = 0
        guards: list[str] = []
        if entries:
            last = entries[-1]
            calls = last.captured.calls
            for graph in (last.captured.graph, last.captured.backward):
                nodes += 0 if graph is None else len(graph.nodes)
            for program in (last.forward, last.backward):
                schedule = getattr(program, "schedule", ())
                steps += sum(getattr(step, "op", "") not in VIEWS for step in schedule)
            values = [(k, v) for _, k, v in last.watch.entries if isinstance(v, PLAIN)]
            guards = [f"{key} == {value!r}" for key, value in values]
        return Explanation(
            len(entries), calls, nodes, steps, list(compiled.breaks.values()), guards, compiled.log
        )

    return call


def __getattr__(name: str) -> Any:
    """tinytorch.compile and tinytorch.compiler: most programs do without a compiler.

    tinytorch/__init__.py imports this function. Python calls it for a name that a module does not
    have.
    """
    if name not in ("compile", "compiler"):
        raise AttributeError(f"module 'tinytorch' has no attribute '{name}'")
    if name == "compiler":
        return importlib.import_module("tinytorch.compiler")
    return importlib.import_module("tinytorch.compiler.api").compile


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
    # -> softmax: ... operations, 1 steps
    # -> network: ... operations, ... steps
    print("guards:", "training == False" in explanation.guards)  # -> guards: True

    def broken(x):
        return x if x.sum() > 0 else -x

    print(str(explain(broken)(ones(2))).splitlines()[:2])  # -> ['graphs: 0', 'breaks: 1']
    print([line[:7] for line in str(explanation).splitlines()[:2]])  # -> ['graphs:', 'breaks:']

    print(__getattr__("compile").__module__)  # -> tinytorch.compiler.api
    print(__getattr__("compiler").__name__)  # -> tinytorch.compiler
    try:
        __getattr__("compiles")
    except AttributeError as error:
        print(error)  # -> module 'tinytorch' has no attribute 'compiles'

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
