"""What compile() has made of a function, in numbers and words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinytorch.compiler.compiled import Compiled
from tinytorch.compiler.graph import VIEWS
from tinytorch.compiler.guards import PLAIN


@dataclass
class Explanation:
    """What compile() has made of a function.

    Attributes:
        graphs: how many were made.
        calls: of the program's operations, in the last of them, forward.
        nodes: operations on arrays in the last one, forward and backward.
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
        for graph in (last.captured.graph, last.captured.backward):
            nodes += 0 if graph is None else len(graph.nodes)
        for program in (last.forward, last.backward):
            schedule = getattr(program, "schedule", ())
            steps += sum(getattr(step, "op", "") not in VIEWS for step in schedule)
        values = [(k, v) for _, k, v in last.watch.entries if isinstance(v, PLAIN)]
        guards = [f"{key} == {value!r}" for key, value in values]
    breaks = list(compiled.breaks.values())
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
