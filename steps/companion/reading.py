"""Reading the steps one after the other: a step in one view, the reader's place, and a pager."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable

from .curriculum import Curriculum, CurriculumError, Step
from .difference import Difference
from .number import Number
from .paint import paint
from .promises import Outcome, run_step

PLACE = ".steps-place"  # a file beside README.md, which git ignores


def view(curriculum: Curriculum, step: Step) -> str:
    """The text of a step, its difference with the demo's, and what it prints."""
    difference = Difference(curriculum, step)
    words = step.source.docstring.partition("\n")[2].strip("\n").rstrip()
    outcome = run_step(step, curriculum.root)
    printed = paint(f"  python {step.file}   ({outcome.seconds:.1f} s)", "bold")
    parts = [difference.head(), words, difference.body(demo=True)]
    parts.append(f"{printed}\n{output_of(outcome)}")
    return "\n\n".join(part for part in parts if part) + "\n"


def output_of(outcome: Outcome) -> str:
    """What a step printed, indented, and the promises that it did not keep."""
    lines = outcome.output.rstrip().splitlines() or ["(it prints nothing)"]
    found = [f"    {line}".rstrip() for line in lines]
    if not outcome.ok:
        found += ["", paint(outcome.report(), "red")]
    return "\n".join(found)


def place_of(curriculum: Curriculum) -> Number | None:
    """The step that was shown last; None at the beginning.

    Raises:
        CurriculumError: the file that remembers it holds something else.
    """
    try:
        text = (curriculum.root / PLACE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CurriculumError(f"{PLACE} cannot be read: {error}") from None
    try:
        number = Number.parse(text)
    except ValueError as error:
        advice = f"Set it anew, for example with: python -m steps next --at {_first(curriculum)}"
        raise CurriculumError(f"{PLACE}: {error}. {advice}") from None
    return number


def remember(curriculum: Curriculum, step: Step) -> None:
    """Make a step the reader's place."""
    try:
        (curriculum.root / PLACE).write_text(f"{step.label}\n", encoding="utf-8")
    except OSError as error:
        print(f"{PLACE} cannot be written, so the place is forgotten: {error}", file=sys.stderr)


def main_road(curriculum: Curriculum) -> list[Step]:
    """The steps that are read one after the other, without those in depth."""
    return [step for step in curriculum.steps if not step.run]


def read_steps(curriculum: Curriculum) -> list[Step]:
    """The steps of the main road up to the reader's place.

    The place may be a step that is gone: then the nearest one counts. A step in depth is read
    beside one of the main road.
    """
    place, key = place_of(curriculum), curriculum.roads.key
    if place and place.run in curriculum.runs:
        place = curriculum.runs[place.run].beside
    return [step for step in main_road(curriculum) if place and key(step.number) <= key(place)]


def following(curriculum: Curriculum, back: bool = False) -> Step | None:
    """The step of the main road after the reader's place, or the one before it; None where there is
    no such step."""
    read = read_steps(curriculum)
    if back:
        gone = bool(read) and read[-1].number != place_of(curriculum)
        return read[-1] if gone else read[-2] if len(read) > 1 else None
    return next(iter(main_road(curriculum)[len(read) :]), None)


def current(curriculum: Curriculum) -> Step:
    """The step at the reader's place; the first one at the beginning."""
    place = place_of(curriculum)
    read = [curriculum.by_number[place]] if place in curriculum.by_number else []
    read = read or read_steps(curriculum)
    return read[-1] if read else curriculum.step(_first(curriculum))


def _first(curriculum):
    return curriculum.steps[0].number if curriculum.steps else Number(1)


def page(texts: Iterable[str]) -> None:
    """Print through $PAGER, else through `less -R`; without either, or elsewhere than on a
    terminal, as it is. Each text is shown as soon as it is there."""
    command = shlex.split(os.environ.get("PAGER", "less -R")) if sys.stdout.isatty() else []
    if not command or not shutil.which(command[0]):
        for text in texts:
            print(text, flush=True)
        return
    texts = iter(texts)
    if (first := next(texts, None)) is None:  # before the pager: an error is told without it
        return
    # -F: what fits on the screen needs no pager; -R: colours; -X: the text stays when it ends.
    environment = {"LESS": "FRX"} | os.environ
    sys.stdout.flush()
    pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, encoding="utf-8")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C has a meaning in the pager
    try:
        for text in itertools.chain([first], texts):
            pager.stdin.write(text + "\n")
            pager.stdin.flush()
    except BrokenPipeError:  # its reader has seen enough
        pass
    finally:
        with contextlib.suppress(BrokenPipeError):
            pager.stdin.close()
        pager.wait()
        signal.signal(signal.SIGINT, before)
