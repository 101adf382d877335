"""The steps and their companion: `python -m steps`, or `steps.diff(14)` in a notebook."""

from pathlib import Path

from .companion.curriculum import Curriculum
from .companion.difference import Difference

__all__ = ["diff"]


def diff(number: int | str) -> Difference:
    """What step 14 or "54a" changes against the step before. Jupyter shows it in colour."""
    curriculum = Curriculum(Path(__file__).resolve().parents[1])
    return Difference(curriculum, curriculum.step(number))
