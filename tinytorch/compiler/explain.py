"""What compile() has made of a function, in numbers and words."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinytorch.compiler.compiled import Compiled
from tinytorch.compiler.graph import VIEWS
from tinytorch.compiler.guards import PLAIN
from tinytorch.nn.modules.module import Module


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
        if self.graphs:
            calls = f"calls: {self.calls}, array operations: {self.nodes}"
            lines.append(f"{calls}, after: {self.steps}")
        for name, part in self.parts:
            lines += [f"compiled instead: {name}", *(f"    {line}" for line in part.summary())]
        return lines

    def __str__(self) -> str:
        return "\n".join([*self.summary(), "guards:", *(f"    {guard}" for guard in self.guards)])


def names_of_modules(function: Any) -> dict[Module, str]:
    """The paths of the modules that a function or module can see: "encoder.0"."""
    whole = getattr(function, "__self__", function)
    if isinstance(whole, Module):
        roots = {"": whole}
    elif inspect.isfunction(whole):
        seen = inspect.getclosurevars(whole)
        roots = {**seen.globals, **seen.nonlocals}
    else:
        roots = {}
    return {
        module: path
        for name, root in roots.items()
        if isinstance(root, Module)
        for path, module in root.named_modules(prefix=name)
    }


def explanation_of(compiled: Compiled) -> Explanation:
    """What was made of a function until now."""
    names = names_of_modules(compiled.function)
    owners = {id(vars(module)): path for module, path in names.items()}
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
        for container, key, value in last.watch.entries:
            if isinstance(value, PLAIN):
                owner = owners.get(id(container))
                guards.append(f"{owner}.{key} == {value!r}" if owner else f"{key} == {value!r}")
    breaks = [*compiled.breaks.values(), *compiled.limits.values()]
    parts = [
        (f"{names.get(module, '')} {type(module).__name__}".strip(), explanation_of(part))
        for module, part in compiled.parts.items()
    ]
    return Explanation(len(entries), calls, nodes, steps, breaks, parts, guards, compiled.log)


def explain(function: Callable, **options: Any) -> Callable[..., Explanation]:
    """explain(f)(*args) calls f, compiled, and says what was made of it."""

    def call(*args: Any, **kwargs: Any) -> Explanation:
        compiled = function.compiled if hasattr(function, "compiled") else None
        compiled = compiled or Compiled(function, **options)
        compiled(*args, **kwargs)
        return explanation_of(compiled)

    return call
