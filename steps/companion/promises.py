"""Promises: what a step says that it prints, compared with what it prints.

A promise is a comment `# -> text`. It stands at the end of the statement that prints, or on lines
of its own directly below it:

    print("d(x + x)/dx =", x.grad)  # -> d(x + x)/dx = 2.0

    for n in range(3):
        print(n, n**2)
        # -> 0 0
        # -> 1 1
        # -> 2 4

The rules:

- One promise is compared with the last line that the statement printed: in a loop, the final
  value.
- Several promises are all the lines that the statement printed, in order. `# -> ...` among them
  stands for one line or more.
- Blank lines do not count, neither do blanks at either end of a line. Everything else is compared
  exactly, but for:
- Numbers with a decimal point or an exponent agree to the digits that the promise shows, rounded
  or cut off: 3.1415 and 3.1416 both accept 3.14159, and 4e-11 accepts 4.2e-11. `2.` and 2.0 are
  no whole numbers: they do not accept 2. Between two processors the last bit of a result may
  differ; so much is always allowed.
- `...` inside a promise stands for anything.
- Output belongs to the innermost statement on the call stack that carries a promise. So a promise
  may stand beside the call of a function that prints, or beside the `print` inside that function.
- A promise whose statement printed nothing is broken.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .curriculum import Step
from .matching import matches
from .processes import run_script
from .source import Source, SourceError, statements, tokens_of

TIMEOUT = 120  # seconds after which a step is stopped
# Seconds that a step may take, by the clock and by the processor, on a quiet machine. The Makefile
# allows more, since it runs everywhere.
LIMIT = float(os.environ.get("STEP_SECONDS", "10"))
AT_ONCE = 2  # steps that run in parallel

_RECORDER = Path(__file__).with_name("recorder.py")
_MARK = re.compile(r"#\s*->(\s|$)")


@dataclass
class Promise:
    """The promised lines of one statement, with the numbers of the lines on which they stand."""

    first: int  # the lines of the statement
    last: int
    lines: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Broken:
    """A promised line and what came instead; `printed` is None when nothing was printed."""

    line: int
    promised: str
    printed: str | None


@dataclass
class Outcome:
    """How a step ran."""

    step: Step
    broken: list[Broken]
    kept: int
    seconds: float
    failure: str = ""  # why the run failed: an exception, too slow, a promise in the wrong place
    ran: set[int] | None = None  # which of the watched lines ran; None where none were watched
    output: str = ""  # all that it printed
    errors: str = ""  # what stands in its error output: the traceback
    given: dict[int, tuple[str, list[str]]] = field(default_factory=dict)  # for each promised line

    @property
    def ok(self) -> bool:
        return not self.broken and not self.failure

    def report(self) -> str:
        """The lines that name each broken promise, and the failure."""
        found = []
        if self.failure:
            found.append(f"{self.step.label}: {self.failure}")
        unreached = [each for each in self.broken if each.printed is None and self.failure]
        if unreached:
            found.append(f"{len(unreached)} of its statements with a promise printed nothing")
        for each in self.broken:
            if each in unreached:
                continue
            place = f"{self.step.label}, line {each.line}: "
            printed = "(nothing)" if each.printed is None else each.printed
            found.append(f"{place}printed   {printed}")
            found.append(" " * len(place) + f"promised  {each.promised}")
        return "\n".join(found)


class PromiseError(Exception):
    """A promise that stands beside no statement."""


def promises_of(source: Source) -> list[Promise]:
    """The promises of a step, in order of lines."""
    spans = _spans(source)
    found: dict[tuple[int, int], Promise] = {}
    previous = None  # the statement and the line of the promise before
    for line, column, comment in tokens_of(source.text).comments:
        if not _MARK.match(comment):
            continue
        text = _MARK.sub("", comment, count=1).strip()
        if not source.lines[line - 1][:column].strip():  # the comment has the line to itself
            if previous and previous[1] == line - 1:
                span = previous[0]
            else:
                span = next((each for each in spans if each[1] == line - 1), None)
        else:
            span = innermost(spans, line)
        if span is None:
            raise PromiseError(
                f"line {line}: no statement for this promise stands beside or above it"
            )
        found.setdefault(span, Promise(*span)).lines.append((line, text))
        previous = span, line
    return list(found.values())


def innermost(spans, line):
    """The shortest of the spans that hold a line, or None."""
    holding = [span for span in spans if span[0] <= line <= span[1]]
    return min(holding, key=lambda span: span[1] - span[0], default=None)


def compare(promises: list[Promise], printed: list[tuple[list[int], str]]) -> list[Broken]:
    """The promised lines that were not kept. `printed` comes from the recorder."""
    broken = []
    for promise, lines in _with_lines(promises, printed):
        broken += _compare_lines(promise.lines, lines)
    return broken


def given(promises: list[Promise], printed: list[tuple[list[int], str]]):
    """What was printed for each promised line: {line: (promised, printed)}. That may be several
    lines, or none."""
    return {
        line: (text, found)
        for promise, lines in _with_lines(promises, printed)
        for (line, text), found in zip(promise.lines, _divided(promise.lines, lines), strict=True)
    }


def _with_lines(promises, printed):
    """Each promise with the lines that its statement printed."""
    texts = {(each.first, each.last): "" for each in promises}
    for lines, text in printed:
        for line in lines:
            if span := innermost(texts, line):
                texts[span] += text
                break
    for promise in promises:
        text = texts[promise.first, promise.last]
        yield promise, [each for each in text.splitlines() if each.strip()]


def _divided(promised, printed):
    """The printed lines that belong to each promised line."""
    if len(promised) == 1:
        return [printed[-1:]]
    found, position = [], 0
    for index, (_, text) in enumerate(promised):
        taken, below = 1, promised[index + 1 :]
        if text == "..." and all(each != "..." for _, each in below):
            # as many lines as leave one for each promise below
            taken = max(1, len(printed) - position - len(below))
        found.append(printed[position : position + taken])
        position += taken
    return found


def _compare_lines(promised, printed):
    if not printed:
        return [Broken(promised[0][0], promised[0][1], None)]
    parts = _divided(promised, printed)
    for (line, text), part in zip(promised, parts, strict=True):
        if not part:
            return [Broken(line, text, None)]
        if text != "..." and not matches(text, part[0]):
            return [Broken(line, text, part[0].strip())]
    count = sum(map(len, parts))
    if len(promised) > 1 and count < len(printed):
        return [Broken(promised[-1][0], "no further line", printed[count].strip())]
    return []


def run_step(
    step: Step,
    root: Path,
    lines: list[int] | None = None,
    environment: dict[str, str] | None = None,
    timeout: float | None = None,
) -> Outcome:
    """Run a step in a process of its own and compare its output with its promises.

    It watches which of the `lines` run, if there are any. `environment` is another one than usual.
    With a `timeout` of its own, it may take that long.
    """
    nothing = None if lines is None else set()
    try:
        promises = promises_of(step.source)
    except (PromiseError, SourceError) as error:
        return Outcome(step, [], 0, 0.0, str(error), nothing)
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record.json")
        arguments = [str(step.path), str(record), *map(str, lines or ())]
        stop = TIMEOUT if timeout is None else timeout
        status, output, errors = run_script(_RECORDER, arguments, root, stop, environment)
        if status is None:
            message = f"stopped after {stop} s"
            return Outcome(step, [], 0, float(stop), message, nothing, output)
        if not record.exists():
            message = f"the process ended with {status}"
            return Outcome(step, [], 0, 0.0, message, nothing, output)
        noted = json.loads(record.read_text(encoding="utf-8"))
    broken = compare(promises, noted["printed"])
    wrong = {each.line for each in broken}
    kept = sum(len(p.lines) for p in promises if not wrong & {line for line, _ in p.lines})
    failure = ""
    if status:
        last = "\n".join(errors.strip().splitlines()[-6:])
        failure = f"ended with exit status {status}\n{last}".strip()
    elif noted["seconds"] > (LIMIT if timeout is None else timeout):
        failure = f"took {noted['seconds']:.1f} s; the limit is {LIMIT:.0f} s"
    ran = None if lines is None else set(noted["ran"])
    found = given(promises, noted["printed"])
    return Outcome(step, broken, kept, noted["seconds"], failure, ran, output, errors, found)


def run_steps(steps: list[Step], root: Path):
    """The outcomes of several steps, in order, as they come."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(lambda step: run_step(step, root), steps)


def _spans(source: Source) -> list[tuple[int, int]]:
    """First and last line of each statement; of a compound one, the header only."""
    found = []
    for node in statements(source.tree):
        last = node.end_lineno
        if body := getattr(node, "body", None):
            last = max(node.lineno, body[0].lineno - 1)
        found.append((node.lineno, last))
    return found
