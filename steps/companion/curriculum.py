"""The curriculum: which steps there are, of what kind, and which of them build which module."""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from .lookup import find
from .model import CurriculumError, Module, Stage, Step, fault_of
from .names import nearest
from .number import Number, listed

ALIKE = 0.7  # of two texts of one name: so much of them is the same


class Curriculum:
    """All steps that exist below `root`, in order, and the modules of the package they build."""

    def __init__(self, root: Path):
        self.root = Path(root).resolve()
        self.folder = self.root / "steps"
        self.file = self.folder / "curriculum.toml"
        try:
            table = tomllib.loads(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CurriculumError(f"{self.file} is missing") from None
        except tomllib.TOMLDecodeError as error:
            raise CurriculumError(f"steps/curriculum.toml: {error}") from None
        known = {"stage", "catalogues", "modules", "step"}
        self._refuse_unknown(table, known, "")
        self.stages = [self._stage(entry) for entry in table.get("stage", [])]
        self._require_contiguous_stages()
        self.catalogues = {self._number(each) for each in table.get("catalogues", [])}
        self.entries = dict(self._entry(*item) for item in table.get("step", {}).items())
        self.named = {"catalogues": self.catalogues, "[step]": set(self.entries)}
        for number in sorted(set.union(*self.named.values())):
            if not any(number in stage for stage in self.stages):
                raise CurriculumError(f"steps/curriculum.toml: step {number.short} is in no stage")
        self.modules = [
            self._module(name, builders) for name, builders in table.get("modules", {}).items()
        ]

    @cached_property
    def steps(self) -> list[Step]:
        """The steps whose files exist, in order of their numbers."""
        found = []
        for path in self.folder.glob("step*.py"):
            if re.fullmatch(r"step\d\d+[a-z]?\.py", path.name):
                found.append(self._step(Number.parse(path.name), path))
        return sorted(found, key=lambda step: step.number)

    @cached_property
    def readable(self) -> list[Step]:
        """The steps that parse. One that is being written may not."""
        return [step for step in self.steps if not fault_of(step)]

    @property
    def built_modules(self) -> list[Module]:
        """The modules whose files are there."""
        return [module for module in self.modules if module.path.exists()]

    @cached_property
    def renaming(self) -> list[Step]:
        """The steps that rename definitions."""
        return [step for step in self.steps if step.renames]

    @cached_property
    def by_number(self) -> dict[Number, Step]:
        return {step.number: step for step in self.steps}

    def step(self, name: object) -> Step:
        """The one step that a number or a text names: 7, "54a", "step54a.py"."""
        steps = self._named(name)
        if len(steps) > 1:
            parts = listed([step.number for step in steps], "or")
            raise CurriculumError(f"Step {steps[0].number.topic} has parts. Write {parts}.")
        return steps[0]

    def select(self, text: str | None) -> list[Step]:
        """The steps that "14", "54" (all its parts), "54a" or "54a-55" name; all without text."""
        if text is None:
            return self.steps
        first, dash, last = text.partition("-")
        try:
            ends = [Number.parse(each.strip()) for each in (first, last if dash else first)]
        except ValueError:
            message = f"{text!r} does not name steps. Write 14, 54a or 11-18."
            raise CurriculumError(message) from None
        begin, end = self._named(ends[0])[0].number, self._named(ends[1])[-1].number
        if end < begin:
            raise CurriculumError(f"{text} counts down. Write {end.short}-{begin.short}.")
        return [step for step in self.steps if begin <= step.number <= end]

    def _named(self, name: object) -> list[Step]:
        """The step of that number, or all parts of a topic."""
        try:
            number = Number.parse(name)
        except ValueError:
            message = f"{name!r} does not name a step. Write 14 or 54a."
            raise CurriculumError(message) from None
        if not self.steps:
            raise CurriculumError("There are no steps yet.")
        parts = [step for step in self.steps if step.number.topic == number.topic]
        if found := [step for step in parts if number.part in ("", step.number.part)]:
            return found
        if parts:
            have = listed([step.number for step in parts])
            raise CurriculumError(f"There is no step {number.short}, but {have}.")
        below = [step.number for step in self.steps if step.number < number][-1:]
        above = [step.number for step in self.steps if step.number > number][:1]
        yet = " yet" if any(number in stage for stage in self.stages) else ""
        near = below + above
        verb = "nearest are" if len(near) > 1 else "nearest is"
        raise CurriculumError(f"There is no step {number.short}{yet}. The {verb} {listed(near)}.")

    def before(self, step: Step) -> Step | None:
        """The step that a step is compared with: the nearest one below it."""
        return self._before.get(step.number)

    @cached_property
    def _before(self) -> dict[Number, Step]:
        return {step.number: below for below, step in pairwise(self.steps)}

    def builders(self, module: Module) -> list[Step]:
        """The steps that build a module, as far as they exist."""
        return [self.by_number[n] for n in module.builders if n in self.by_number]

    def built_by(self, step: Step) -> list[Module]:
        return [module for module in self.modules if step.number in module.builders]

    def module_of(self, name: str, step: Step) -> Module | None:
        """The module, finished before a step, to which a definition has moved.

        A name may stand in several: one that the step before built comes first. In a module that
        it did not build, only a text like its own is the same thing.
        """
        before = self.before(step)
        former = before and before.number
        mine = find(before, name) if before else None
        finished = [module for module in self.modules if module.finished < step.number]
        for module in sorted(finished, key=lambda module: former not in module.builders):
            holders = [module] if module.path.exists() else self.builders(module)
            found = [each for each in (find(holder, name) for holder in holders) if each]
            built = former in module.builders or mine is None
            if any(built or _alike(mine.text, each.text) for each in found):
                return module
        return None

    def replaced(self, step: Step) -> set[str]:
        """The names that a step uses for another thing than the step before, whose own module is
        finished: `save` of the package's files, then `save` of safetensors."""
        before = self.before(step)
        old, new = before.source.top_level if before else {}, step.source.top_level
        found = set()
        for name in old.keys() & new.keys():
            if old[name].text != new[name].text and (module := self.module_of(name, step)):
                if before.number in module.builders:
                    found.add(name)
        return found

    def resumed_from(self, name: str, step: Step) -> Step | None:
        """The step from which `step` takes a definition up again, after steps without it.

        It is the last one that holds the definition and builds the same module.
        """
        before = self.before(step)
        numbers = {n for module in self.built_by(step) for n in module.builders}
        for number in sorted(numbers & self.by_number.keys(), reverse=True):
            if before is not None and number < before.number:
                found = find(self.by_number[number], name)
                if found and not found.owner:
                    return self.by_number[number]
        return None

    def package_files(self) -> list[Path]:
        return sorted((self.root / "tinytorch").rglob("*.py"))

    def _step(self, number, path):
        stage = next((stage for stage in self.stages if number in stage), None)
        kind = "catalogue" if number in self.catalogues else "lesson"
        return Step(number, path, stage, kind, **self.entries.get(number, {}))

    def _stage(self, entry):
        self._refuse_unknown(entry, {"number", "title", "first", "last"}, "[[stage]]")
        try:
            return Stage(**entry)
        except TypeError:
            raise CurriculumError(
                "steps/curriculum.toml: a [[stage]] needs number, title, first and last"
            ) from None

    def _module(self, name, builders):
        if not re.fullmatch(r"tinytorch/[\w/]+\.py", name):
            raise CurriculumError(
                f"steps/curriculum.toml: {name!r} is not a module; write tinytorch/folder/name.py"
            )
        numbers = [self._number(each) for each in builders]
        if not numbers or numbers != sorted(set(numbers)):
            raise CurriculumError(
                f"steps/curriculum.toml: the steps that build {name} must be in rising order"
            )
        return Module(name, self.root / name, tuple(numbers))

    @staticmethod
    def _number(value):
        """A number as curriculum.toml writes it: 14 or "54a"."""
        try:
            return Number.parse(value)
        except ValueError as error:
            raise CurriculumError(f"steps/curriculum.toml: {error}") from None

    def _entry(self, key, entry):
        """[step.NN] as (NN, its entries), each of the type that it should have."""
        number = self._number(key)
        types = {"removes": list, "renames": dict, "why": str, "gradcheck": list}
        types |= {"budget": int, "unrun": list, "needs": str, "varies": dict}
        self._refuse_unknown(entry, types, f"[step.{key}]")
        for name, value in entry.items():
            if not isinstance(value, types[name]):
                kind = types[name].__name__
                raise CurriculumError(f"steps/curriculum.toml: [step.{key}] {name} is not a {kind}")
        return number, entry

    def _require_contiguous_stages(self):
        expected = 1
        for stage in self.stages:
            if stage.first != expected or stage.last < stage.first:
                raise CurriculumError(
                    f"steps/curriculum.toml: stage {stage.number} must begin at step {expected}"
                )
            expected = stage.last + 1

    @staticmethod
    def _refuse_unknown(entry, known, where):
        for key in entry:
            if key not in known:
                place = f"{where} " if where else ""
                raise CurriculumError(
                    f"steps/curriculum.toml: {place}{key!r} means nothing here."
                    + nearest(key, known)
                )


def _alike(one: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio() >= ALIKE
