"""PyTorch is the referee of the contract: demos of the main road run on PyTorch itself.

Here those that take less than a second; `python -m steps contract 41a-60c --on torch` runs all, in
two minutes.
"""

from pathlib import Path

import pytest

from steps.companion import contract
from steps.companion.curriculum import Curriculum

pytest.importorskip("torch")

CURRICULUM = Curriculum(Path(__file__).resolve().parents[2])
QUICK = ["41b", "41c", "45a", "46a", "48b", "50d", "53a", "56a", "56c", "57c", "58a", "60a"]


@pytest.mark.parametrize("number", QUICK)
def test_a_demo_runs_on_pytorch(number):
    assert contract.judge(CURRICULUM, CURRICULUM.step(number), "torch").complaints == []


def test_what_pytorch_does_not_have_is_seen(monkeypatch):
    step = CURRICULUM.step("41b")
    text, marks = contract.without_marked(step.source)
    text += "    tensor(1.0).array\n"
    monkeypatch.setattr(contract, "without_marked", lambda source: (text, marks))
    (complaint,) = contract.judge(CURRICULUM, step, "torch").complaints
    assert complaint.startswith("does not run on torch: AttributeError")
