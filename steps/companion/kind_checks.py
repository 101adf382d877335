"""Checks of numbers and kinds: parts in order, few catalogues, and a reason for what is special."""

from __future__ import annotations

import re
from string import ascii_lowercase

from .complaint import Complaint
from .curriculum import Curriculum, Step

CATALOGUES = 1 / 5  # of all steps
BUDGET = {"lesson": 50, "catalogue": 150}
LONG_LESSON = 60  # lines of a lesson that cannot be divided


def check_numbers(curriculum: Curriculum):
    """The parts of a topic are a, b, c, ..., the steps of a run 01, 02, 03, ..., and each step
    belongs to a stage."""
    parts: dict[int, str] = {}
    for step in curriculum.steps:
        if step.run:
            continue
        parts[step.number.topic] = parts.get(step.number.topic, "") + (step.number.part or "-")
    for topic, letters in parts.items():
        if letters not in ("-", ascii_lowercase[: len(letters)]):
            names = ", ".join(f"{topic}{each}".strip("-") for each in letters)
            yield Complaint("steps", f"the parts of {topic} are {names}", "write a, b, c, ...")
    for run in curriculum.runs.values():
        numbers = [step.number for step in curriculum.steps if step.run == run]
        for expected, number in enumerate(numbers, 1):
            if number.topic != expected:
                how = "write 01, 02, 03, ..."
                yield Complaint("steps", f"{number} is step {expected} of its run", how)
                break
    for step in curriculum.steps:
        if step.stage is None:
            yield Complaint(step.label, "is in no stage", "add the stage to curriculum.toml")
    for path in sorted(curriculum.folder.glob("step*.py")):
        if not re.fullmatch(r"step\d\d+[a-z]?\.py", path.name):
            yield Complaint(f"steps/{path.name}", "is not named stepNN.py or stepNNa.py")
    known = {step.path for step in curriculum.steps}
    for path in sorted((curriculum.folder / "depth").glob("*.py")):
        if path not in known and path.name != "tinytorch.py":
            how = "name it after a run of curriculum.toml and two digits: conv07.py"
            yield Complaint(f"steps/depth/{path.name}", "is no step of a run", how)


def check_kinds(curriculum: Curriculum):
    """What curriculum.toml names is there, and at most one step in five is a catalogue."""
    named = curriculum.named | {module.name: module.builders for module in curriculum.modules}
    named |= {f"run {run.name}, beside": [run.beside] for run in curriculum.runs.values()}
    for name, numbers in named.items():
        for number in sorted(set(numbers) - curriculum.by_number.keys(), key=curriculum.roads.key):
            yield Complaint(f"curriculum.toml, {name}", f"there is no step {number}", "take it out")
    steps = curriculum.steps
    catalogues = [step for step in steps if step.kind == "catalogue"]
    if len(catalogues) > max(1, len(steps) * CATALOGUES):
        yield Complaint(
            "curriculum.toml, catalogues",
            f"{len(catalogues)} of {len(steps)} steps are catalogues",
            "at most one in five is allowed",
        )


def check_kind(curriculum: Curriculum, step: Step):
    """The title says what is a catalogue, and a lesson that is longer than others says why."""
    says = step.title.startswith("Catalogue: ")
    where = f"curriculum.toml, [step.{step.number}]"
    if says != (step.kind == "catalogue"):
        how = "begin the title with `Catalogue: ` and name it under `catalogues`, or do neither"
        yield Complaint(f"{step.label}, line 1", f"is a {step.kind}", how)
    if step.kind == "lesson" and step.budget > LONG_LESSON:
        yield Complaint(where, f"a budget of {step.budget}", f"at most {LONG_LESSON} for a lesson")
    if step.kind != "lesson" and step.budget:
        yield Complaint(where, f"a {step.kind} has {BUDGET[step.kind]} lines", "take it out")
