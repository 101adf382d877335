"""The check that a promise holds wherever it can: `...` stands only for what really varies.

Each step runs three times: with another hash seed, with one thread and with two, and on a busy
machine. What is printed alike each time can be promised. Where it is the machine's all the same,
curriculum.toml says so with a word. A long line may be shortened,
and so may one that names a line of the step: "a message that goes on ...".
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

from .complaint import Complaint
from .curriculum import Curriculum, Step
from .processes import environment_with
from .promises import run_step

WORDS = ("time", "memory", "path", "version", "processor", "gpu", "length")
LONGEST = 100  # characters in a line of a step
RUNS = (  # the hash seed, the threads, the processes that keep the machine busy
    (1, 1, 0),
    (2, 2, 0),
    (3, 1, 2),
)


def check_stable(curriculum: Curriculum, step: Step):
    """A promise has `...` only for what is another each time, or for what `varies` names."""
    outcomes = []
    for seed, threads, others in RUNS:
        with _busy(others):
            outcome = run_step(
                step, curriculum.root, environment=environment_with(seed=seed, threads=threads)
            )
        outcomes.append(outcome)
        if not outcome.ok:
            how = f"with hash seed {seed}, {threads} thread{'s' * (threads > 1)}"
            busy = f" and {others} busy processes beside it" if others else ""
            yield Complaint(step.label, f"{how}{busy}:\n{outcome.report()}")
    excepted = {}
    for line, (promised, printed) in outcomes[0].given.items():
        if "..." in promised and [promised] != [each.strip() for each in printed]:
            excepted[line] = promised, printed
    for line, (promised, printed) in excepted.items():
        same = all(each.given.get(line) == (promised, printed) for each in outcomes)
        listed = promised in step.varies or _shortened(step, line, promised, printed)
        if same and printed and not listed:
            yield Complaint(
                f"{step.label}, line {line}",
                f"prints the same each time: {' / '.join(each.strip() for each in printed)}",
                f"promise it, or list {promised!r} under [step.{step.number}] varies",
            )
    for promised, word in step.varies.items():
        where = f"curriculum.toml, [step.{step.number}] varies"
        if word not in WORDS:
            yield Complaint(where, f"{word!r} is no reason", f"write one of {', '.join(WORDS)}")
        if promised not in [text for text, _ in excepted.values()]:
            yield Complaint(where, f"no promise reads {promised!r}", "take it out")


def _shortened(step: Step, line: int, promised: str, printed: list[str]) -> bool:
    """Does the promise keep some of a printed line that is too long for a line of the step, or that
    names a place in the step, which another text would move?"""
    if len(printed) != 1 or promised == "...":
        return False
    if f"{step.path.name}:" in printed[0]:
        return True
    whole = step.path.read_text(encoding="utf-8").splitlines()[line - 1]
    return len(whole) - len(promised) + len(printed[0].strip()) > LONGEST


@contextlib.contextmanager
def _busy(count):
    """So many processes that compute, as long as this lasts."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
