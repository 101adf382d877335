"""What a curriculum is made of: stages, runs, steps, and the modules that they build."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from .number import Number
from .source import Source, SourceError

_TITLE = re.compile(r'"""Step \w+: (.*\S)\s*$', re.MULTILINE)


class CurriculumError(Exception):
    """A mistake in curriculum.toml, or a step that does not exist. Its text is one line."""

    def _render_traceback_(self):  # what Jupyter shows
        return [str(self)]


@dataclass(frozen=True)
class Stage:
    number: int
    title: str
    first: int
    last: int

    def __contains__(self, number: Number) -> bool:
        """Whether a number of the main road is one of the stage."""
        return not number.run and self.first <= number.topic <= self.last


@dataclass(frozen=True)
class Run:
    """Steps in depth that finish a module, or a few."""

    name: str  # "conv", of conv01, conv02, ...
    title: str
    beside: Number  # the step of the main road after which it can be read
    stage: Stage


@dataclass
class Step:
    """One file, `steps/step54a.py` or `steps/depth/conv07.py`, and what the curriculum says about
    it."""

    number: Number
    path: Path
    stage: Stage | None
    run: Run | None = None  # None on the main road
    kind: str = "lesson"
    removes: list[str] = field(default_factory=list)
    renames: dict[str, str] = field(default_factory=dict)
    why: str = ""
    gradcheck: list[str] = field(default_factory=list)
    long: int = 0  # the lines of code above its demo, where they are more than the road allows
    budget: int = 0  # the lines that it may add, where the kind's number does not do
    unrun: list[str] = field(default_factory=list)  # definitions that the demo cannot run
    joins: list[Number] = field(default_factory=list)  # further branches that it brings together
    practice: list[str] | None = None  # what the reader writes, where the rule chooses badly
    needs: str = ""  # a program without which the demo cannot keep its promises
    # Promises with `...` for what is alike on one machine, and why it is not on another: "path"
    varies: dict[str, str] = field(default_factory=dict)
    outcome: Any = None  # how it ran, once it has run
    added: dict[int, str] | None = None  # the lines that it adds, once they are known
    minutes: float | None = None  # what it takes to read, once that is known

    @cached_property
    def source(self) -> Source:
        return Source(self.path)

    @property
    def label(self) -> str:
        return f"step {self.number}"

    @property
    def file(self) -> str:
        """ "steps/step54a.py", as it is named from the root of the repository."""
        return f"steps/{self.number.file}"

    @property
    def title(self) -> str:
        """The title without "Step 07: ", read off the first line where that is possible.

        Raises:
            SourceError: the first line has none, and the file is not Python.
        """
        if "source" in vars(self):
            return self.source.title.partition(": ")[2]
        try:
            text = self.path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            text = ""
        first = _TITLE.match(text)
        return first[1] if first else self.source.title.partition(": ")[2]


@dataclass(frozen=True)
class Module:
    """A file of the package and the steps that build it. It is finished after the last of them."""

    name: str  # "tinytorch/core/tensor.py"
    path: Path
    builders: tuple[Number, ...]

    @property
    def dotted(self) -> str:
        return dotted_name(self.name)

    @property
    def finished(self) -> Number:
        return self.builders[-1]

    @cached_property
    def source(self) -> Source:
        return Source(self.path, package=self.dotted.rpartition(".")[0])


def fault_of(each: Step | Module) -> str:
    """Why a file cannot be read as Python, in a line; nothing where it can."""
    try:
        each.source  # noqa: B018
    except SourceError as error:
        return str(error)
    return ""


def dotted_name(path: str) -> str:
    """The name to import a file by: tinytorch/core/tensor.py is tinytorch.core.tensor."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
