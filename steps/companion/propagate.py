"""Carries the change of one step into the later steps and the package, from step to step.

The change of a step is what differs between git (HEAD, or another revision) and the working tree.
Only the framework travels, definition by definition. Each later step takes what changed in the step
that it is compared with:

- a definition that is as it was there takes the new text;
- one that the lesson wrote anew is merged (merging.py says how);
- what is not a definition of both versions (an import, a new helper) is merged with the step's
  whole framework; a module of the package has its own order, so it takes a new definition only
  where the lesson put it by hand.

So a change ends where no later file holds the definition. Where it comes back, because a later step
builds the same module or has the same text, the change comes back too. A module takes each
definition from the last step that builds it.

Where a lesson rewrites the same statement, propagate stops, writes nothing to that file and names
it. Steps before it, and those of other branches, are written. The place is remembered in PLACE:
mend the step by hand, and go on with `propagate --continue`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from .curriculum import Curriculum, CurriculumError, Module, Step
from .lookup import find
from .merging import Conflict, merge
from .names import heir
from .number import Number
from .source import Source

PLACE = ".steps-propagate"  # a file beside README.md, which git ignores
REST = "the rest"  # what is no definition
GO_ON = "python -m steps propagate --continue"


@dataclass(frozen=True)
class Carried:
    """What was carried into one file."""

    file: str
    names: list[str]


@dataclass(frozen=True)
class Stopped:
    """The file where a merge failed, the definition, and its three forms."""

    file: str
    name: str
    advice: str
    forms: str = ""


def propagate(
    curriculum: Curriculum,
    number: object,
    revision: str = "HEAD",
    dry: bool = False,
    mended: Iterable[Number] = (),
):
    """Carry the change of a step on, into all steps that descend from it and their modules. Yields
    Carried for each file, and Stopped for each branch that ends at a conflict.

    A `dry` one writes nothing and goes on after a conflict, as if somebody had written the change
    there. The steps in `mended` have it already, written by hand.
    """
    step = curriculum.step(number)
    work = _Work(curriculum, revision, dry)
    change = _Change(work.in_git(step), step.source)
    if not change.names and not change.has_rest:
        raise CurriculumError(
            f"{step.path.name} has the framework of {revision}: nothing to carry."
        )
    work.changes[step.number] = change
    stopped: list[Step] = []
    for later in curriculum.later(step):
        try:
            carried = work.carry(later, later.number in mended)
        except Conflict as conflict:
            advice = f"Mend {later.path.name} by hand, then: {GO_ON}"
            yield Stopped(later.file, conflict.name, advice, conflict.forms)
            stopped.append(later)
            carried = work.carry(later, guess=True) if dry else []
        if carried:
            yield Carried(later.file, carried)
    ended = not stopped
    for module in curriculum.built_modules:
        try:
            carried = work.carry_into_module(module)
        except Conflict as conflict:
            last = curriculum.builders(module)[-1]
            advice = f"Give it the form that {last.label} has, then: {GO_ON}"
            yield Stopped(module.name, conflict.name, advice, conflict.forms)
            ended = False
            continue
        if carried:
            yield Carried(module.name, carried)
    if ended and not dry:
        (curriculum.root / PLACE).unlink(missing_ok=True)
    elif not dry:
        place = {
            "step": str(step.number),
            "revision": work.commit,
            "mended": [str(number) for number in mended],
            "stopped": {str(each.number): each.source.text for each in stopped},
        }
        (curriculum.root / PLACE).write_text(json.dumps(place), encoding="utf-8")


def resume(curriculum: Curriculum):
    """Go on after a stop: the changes go the same way again, and this time past the steps that were
    mended. Where nothing was, the stop is the same again.

    Raises:
        CurriculumError: nothing has stopped.
    """
    try:
        place = json.loads((curriculum.root / PLACE).read_text(encoding="utf-8"))
        step, revision, stopped = place["step"], place["revision"], place["stopped"]
        mended = [Number.parse(each) for each in place["mended"]]
        mended += [
            each.number
            for each in curriculum.steps
            if stopped.get(str(each.number), each.source.text) != each.source.text
        ]
    except FileNotFoundError:
        raise CurriculumError("No propagate has stopped: there is nothing to go on with.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CurriculumError(f"{PLACE} cannot be read: {error!r}. Remove it.") from None
    return propagate(curriculum, step, revision, mended=mended)


class _Work:
    """What has changed so far, and the way from one step to the next."""

    def __init__(self, curriculum: Curriculum, revision: str, dry: bool):
        self.curriculum, self.revision, self.dry = curriculum, revision, dry
        self.changes: dict[Number, _Change] = {}
        # The last change of each definition that the step after it does not hold.
        self.asleep: dict[str, _Change] = {}

    def in_git(self, step: Step) -> Source:
        """A step as the revision has it."""
        name = step.path.relative_to(self.curriculum.root).as_posix()
        return Source(step.path, text=self._git("show", f"{self.revision}:./{name}", name=name))

    @cached_property
    def commit(self) -> str:
        return self._git("rev-parse", self.revision).strip()

    @cached_property
    def edited(self) -> set[str]:
        """The files of steps that differ from the revision."""
        found = self._git("diff", "--name-only", "--relative", self.revision, "--", "steps")
        return set(found.splitlines())

    def _git(self, *command, name="the change"):
        try:
            done = subprocess.run(
                ["git", "-C", str(self.curriculum.root), *command], capture_output=True, text=True
            )
        except FileNotFoundError:
            message = "propagate compares with git's HEAD, and there is no git."
            raise CurriculumError(message) from None
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["git failed"])[0]
            raise CurriculumError(f"{name} cannot be read from {self.revision}: {reason}")
        return done.stdout

    def carry(self, later: Step, mended: bool = False, guess: bool = False) -> list[str]:
        """Carry what changed into one step; the names of what changes there."""
        parts = self._arriving(later)
        if not parts:
            return []
        name = later.path.relative_to(self.curriculum.root).as_posix()
        new, carried = later.source, []
        if not mended:
            for change, names, whole in parts:
                new, more = change.into(new, names, whole, guess)
                carried += more
        if new is not later.source and not self.dry:
            later.path.write_text(new.text, encoding="utf-8")
        old = self.in_git(later) if name in self.edited else later.source
        if old.text != new.text:
            known = carried if old is later.source else None
            self.changes[later.number] = _Change(old, new, known)
        return carried

    def _arriving(self, later: Step) -> list[tuple[_Change, dict[str, str], bool]]:
        """What a step takes: a change, {name: its name there}, and whether the rest comes too."""
        before = self.curriculum.before(later)
        change = self.changes.get(before.number) if before else None
        found = []
        if change:
            others = change.new.top_level.keys() - change.tops if change.has_rest else ()
            taken = {
                name
                for name in (*change.tops, *others)
                if find(later, heir(name, later.renames))
                and not self._is_another(change, name, later)
            }
            if taken:
                names = {name: heir(name, later.renames) for name in change.parts_of(taken)}
                found.append((change, names, True))
            self.asleep |= dict.fromkeys(change.tops - taken, change)
        for name, last in self.asleep.items():
            definition = find(later, name)
            if not definition or before and find(before, name):
                continue
            earlier = self.curriculum.resumed_from(name, later)
            resumed = self.changes.get(earlier.number) if earlier else None
            former = last.base.definitions.get(name)
            if not resumed and former and former.text == definition.text:
                resumed = last
            if resumed:
                found.append((resumed, resumed.parts_of([name]), False))
        return found

    def _is_another(self, change, name, later):
        """Whether a step uses the name for another thing, since its module is finished."""
        if name not in change.base.definitions:
            return False
        here, before = heir(name, later.renames), self.curriculum.before(later)
        forms = [each.definitions[name].text for each in (change.base, change.new)]
        if find(later, here).text in forms:
            return False
        built = self.curriculum.built_by(before)
        return any(each.finished == before.number and find(each, here) for each in built)

    def carry_into_module(self, module: Module) -> list[str]:
        builders = self.curriculum.builders(module)
        if not any(step.number in self.changes for step in builders):
            return []
        by_step: dict[Number, list[str]] = {}
        for name in module.source.top_level:
            holder = next((step for step in reversed(builders) if find(step, name)), None)
            if holder and holder.number in self.changes:
                by_step.setdefault(holder.number, []).append(name)
        new, carried = module.source, []
        for number, names in by_step.items():
            change = self.changes[number]
            new, more = change.into(new, change.parts_of(names))
            carried += more
        if carried and not self.dry:
            module.path.write_text(new.text, encoding="utf-8")
        return carried


class _Change:
    """The change between two versions of a framework, ready to be carried into other files.

    `carried` names what is known to differ, so that nobody has to look for it.
    """

    def __init__(self, base: Source, new: Source, carried: list[str] | None = None):
        self.base, self.new, self.carried = base, new, carried

    @cached_property
    def leaves(self) -> list[str]:
        """The functions, methods and values that differ."""
        return self._differing(self.base, classes=False)

    @cached_property
    def with_leaves(self) -> Source:
        """With the leaves replaced, only the classes around them are left to differ, ..."""
        return _replaced(self.base, {name: self.new.definitions[name].text for name in self.leaves})

    @cached_property
    def classes(self) -> list[str]:
        if self.carried is not None and all(name in self.leaves for name in self.carried):
            return []
        return self._differing(self.with_leaves, classes=True)

    @cached_property
    def with_classes(self) -> Source:
        """... and then what lies between the definitions."""
        texts = {name: self.new.definitions[name].text for name in self.classes}
        return _replaced(self.with_leaves, texts)

    @property
    def names(self) -> list[str]:
        return self.leaves + self.classes

    @cached_property
    def has_rest(self) -> bool:
        """Whether something differs that is not a definition of both versions."""
        if self.carried is not None:
            return REST in self.carried
        return _stripped(self.with_classes.framework) != _stripped(self.new.framework)

    @cached_property
    def tops(self) -> set[str]:
        """The definitions at the margin that changed, or of which a part did."""
        return {self.new.definitions[name].owner or name for name in self.names}

    def parts_of(self, names: Iterable[str]) -> dict[str, str]:
        """Definitions with their members, under the names that they have here."""
        items = self.new.definitions.items()
        return {name: name for name, each in items if (each.owner or name) in names}

    def into(
        self, target: Source, names: dict[str, str], whole: bool = False, guess: bool = False
    ) -> tuple[Source, list[str]]:
        """A target with the change in it, and the names of what changed there.

        `names` are those of the definitions that take it: {name here: name there}.
        """
        merged, carried = self._carry(self.base, self.leaves, target, names, guess)
        if self.classes:
            merged, more = self._carry(self.with_leaves, self.classes, merged, names, guess)
            carried += more
        if whole and self.has_rest:
            texts = ["\n".join(each.framework) for each in (self.with_classes, merged, self.new)]
            text = merge(*texts, "what stands between its definitions", guess)
            if text != texts[1]:
                merged = _with_framework(merged, text)
                carried.append(REST)
        return merged, carried

    def _carry(self, base, changed, target, names, guess):
        replaced = {}
        for name in changed:
            if ours := target.definitions.get(names.get(name, "")):
                texts = base.definitions[name].text, ours.text, self.new.definitions[name].text
                text = merge(*texts, name, guess)
                if text != ours.text:
                    replaced[names[name]] = text
        return _replaced(target, replaced), list(replaced)

    def _differing(self, base, classes):
        new = self.new
        return [
            name
            for name, definition in base.definitions.items()
            if name in new.definitions
            and (definition.kind == "class") == classes
            and definition.text != new.definitions[name].text
        ]


def _replaced(source: Source, texts: dict[str, str]) -> Source:
    """A source with other texts for some definitions."""
    if not texts:
        return source
    lines = list(source.lines)
    # From the last one upwards, so that the line numbers above stay true.
    for name in sorted(texts, key=lambda name: source.definitions[name].first, reverse=True):
        definition = source.definitions[name]
        lines[definition.first - 1 : definition.last] = texts[name].splitlines()
    return Source(source.path, "\n".join(lines) + "\n", source.package)


def _with_framework(source: Source, text: str) -> Source:
    lines = list(source.lines)
    lines[source.framework_first - 1 : source.demo_first - 1] = text.split("\n")
    return Source(source.path, "\n".join(lines) + "\n", source.package)


def _stripped(lines):
    return "\n".join(lines).strip()
