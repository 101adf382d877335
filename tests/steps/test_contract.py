"""The contract: the demos of the main road from stage 7 on are programs for PyTorch.

`make contract` asks it of all steps, and `python -m tests.contract_twins` tries all broken twins;
both take minutes. Here a few quick steps, and what needs no run.
"""

from pathlib import Path

import pytest

from steps.companion import contract
from steps.companion.contract import (
    MARKS,
    TYPES,
    alike,
    asked,
    check_marks,
    covered,
    differing,
    forms,
    judge,
    offered,
    without_marked,
)
from steps.companion.curriculum import Curriculum
from tests.contract_twins import TWINS, broken, seen

ROOT = Path(__file__).resolve().parents[2]
CURRICULUM = Curriculum(ROOT)
STEPS = covered(CURRICULUM, CURRICULUM.steps)
QUICK = ["41b", "45a", "48b", "50b", "50d", "56a", "57c", "58a"]  # demos of less than a second


@pytest.mark.parametrize("number", QUICK)
def test_a_demo_prints_the_same_on_the_package(number):
    assert judge(CURRICULUM, CURRICULUM.step(number)).complaints == []


@pytest.mark.parametrize("step", STEPS, ids=lambda step: str(step.number))
def test_names_order_and_defaults_of_parameters_are_those_of_the_package(step):
    assert list(forms(CURRICULUM, step)) == []


def test_few_statements_hold_in_the_file_only_and_no_own_name_is_offered():
    first = [step for step in STEPS if step.stage.number < TYPES]
    marks = [mark for step in first for mark in without_marked(step.source)[1]]
    assert 0 < len(marks) <= MARKS
    assert list(check_marks(CURRICULUM, [])) == []
    assert not set(CURRICULUM.contract["own"]) & offered("tinytorch").keys()


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: f"{twin.step} {twin.name}")
def test_a_twin_is_another_program(twin):
    """Its line is there once, and what comes out can be read by Python."""
    step = CURRICULUM.step(twin.step)
    text = broken(step.source, twin)
    compile(text, step.path.name, "exec")
    assert text != step.source.text


def test_most_of_what_steps_add_has_a_twin():
    wanted = {(str(step.number), name) for step in STEPS for name in asked(CURRICULUM, step)}
    have = {(twin.step, twin.name) for twin in TWINS}
    tops = {(step, name.partition(".")[0]) for step, name in have}
    missing = {(s, n) for s, n in wanted - have if (s, n.partition(".")[0]) not in tops}
    assert len(missing) <= len(wanted) / 20, sorted(missing)


@pytest.mark.parametrize("number", QUICK[:4])
def test_the_demo_sees_a_broken_twin(number):
    twins = [twin for twin in TWINS if twin.step == number][:2]
    assert twins and all(seen(twin) for twin in twins)


def test_numbers_are_compared_to_four_digits():
    assert alike("loss 0.12341", "loss 0.12342") and not alike("loss 0.1234", "loss 0.1244")
    assert differing(["one", "two"], ["one", "two"]) == []
    assert differing(["one", "two"], ["one", "three"])
    assert differing(["one"], ["one", "two"])


def test_the_judge_sees_another_line_and_a_name_that_is_not_called(monkeypatch):
    step = CURRICULUM.step("41b")
    text, marks = without_marked(step.source)
    text += '    print(tensor(1.0).__class__.__module__.partition(".")[0])\n'
    monkeypatch.setattr(contract, "without_marked", lambda source: (text, marks))
    monkeypatch.setattr(contract, "asked", lambda curriculum, step: ["Linear", "conv2d"])
    assert judge(CURRICULUM, step).complaints == [
        "the file prints    __main__\nthe package prints tinytorch",
        "adds or changes conv2d, which its demo does not call",
    ]


def test_the_judge_sees_a_demo_that_does_not_run(monkeypatch):
    step = CURRICULUM.step("41b")
    monkeypatch.setattr(contract, "run", lambda *args: contract.Run(failed="stopped after 300 s"))
    assert judge(CURRICULUM, step).complaints == ["does not run on tinytorch: stopped after 300 s"]
