"""The three promises of the repository itself: `python -m steps check`, step by step."""

from pathlib import Path

import pytest

from steps.companion import checks, promises
from steps.companion.curriculum import Curriculum

CURRICULUM = Curriculum(Path(__file__).resolve().parents[2])


def report(complaints):
    return "\n".join(str(each) for each in complaints)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A slow or busy machine is no fault of a step. `python -m steps check` is stricter."""
    monkeypatch.setattr(promises, "LIMIT", 4 * promises.LIMIT)
    monkeypatch.setattr(promises, "TIMEOUT", 4 * promises.TIMEOUT)


@pytest.mark.parametrize("step", CURRICULUM.steps, ids=lambda step: f"step{step.number}")
def test_step(step):
    """All checks in one test, since they share one run of the step.

    What is found has to be found again: a few steps compare times, and the machine may be busy.
    """
    for _ in range(2):
        step.outcome = None
        found = [each for check in checks.STEP_CHECKS.values() for each in check(CURRICULUM, step)]
        if not found:
            break
    assert report(found) == ""


@pytest.mark.parametrize("check", checks.WHOLE_CHECKS.values(), ids=checks.WHOLE_CHECKS)
def test_whole(check):
    assert report(check(CURRICULUM)) == ""
