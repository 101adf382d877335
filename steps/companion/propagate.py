"""Carries the change of one step into the later steps and the package, by three-way merge.

The base is the step as it stands in git (HEAD, or another revision), the change is the step as it
stands in the working tree. Only the framework travels, definition by definition:

- a later file whose definition is the base's takes the new text;
- one that differs is merged with `git merge-file`;
- what is not a definition of both versions (an import, a new helper) is merged with the later
  step's whole framework; a module of the package has its own order, so it takes a new definition
  only where the lesson put it by hand.

Where a lesson rewrites the same lines, propagate stops, writes nothing to that file and names it.
Steps before it, and those of other branches, are written: mend the named step by hand and carry on
from there with `propagate` of that step.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .curriculum import Curriculum, CurriculumError
from .history import name_in
from .number import Number
from .source import Source


class Conflict(Exception):
    """A place that the change and a later lesson both rewrite."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Carried:
    """What was carried into one file."""

    file: str
    names: list[str]


@dataclass(frozen=True)
class Stopped:
    """The file where a merge failed, and the definition."""

    file: str
    name: str
    advice: str


def propagate(curriculum: Curriculum, number: object, revision: str = "HEAD"):
    """Carry the change of a step on, into all steps that descend from it and the modules that they
    finish. Yields Carried for each file, and Stopped for each branch that ends at a conflict."""
    step = curriculum.step(number)
    base = Source(step.path, text=_text_in_git(curriculum.root, step.path, revision))
    change = _Change(base, step.source)
    if not change.names and not change.has_rest:
        raise CurriculumError(
            f"{step.path.name} has the framework of {revision}: nothing to carry."
        )
    stopped: list[Number] = []

    def is_cut_off(number):
        return any(number == n or curriculum.roads.stands_on(number, n) for n in stopped)

    for later in curriculum.later(step):
        if is_cut_off(later.number):
            continue
        names = {name: name_in(curriculum, name, later) for name in base.definitions}
        try:
            text, carried = change.into(later.source, names)
        except Conflict as conflict:
            yield Stopped(
                later.file,
                conflict.name,
                f"Mend {later.path.name} by hand, then: "
                f"python -m steps propagate {later.number.short}",
            )
            stopped.append(later.number)
            continue
        if carried:
            later.path.write_text(text, encoding="utf-8")
            yield Carried(later.file, carried)
    for module in curriculum.modules:
        builders = curriculum.builders(module)
        if not builders or not module.path.exists() or is_cut_off(builders[-1].number):
            continue
        last = builders[-1]
        if last != step and not curriculum.roads.stands_on(last.number, step.number):
            continue
        names = {name: name_in(curriculum, name, last) for name in base.definitions}
        try:
            text, carried = change.into(module.source, names, whole=False)
        except Conflict as conflict:
            advice = f"Give it the form that {last.label} has."
            yield Stopped(module.name, conflict.name, advice)
            continue
        if carried:
            module.path.write_text(text, encoding="utf-8")
            yield Carried(module.name, carried)


class _Change:
    """The change between two versions of a framework, ready to be carried into other files."""

    def __init__(self, base: Source, new: Source):
        self.base, self.new = base, new
        leaves = self._differing(base, new, classes=False)
        # With the leaves (functions, methods, values) replaced, only the classes around them are
        # left to differ, and then what lies between the definitions.
        self.with_leaves = _replaced(base, {name: new.definitions[name].text for name in leaves})
        classes = self._differing(self.with_leaves, new, classes=True)
        self.with_classes = _replaced(
            self.with_leaves, {name: new.definitions[name].text for name in classes}
        )
        self.leaves, self.classes = leaves, classes

    @property
    def names(self) -> list[str]:
        return self.leaves + self.classes

    @property
    def has_rest(self) -> bool:
        """Whether something differs that is not a definition of both versions."""
        return _stripped(self.with_classes.framework) != _stripped(self.new.framework)

    def into(self, target: Source, names: dict[str, str], whole: bool = True):
        """The text of a target with the change in it, and the names of what changed there."""
        if not any(names[name] in target.definitions for name in self.base.top_level):
            return target.text, []
        merged, carried = self._carry(self.base, self.leaves, target, names)
        merged, more = self._carry(self.with_leaves, self.classes, merged, names)
        carried += more
        if whole and self.has_rest:
            before = merged.text
            merged = _with_framework(
                merged,
                _merge(
                    "\n".join(self.with_classes.framework),
                    "\n".join(merged.framework),
                    "\n".join(self.new.framework),
                    "what stands between its definitions",
                ),
            )
            if merged.text != before:
                carried.append("the rest")
        return merged.text, carried

    def _carry(self, base, changed, target, names):
        replaced = {}
        for name in changed:
            ours = target.definitions.get(names[name])
            if ours is not None:
                text = _merge(
                    base.definitions[name].text, ours.text, self.new.definitions[name].text, name
                )
                if text != ours.text:
                    replaced[names[name]] = text
        return _replaced(target, replaced), list(replaced)

    @staticmethod
    def _differing(base, new, classes):
        return [
            name
            for name, definition in base.definitions.items()
            if name in new.definitions
            and (definition.kind == "class") == classes
            and definition.text != new.definitions[name].text
        ]


def _merge(base: str, ours: str, theirs: str, name: str) -> str:
    """The three-way merge of a text, without `git` where the answer is plain."""
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for label, text in (("ours", ours), ("base", base), ("theirs", theirs)):
            paths.append(Path(folder, label))
            paths[-1].write_text(text + "\n", encoding="utf-8")
        command = ["git", "merge-file", "-p", "-q", *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Conflict(name)
    return done.stdout.removesuffix("\n")


def _replaced(source: Source, texts: dict[str, str]) -> Source:
    """A source with other texts for some definitions."""
    lines = list(source.lines)
    # From the last one upwards, so that the line numbers above stay true.
    for name in sorted(texts, key=lambda name: source.definitions[name].first, reverse=True):
        definition = source.definitions[name]
        lines[definition.first - 1 : definition.last] = texts[name].splitlines()
    return Source(source.path, "\n".join(lines) + "\n", source.package)


def _with_framework(source: Source, text: str) -> Source:
    lines = list(source.lines)
    lines[source.framework_first - 1 : source.demo_first - 1] = text.splitlines()
    return Source(source.path, "\n".join(lines) + "\n", source.package)


def _stripped(lines):
    return "\n".join(lines).strip()


def _text_in_git(root: Path, path: Path, revision: str) -> str:
    name = path.relative_to(root).as_posix()
    command = ["git", "-C", str(root), "show", f"{revision}:./{name}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise CurriculumError("propagate compares with git's HEAD, and there is no git.") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["git failed"])[0]
        raise CurriculumError(f"{name} cannot be read from {revision}: {reason}")
    return done.stdout
