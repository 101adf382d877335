"""Checks of a step against the step before: how much it adds, and what it drops."""

from __future__ import annotations

from .added import added_lines
from .complaint import Complaint
from .curriculum import Curriculum, Step
from .kind_checks import BUDGET
from .names import heir


def check_difference(curriculum: Curriculum, step: Step):
    """Against the step before: within the budget, in the same order, nothing dropped in silence."""
    before = curriculum.before(step)
    if before is None:
        return
    added = added_lines(curriculum, step)
    budget = step.budget or BUDGET[step.kind]
    if len(added) > budget:
        yield Complaint(
            step.label,
            f"adds {len(added)} lines of framework code to {before.label}; "
            f"it has {budget}, being a {step.kind}",
            "divide it",
        )
    old, new = before.source, step.source
    if list(old.code.values()) == list(new.code.values()):
        yield Complaint(step.label, f"changes no line of code of {before.label}")
    yield from _undeclared_removals(curriculum, before, step)
    yield from _false_declarations(before, step)
    replaced = curriculum.replaced(step)
    both = [name for name in new.definitions if name in old.definitions]
    kept = [name for name in both if name.partition(".")[0] not in replaced]
    common = [name for name in old.definitions if name in kept]
    if common != kept:
        moved = next(new for old, new in zip(common, kept, strict=True) if old != new)
        yield Complaint(
            f"{step.label}, line {new.definitions[moved].first}",
            f"{moved} has another place than in {before.label}",
            "keep the order, so that the difference stays the lesson",
        )


def _undeclared_removals(curriculum, before, step):
    if "*" in step.removes:  # a file that begins new
        return
    old, new = before.source.definitions, step.source.definitions
    for name, definition in old.items():
        if name in new or definition.owner and definition.owner not in new:
            continue  # a class that goes takes its members along; it is named once
        renamed = step.renames.get(name)
        if renamed in new or name in step.removes:
            continue
        if curriculum.module_of(name, step):
            continue
        yield Complaint(
            step.label,
            f"drops {name} of {before.label} in silence",
            f"name it under [step.{step.number}] in curriculum.toml, or keep it",
        )
    for member in old.values():
        if member.owner not in step.renames or member.name in step.removes:
            continue
        if (renamed := heir(member.name, step.renames)) not in new:
            yield Complaint(
                step.label,
                f"renames {member.owner} and drops {member.name} in silence",
                f"name it under [step.{step.number}] removes, or define {renamed}",
            )


def _false_declarations(before, step):
    old, new = before.source.definitions, step.source.definitions
    for name in [*step.removes, *step.renames]:
        if name == "*":
            continue
        if name not in old:
            problem = f"{before.label} has no {name}"
        elif name in new:
            problem = f"{step.label} still has {name}"
        else:
            continue
        yield Complaint(f"curriculum.toml, [step.{step.number}]", problem, "take it out")
    for name in step.unrun:
        if name not in new:
            where = f"curriculum.toml, [step.{step.number}]"
            yield Complaint(where, f"{step.label} has no {name}", "take it out of `unrun`")
    for renamed in step.renames.values():
        if renamed not in new:
            yield Complaint(
                f"curriculum.toml, [step.{step.number}]", f"{step.label} has no {renamed}"
            )
    if (step.removes or step.renames or step.budget or step.unrun) and not step.why:
        yield Complaint(f"curriculum.toml, [step.{step.number}]", "says no `why`")
