"""Practice: the reader writes what a step writes, in a file of their own, and the step's promises
check it."""

from __future__ import annotations

import ast
import itertools
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .curriculum import Curriculum, CurriculumError, Step
from .difference import shown
from .exercise import HOLE, Exercise, exercise_of
from .hunks import hunks, trimmed
from .number import Number
from .paint import paint
from .promises import Outcome, run_step
from .source import Source, SourceError

FOLDER = "practice"  # beside README.md; git ignores it
PROGRESS = f"{FOLDER}/.progress"  # {"14": {"hints": 2, "solved": true}}
TIMEOUT = 60  # seconds after which the reader's file is stopped
COMMAND = "python -m steps practice"


@dataclass
class Verdict:
    """What the check of a file found, in lines to read."""

    ok: bool
    lines: list[str] = field(default_factory=list)
    seconds: float = 0.0  # that it ran


def asked_exercise(curriculum: Curriculum, step: Step) -> Exercise:
    """The exercise of a step.

    Raises:
        CurriculumError: the step has none. The text offers the next one.
    """
    if found := exercise_of(curriculum, step):
        return found
    later = curriculum.steps[curriculum.steps.index(step) + 1 :]
    following = next((each for each in later if exercise_of(curriculum, each)), None)
    offer = f" The next: {COMMAND} {following.number.short}" if following else ""
    raise CurriculumError(f"Step {step.number.short} leaves no function to write." + offer)


def file_of(exercise: Exercise, ending: str = "") -> str:
    """ "practice/step14.py", and with an ending "practice/step14_solution.py"."""
    return f"{FOLDER}/{exercise.step.number.file.removesuffix('.py')}{ending}.py"


def write_start(curriculum: Curriculum, exercise: Exercise, again: bool) -> Iterator[str]:
    """Write the file to begin with, unless there is one that was worked on.

    Raises:
        CurriculumError: the demo keeps its promises without a solution.
    """
    name, start = file_of(exercise), exercise.start()
    path = curriculum.root / name
    if path.exists() and path.read_bytes() != start.encode():
        if not again:
            yield f"{name} is there and stays as it is; with --again it begins anew."
            yield from _to_do(exercise, _parsed(path))
            return
        yield f"What you had is now {_set_aside(curriculum, exercise)}."
    _write(curriculum, exercise, name, start)
    if _run(curriculum, exercise, path).ok:
        path.unlink()
        number = exercise.step.number.short
        raise CurriculumError(f"The demo of step {number} does not show whether it is solved.")
    yield f"{paint(exercise.step.source.title, 'bold')}\nwrote {name}"
    yield from _to_do(exercise, _parsed(path))


def _set_aside(curriculum, exercise):
    """Rename the reader's file to one that is not there: its name."""
    for count in itertools.count(1):
        kept = file_of(exercise, f"_before{count}")
        if not (curriculum.root / kept).exists():
            (curriculum.root / file_of(exercise)).rename(curriculum.root / kept)
            return kept


def _write(curriculum, exercise, name, text):
    """Write a file of the exercise, and beside it what `import tinytorch` finds."""
    path = curriculum.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    shims = ("tinytorch.py", "depth/tinytorch.py")
    if "from tinytorch." not in text:
        return
    for shim in shims if exercise.step.run else shims[:1]:
        found = (curriculum.folder / shim).read_text(encoding="utf-8")
        (curriculum.root / FOLDER / shim).write_text(found, encoding="utf-8")


def _to_do(exercise, source):
    """The definitions to write, with their places, and the commands that help."""
    number, name = exercise.step.number.short, file_of(exercise)
    there = source.definitions if source else {}
    for task in exercise.tasks:
        place = f":{_line_of(there[task.name])}" if task.name in there else ""
        yield f"  {task.verb:6}  {name}{place}  {task.name}"
    yield f"""
python {name}
{COMMAND} {number} --check      does it keep the step's promises?
{COMMAND} {number} --hint       one hint more each time
{COMMAND} {number} --solution   the step's own"""


def _line_of(definition):
    """The line of `def`, below decorators and comments."""
    lines = definition.text.splitlines()
    found = (n for n, line in enumerate(lines) if re.match(r"\s*(async )?def ", line))
    return definition.first + next(found, 0)


def check_file(curriculum: Curriculum, exercise: Exercise) -> Verdict:
    """Whether the reader's file keeps the promises of the step, and what fails first.

    Raises:
        CurriculumError: there is no file.
    """
    name, number = file_of(exercise), exercise.step.number.short
    path = curriculum.root / name
    if not path.exists():
        raise CurriculumError(f"There is no {name}. Write it with: {COMMAND} {number}")
    try:
        source = Source(path)
    except SourceError as error:
        return Verdict(False, [f"{FOLDER}/{error}"])
    if not source.text.strip():
        return Verdict(False, [f"{name} is empty. Begin anew: {COMMAND} {number} --again"])
    outcome = _run(curriculum, exercise, path)
    verdict = _judged(exercise, source, outcome)
    verdict.seconds = outcome.seconds
    if verdict.ok:
        note(curriculum, exercise.step, solved=True)
    return verdict


def _run(curriculum, exercise, path) -> Outcome:
    """Run a file with the demo of the step, whatever became of its own."""
    source, demo = Source(path), exercise.step.source.demo
    if _same(source.demo, demo):
        return _run_at(curriculum, exercise.step, path)
    other = path.with_name(f".{path.stem}_check.py")
    text = "\n".join([*source.lines[: source.demo_first - 1], *demo, ""])
    other.write_text(text, encoding="utf-8")
    try:
        return _run_at(curriculum, exercise.step, other)
    finally:
        other.unlink()


def _run_at(curriculum, step, path):
    return run_step(replace(step, path=path), curriculum.root, timeout=TIMEOUT)


def _same(demo, other):
    texts = ["\n".join(line.rstrip() for line in lines).strip() for lines in (demo, other)]
    return texts[0] == texts[1]


def _judged(exercise, source, outcome) -> Verdict:
    """What came of a run: the first promise that is not kept, or the exception before it."""
    if outcome.ok:
        return _finished(exercise, source, outcome)
    wrong = [each for each in outcome.broken if each.printed is not None or not outcome.failure]
    if wrong:
        printed = "(nothing)" if wrong[0].printed is None else wrong[0].printed
        lines = [
            f"{_place(exercise, source, wrong[0].line)}: a promise is not kept",
            f"  printed   {printed}",
            f"  promised  {wrong[0].promised}",
        ]
    else:
        lines = _failure(exercise, source, outcome)
    if total := len(outcome.given):
        lines.append(f"{outcome.kept} of {total} promises kept")
    return Verdict(False, lines)


def _finished(exercise, source, outcome):
    """All promises are kept. That counts if something was written, and no hole is left."""
    holes = [task.name for task in exercise.tasks if f'"{HOLE}{task.name}"' in source.text]
    if holes:
        line = f"The promises are kept, and yet to be written: {', '.join(holes)}"
        return Verdict(False, [line])
    untouched = Source(source.path, exercise.start())
    if _framework(source) == _framework(untouched):
        return Verdict(False, [f"Nothing is written yet; the demo does not need {exercise.names}."])
    number = exercise.step.number.short
    promises = f"{outcome.kept} promise{'s' if outcome.kept != 1 else ''}"
    lines = [
        f"{exercise.names}: right. {file_of(exercise)} keeps the {promises} of step {number}.",
        "",
        f"{COMMAND} {number} --solution   yours beside the step's own",
        "python -m steps next".ljust(len(COMMAND) + len(number) + 15) + "the next step",
    ]
    return Verdict(True, lines)


def _framework(source):
    """The syntax above the demo."""
    return [ast.dump(node) for node in source.tree.body if node.lineno < source.demo_first]


def _failure(exercise, source, outcome):
    """Why a run ended before its end: an exception with its place in the reader's file, or else
    what the companion says."""
    file = str(outcome.step.path)
    numbers = re.findall(rf'^ *File "{re.escape(file)}", line (\d+)', outcome.errors, re.MULTILINE)
    if not numbers:
        return [f"{file_of(exercise)}: {outcome.failure.replace(file, file_of(exercise))}"]
    line = int(numbers[-1])
    below = outcome.errors.rpartition("\n  File ")[2].splitlines()[1:]
    error = next((n for n, each in enumerate(below) if not each.startswith(" ")), 0)
    told = below[error:][:4] or ["it ended here"]
    text = outcome.step.source.lines[line - 1].strip()
    lines = [f"{_place(exercise, source, line)}: {told[0]}", f"  {text}", *told[1:]]
    if missing := outcome.broken[:1]:
        place = _place(exercise, source, missing[0].line)
        lines.append(f"{place} is not reached: {missing[0].promised}")
    return lines


def _place(exercise, source, line):
    """A line of the file that ran, as a place in the reader's file, or in the step's own demo."""
    step = exercise.step
    if line < source.demo_first or _same(source.demo, step.source.demo):
        return f"{file_of(exercise)}:{line}"
    return f"{step.file}:{line - source.demo_first + step.source.demo_first}"


def hint(curriculum: Curriculum, exercise: Exercise) -> list[str]:
    """The hints that were asked for before, and one more."""
    hints = exercise.hints()
    seen = _progress(curriculum).get(str(exercise.step.number), {}).get("hints", 0)
    count = min(seen + 1, len(hints))
    note(curriculum, exercise.step, hints=count)
    lines = [line for group in hints[:count] for line in group]
    number = exercise.step.number.short
    if seen >= len(hints):
        lines.append(f"There are no more hints. The solution: {COMMAND} {number} --solution")
    return lines


def solution(curriculum: Curriculum, exercise: Exercise) -> Iterator[str]:
    """Write the step's own file beside the reader's, and show what it has that theirs has not."""
    name, text = file_of(exercise, "_solution"), exercise.step.source.text
    path, theirs = curriculum.root / name, curriculum.root / file_of(exercise)
    if path.exists() and path.read_bytes() != text.encode():
        yield f"{name} is there and stays as it is"
    else:
        _write(curriculum, exercise, name, text)
        yield f"wrote {name}"
    mine = _parsed(theirs) or Source(theirs, exercise.start())
    old = list(enumerate(mine.framework, mine.framework_first))
    source = exercise.step.source
    found = hunks(trimmed(old), trimmed(list(enumerate(source.framework, source.framework_first))))
    here = file_of(exercise) if theirs.exists() else "the start"
    yield paint(f"\n  {here} -> {name}", "bold")
    yield "\n".join(shown(found)) if found else "  They are the same."


def _parsed(path) -> Source | None:
    """A file, as far as there is one that can be read."""
    try:
        return Source(path)
    except (OSError, SourceError):
        return None


def practice_line(curriculum: Curriculum, step: Step) -> list[str]:
    """The exercise of a step, offered in a line; none where there is none, or it is solved."""
    try:
        found = exercise_of(curriculum, step)
    except (CurriculumError, SourceError):  # `practice` tells it; it is no reason not to read
        return []
    if found is None or step.number in solved(curriculum):
        return []
    return [f"Write {found.names} yourself: {COMMAND} {step.number.short}"]


def solved(curriculum: Curriculum) -> list[Number]:
    """The steps whose exercises the reader has solved."""
    numbers = {str(number): number for number in curriculum.by_number}
    found = _progress(curriculum)
    return [numbers[name] for name in numbers if found.get(name, {}).get("solved")]


def note(curriculum: Curriculum, step: Step, **what: int) -> None:
    """Remember something about the exercise of a step."""
    progress = _progress(curriculum)
    progress.setdefault(str(step.number), {}).update(what)
    path = curriculum.root / PROGRESS
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(progress, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"{PROGRESS} cannot be written, so it is forgotten: {error}", file=sys.stderr)


def _progress(curriculum) -> dict[str, dict[str, int]]:
    """What PROGRESS holds; nothing where it is missing or damaged."""
    try:
        found = json.loads((curriculum.root / PROGRESS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    entries = found.items() if isinstance(found, dict) else ()
    return {name: each for name, each in entries if isinstance(each, dict)}
