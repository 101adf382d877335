"""Figures of the stages and runs: how much their steps add, change and run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from statistics import median

from .added import added_lines, added_statements, changing_lines
from .coverage_checks import missed_statements
from .curriculum import Curriculum, Step
from .model import Run
from .promises import AT_ONCE

HEAD = "stage  lessons catalogues   lines added: median   90 %   max   changing     run"


def table(curriculum: Curriculum, steps: list[Step], run: bool = True):
    """A line for each stage, then one for all steps; `run` measures which statements run."""
    missed = {}
    if run:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            counts = pool.map(lambda step: len(missed_statements(curriculum, step)), steps)
            missed = dict(zip([step.number for step in steps], counts, strict=True))
    yield HEAD
    for part, chosen in curriculum.groups(steps):
        name = part.name if isinstance(part, Run) else part and str(part.number) or ""
        yield _row(curriculum, f"{name:>5}", chosen, missed)
    yield _row(curriculum, "  all", steps, missed)


def _row(curriculum, name, steps, missed):
    kinds = [step.kind for step in steps]
    # The first step of all has nothing before it that it could change.
    later = [step for step in steps if curriculum.before(step)]
    added = sorted(len(added_lines(curriculum, step)) for step in later) or [0]
    changing = sum(len(changing_lines(curriculum, step)) for step in later)
    counts = [f"{kinds.count(kind):{width}}" for kind, width in KINDS.items()]
    ninth = added[max(0, -(-9 * len(added) // 10) - 1)]
    share = f"{changing / max(1, sum(added)):9.0%}"
    statements = sum(len(added_statements(curriculum, step)) for step in steps)
    unrun = sum(missed[step.number] for step in steps) if missed else 0
    ran = f"{1 - unrun / max(1, statements):8.1%}" if missed else ""
    return f"{name}  {''.join(counts)} {median(added):20.0f} {ninth:6} {added[-1]:5} {share}{ran}"


KINDS = {"lesson": 7, "catalogue": 11}
