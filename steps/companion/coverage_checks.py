"""The check that a step's demo runs what the step adds, statement by statement."""

from __future__ import annotations

from itertools import groupby

from .added import added_statements
from .complaint import Complaint
from .curriculum import Curriculum, Step
from .promises import Outcome, PromiseError, promises_of, run_step

SHARE = {"lesson": 1.0, "catalogue": 0.9}  # of the added statements


def check_promises(curriculum: Curriculum, step: Step):
    """The step runs and prints what it says."""
    try:
        promises = promises_of(step.source)
    except PromiseError as error:
        yield Complaint(step.label, str(error), "put it at the end of the print")
        return
    if not promises:
        yield Complaint(step.label, "promises nothing", "end a print with `# -> what it prints`")
    outcome = outcome_of(curriculum, step)
    if outcome.failure:
        yield Complaint(step.label, outcome.failure)
    for each in outcome.broken:
        printed = "nothing" if each.printed is None else repr(each.printed)
        yield Complaint(
            f"{step.label}, line {each.line}", f"printed {printed}, promised {each.promised!r}"
        )


def check_coverage(curriculum: Curriculum, step: Step):
    """The demo runs every statement that a lesson adds, and most of a catalogue's."""
    if step.kind not in SHARE:
        return
    statements = added_statements(curriculum, step)
    missed = missed_statements(curriculum, step)
    allowed = len(statements) * (1 - SHARE[step.kind])
    if len(missed) <= allowed:
        return
    lines = [lines.start for lines in missed]
    owed = "all" if SHARE[step.kind] == 1 else f"{SHARE[step.kind]:.0%}"
    yield Complaint(
        step.label,
        f"its demo does not run {len(missed)} of the {len(statements)} statements that it adds, "
        f"and {owed} must run: {_spans(lines)}",
        "show them, or add them later",
    )
    for line in lines[:12]:
        yield Complaint(f"{step.label}, line {line}", step.source.lines[line - 1].strip())


def missed_statements(curriculum: Curriculum, step: Step) -> list[range]:
    """The added statements that the demo does not run."""
    ran = outcome_of(curriculum, step).ran
    statements = added_statements(curriculum, step)
    return [lines for lines in statements if ran.isdisjoint(lines)]


def outcome_of(curriculum: Curriculum, step: Step) -> Outcome:
    """How the step ran. It runs once, for promises and coverage together."""
    if step.outcome is None:
        lines = [line for lines in added_statements(curriculum, step) for line in lines]
        step.outcome = run_step(step, curriculum.root, lines)
    return step.outcome


def _spans(lines):
    """ "lines 12, 15-17": what follows line by line is one span."""
    spans = []
    for _, group in groupby(enumerate(lines), key=lambda pair: pair[1] - pair[0]):
        numbers = [line for _, line in group]
        first, last = numbers[0], numbers[-1]
        spans.append(f"{first}" if first == last else f"{first}-{last}")
    return f"line{'s' if len(lines) > 1 else ''} " + ", ".join(spans)
