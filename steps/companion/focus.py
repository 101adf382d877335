"""What a step changes about one definition."""

from __future__ import annotations

from .curriculum import CurriculumError
from .difference import Difference, shown
from .hunks import hunks, trimmed
from .names import heir, nearest, with_renames
from .paint import paint
from .source import Source


def changed_definition(difference: Difference, name: str) -> str:
    """The difference of one definition: a function, a class with all its members, or a member.

    Raises:
        CurriculumError: the step does not change it. The text names what it changes.
    """
    step = difference.step
    if name not in step.source.definitions:
        name = heir(name, step.renames)
    old, former = former_form(difference, name)
    new = step.source if name in step.source.definitions else None
    if new is None and (module := difference.moved.get(name.partition(".")[0])):
        raise CurriculumError(f"{name} left the step for {module}, which is finished.")
    if old is None and new is None:
        raise CurriculumError(
            f"Step {step.number.short} has no {name}." + _others(difference, name)
        )
    found = hunks(
        trimmed(_lines(old, former, step.renames)) if old else [],
        trimmed(_lines(new, name, {})) if new else [],
    )
    if not found:
        raise CurriculumError(
            f"Step {step.number.short} leaves {name} as it was." + _others(difference, name)
        )
    root = difference.curriculum.root
    files = " -> ".join(each.path.relative_to(root).as_posix() for each in (old, new) if each)
    note = "" if old and new else "  (new)" if new else "  (removed)"
    return "\n".join([paint(f"  {name}{note}, {files}", "bold"), *shown(found)])


def former_form(difference: Difference, name: str) -> tuple[Source | None, str]:
    """The source that holds the form before, and what the definition is called there."""
    formers = {new: old for old, new in difference.step.renames.items()}
    former = heir(name, formers)
    if earlier := difference.resumed.get(name.partition(".")[0]):
        return (earlier.source, name) if name in earlier.source.definitions else (None, name)
    return (difference.old, former) if former in difference.old_definitions else (None, former)


def _lines(source: Source, name: str, renames: dict[str, str]) -> list[tuple[int, str]]:
    span = source.definitions[name].span
    return [(number, with_renames(source.lines[number - 1], renames)) for number in span]


def _others(difference: Difference, name: str) -> str:
    """The names like this one that the step changes, or else all that it changes."""
    names = [change.name for change in difference.changes]
    if not names:
        return " It changes no definition."
    return (
        nearest(name, names, least=0.6)
        or f" It changes {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}."
    )
