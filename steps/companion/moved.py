"""Where steps went that had another number: `steps/moved.tsv`, present number and new name."""

from __future__ import annotations

from .curriculum import Curriculum, CurriculumError
from .number import Number

FILE = "moved.tsv"  # in the folder of the steps; a line: 84a, a tab, conv01


def table_of(curriculum: Curriculum) -> dict[Number, Number]:
    """Where each step went that was moved or merged into another one.

    Raises:
        CurriculumError: a line of the file is not two names with a tab between.
    """
    steps = curriculum.by_number
    return {
        old: new
        for old, new in pairs_of(curriculum.folder / FILE).items()
        if new in steps and (new.run or old not in steps)
    }


def pairs_of(path) -> dict[Number, Number]:
    """The pairs of a table: a line holds two names and a tab."""
    found: dict[Number, Number] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return found
    for position, line in enumerate(lines, 1):
        try:
            old, new = map(Number.parse, line.split("\t"))
        except ValueError:
            raise CurriculumError(
                f"{path.name}, line {position}: {line!r} is not two steps with a tab between"
            ) from None
        if old in found:
            raise CurriculumError(f"{path.name}, line {position}: step {old.short} stands twice")
        found[old] = new
    return found


def answer(curriculum: Curriculum, name: str) -> str:
    """Where a step went that had this number, or each part of a topic.

    Raises:
        CurriculumError: no step of that number was moved.
    """
    try:
        number = Number.parse(name)
    except ValueError:
        raise CurriculumError(f"{name!r} does not name a step. Write 84a.") from None
    table = table_of(curriculum)
    asked = [old for old in table if old == number]
    if not number.part and not number.run:
        asked = asked or [old for old in table if old.topic == number.topic]
    if not asked:
        raise CurriculumError(
            f"No step {number.short} was moved." + _still_there(curriculum, number)
        )
    return "\n".join(told(old, table[old]) + f": steps/{table[old].file}" for old in asked)


def told(old: Number, new: Number) -> str:
    """ "step 84a is now conv01, in depth"."""
    return f"step {old.short} is now {new.short}" + (", in depth" if new.run else "")


def place_told(curriculum: Curriculum, old: Number, new: Number) -> str:
    """What a reader is told who was at a step that was moved: where it is, and how to go on."""
    table, key = table_of(curriculum), curriculum.roads.key
    main = [step.number for step in curriculum.steps if not step.run]
    if new.run:  # all that was moved into depth came after what the main road keeps
        first = min((each for each in table if table[each].run), key=key)
        ahead = [number for number in main if key(number) >= key(first)]
    else:
        ahead = [number for number in main if key(number) > key(new)]
    if not ahead:
        return f"Your place: {told(old, new)}; the main road ends at {main[-1].short} so far."
    return (
        f"Your place: {told(old, new)}; the main road goes on at {ahead[0].short}. "
        f"Set your place: python -m steps next --at {ahead[0].short}"
    )


def _still_there(curriculum, number):
    return f" It is {curriculum.by_number[number].file}." if number in curriculum.by_number else ""
