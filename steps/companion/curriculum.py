"""The curriculum: which steps there are, of what kind, and which of them build which module."""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import cached_property
from pathlib import Path

from .lookup import find
from .model import CurriculumError, Module, Run, Stage, Step, fault_of
from .names import nearest
from .number import Number, listed
from .roads import Roads

ALIKE = 0.7  # of two texts of one name: so much of them is the same


class Curriculum:
    """All steps that exist below `root`, in the order of reading, and the modules they build."""

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
        known = {"stage", "run", "catalogues", "modules", "contract", "step"}
        self._refuse_unknown(table, known, "")
        self.stages = [self._stage(entry) for entry in table.get("stage", [])]
        self._require_contiguous_stages()
        # The names that are the steps' own programs, and the steps that the contract leaves out.
        self.contract = table.get("contract", {})
        self._refuse_unknown(self.contract, {"own", "excepted"}, "[contract]")
        self.runs: dict[str, Run] = {}
        for entry in table.get("run", []):
            run = self._run(entry)
            if run.name in self.runs:
                raise CurriculumError(f"steps/curriculum.toml: the run {run.name} is listed twice")
            self.runs[run.name] = run
        self.catalogues = {self._number(each) for each in table.get("catalogues", [])}
        self.origins: dict[Number, Number] = {}  # what `from` says
        self.entries = dict(self._entry(*item) for item in table.get("step", {}).items())
        self.named = {"catalogues": self.catalogues, "[step]": set(self.entries)}
        for number in set.union(*self.named.values()):
            if not number.run and not any(number in stage for stage in self.stages):
                raise CurriculumError(f"steps/curriculum.toml: step {number.short} is in no stage")
        numbers = [number for number, _ in self._files()]
        self.roads = Roads(numbers, self.runs, self.origins)
        self.modules = [
            self._module(name, builders) for name, builders in table.get("modules", {}).items()
        ]

    def _files(self) -> list[tuple[Number, Path]]:
        """The files that are named as steps are, with their numbers."""
        found = []
        for path in self.folder.glob("step*.py"):
            if re.fullmatch(r"step\d\d+[a-z]?\.py", path.name):
                found.append((Number.parse(path.name), path))
        for path in (self.folder / "depth").glob("*.py"):
            match = re.fullmatch(r"([a-z]+)\d\d\.py", path.name)
            if match and match[1] in self.runs:
                found.append((Number.parse(path.name), path))
        return found

    @cached_property
    def steps(self) -> list[Step]:
        """The steps whose files exist, in the order of reading: the main road, then each run."""
        paths = dict(self._files())
        return [self._step(number, paths[number]) for number in self.roads.numbers]

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
        """The steps that "14", "54" (all its parts), "54a", "54a-55", "conv" (the whole run),
        "conv07" or "conv03-conv07" name; all without text."""
        if text is None:
            return self.steps
        first, dash, last = text.partition("-")
        ends = [self._selected(each.strip(), text) for each in (first, last if dash else first)]
        begin, end = ends[0][0], ends[1][-1]
        if bool(begin.run) != bool(end.run):
            raise CurriculumError(
                f"{text} goes from one road to the other. Ask for each by itself: "
                f"{first.strip()}, then {last.strip()}."
            )
        positions = [self.steps.index(step) for step in (begin, end)]
        if positions[1] < positions[0]:
            raise CurriculumError(
                f"{text} counts down. Write {end.number.short}-{begin.number.short}."
            )
        return self.steps[positions[0] : positions[1] + 1]

    def _selected(self, name, text):
        """The steps that one end of a selection names."""
        if found := [step for step in self.steps if step.run and step.run.name == name.lower()]:
            return found
        try:
            return self._named(Number.parse(name))
        except ValueError:
            message = f"{text!r} does not name steps. Write 14, 54a or 11-18."
            if name.isalpha() and self.runs:
                message = f"{text!r} does not name steps." + nearest(name, self.runs)
            raise CurriculumError(message) from None

    def _named(self, name: object) -> list[Step]:
        """The step of that number, or all parts of a topic."""
        try:
            number = Number.parse(name)
        except ValueError:
            message = f"{name!r} does not name a step. Write 14 or 54a."
            raise CurriculumError(message) from None
        if not self.steps:
            raise CurriculumError("There are no steps yet.")
        if number in self.by_number:
            return [self.by_number[number]]
        if number.run and number.run not in self.runs:
            near = nearest(number.run, self.runs) or " Write 14 or 54a."
            raise CurriculumError(f"There is no step {number.short}." + near)
        road = [step for step in self.steps if step.number.run == number.run]
        parts = [step for step in road if step.number.topic == number.topic and not number.run]
        if parts and not number.part:
            return parts
        if parts:
            have = listed([step.number for step in parts])
            raise CurriculumError(f"There is no step {number.short}, but {have}.")
        key = self.roads.key
        below = [step.number for step in road if key(step.number) < key(number)][-1:]
        above = [step.number for step in road if key(step.number) > key(number)][:1]
        yet = " yet" if number.run or any(number in stage for stage in self.stages) else ""
        near = below + above
        verb = "nearest are" if len(near) > 1 else "nearest is"
        hint = f" The {verb} {listed(near)}." if near else ""
        raise CurriculumError(f"There is no step {number.short}{yet}." + hint)

    def before(self, step: Step) -> Step | None:
        """The step that a step is compared with: the one that `from` names, or else the nearest
        one below it on the main road or in its run."""
        former = self.roads.before[step.number]
        return former and self.by_number[former]

    def chain(self, step: Step) -> list[Step]:
        """The steps that a step stands on, from the first of all to the step itself."""
        return [self.by_number[number] for number in self.roads.chain(step.number)]

    def later(self, step: Step) -> list[Step]:
        """The steps that descend from a step, in all branches, each after the one before it."""
        return [self.by_number[number] for number in self.roads.later(step.number)]

    def groups(self, steps: list[Step]) -> list[tuple[Stage | Run | None, list[Step]]]:
        """Steps by the stage of the main road, then by the run in depth, that they belong to."""
        found: dict[Stage | Run | None, list[Step]] = {}
        for step in steps:
            found.setdefault(step.run or step.stage, []).append(step)
        return list(found.items())

    def is_finished(self, module: Module, step: Step) -> bool:
        """Whether the last step that builds a module is read before a step, or is one that it
        stands on."""
        return self.roads.precedes(module.finished, step.number)

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
        finished = [module for module in self.modules if self.is_finished(module, step)]
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

        It is the last one before it that holds the definition and builds the same module, in a
        run that the step stands on or in another one.
        """
        before = self.before(step)
        numbers = {n for module in self.built_by(step) for n in module.builders}
        former = [
            n for n in numbers & self.by_number.keys() if n not in (step.number, before.number)
        ]
        former = [n for n in former if self.roads.precedes(n, step.number)]
        for number in reversed(self.roads.in_order(former)):
            found = find(self.by_number[number], name)
            if found and not found.owner:
                return self.by_number[number]
        return None

    def package_files(self) -> list[Path]:
        return sorted((self.root / "tinytorch").rglob("*.py"))

    def _step(self, number, path):
        run = self.runs.get(number.run)
        stage = run.stage if run else next((each for each in self.stages if number in each), None)
        kind = "catalogue" if number in self.catalogues else "lesson"
        return Step(number, path, stage, run, kind, **self.entries.get(number, {}))

    def _stage(self, entry):
        self._refuse_unknown(entry, {"number", "title", "first", "last"}, "[[stage]]")
        try:
            return Stage(**entry)
        except TypeError:
            raise CurriculumError(
                "steps/curriculum.toml: a [[stage]] needs number, title, first and last"
            ) from None

    def _run(self, entry):
        fields = ("name", "title", "beside", "stage")
        self._refuse_unknown(entry, fields, "[[run]]")
        if entry.keys() != set(fields):
            raise CurriculumError(
                "steps/curriculum.toml: a [[run]] needs name, title, beside and stage"
            )
        name, beside = entry["name"], self._number(entry["beside"])
        if not re.fullmatch(r"[a-z]+", str(name)) or name in ("step", "steps"):
            raise CurriculumError(
                f"steps/curriculum.toml: {name!r} cannot name a run; write lower-case letters"
            )
        if beside.run:
            raise CurriculumError(
                f"steps/curriculum.toml: the run {name} is beside {beside}, not on the main road"
            )
        for stage in self.stages:
            if stage.number == entry["stage"]:
                return Run(name, entry["title"], beside, stage)
        raise CurriculumError(
            f"steps/curriculum.toml: the run {name}: there is no stage {entry['stage']}"
        )

    def _module(self, name, builders):
        if not re.fullmatch(r"tinytorch/[\w/]+\.py", name):
            raise CurriculumError(
                f"steps/curriculum.toml: {name!r} is not a module; write tinytorch/folder/name.py"
            )
        numbers = [self._number(each) for each in builders]
        if not numbers or numbers != self.roads.in_order(numbers):
            raise CurriculumError(
                f"steps/curriculum.toml: the steps that build {name} must be in rising order"
            )
        return Module(name, self.root / name, tuple(numbers))

    def _number(self, value):
        """A number as curriculum.toml writes it: 14, "54a" or "conv07"."""
        try:
            number = Number.parse(value)
        except ValueError as error:
            raise CurriculumError(f"steps/curriculum.toml: {error}") from None
        if number.run and number.run not in self.runs:
            near = nearest(number.run, self.runs)
            raise CurriculumError(
                f"steps/curriculum.toml: {number} is of no run that is listed." + near
            )
        return number

    def _entry(self, key, entry):
        """[step.NN] as (NN, its entries), each of the type that it should have."""
        number = self._number(key)
        types = {"removes": list, "renames": dict, "why": str, "gradcheck": list}
        types |= {"budget": int, "unrun": list, "needs": str, "long": int}
        types |= {"varies": dict, "from": (str, int), "practice": list, "joins": list}
        self._refuse_unknown(entry, types, f"[step.{key}]")
        for name, value in entry.items():
            if not isinstance(value, types[name]):
                kind = getattr(types[name], "__name__", "step")
                raise CurriculumError(f"steps/curriculum.toml: [step.{key}] {name} is not a {kind}")
        if "from" in entry:
            self.origins[number] = self._number(entry["from"])
        entry = {name: value for name, value in entry.items() if name != "from"}
        if "joins" in entry:
            entry["joins"] = [self._number(each) for each in entry["joins"]]
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
