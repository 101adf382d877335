"""The contract: the demos of the main road from stage 7 on are programs for PyTorch.

`make contract` asks it of all steps, and `python -m tests.contract_twins` tries all broken twins;
both take minutes. Here a few quick steps, and what needs no run.
"""

import ast
import copy
import re
from pathlib import Path

import pytest

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
    of_package,
    offered,
    without_marked,
)
from steps.companion.curriculum import Curriculum
from steps.companion.source import Source
from tests.contract_twins import TWINS, broken, seen

ROOT = Path(__file__).resolve().parents[2]
CURRICULUM = Curriculum(ROOT)
STEPS = covered(CURRICULUM, CURRICULUM.steps)
TRAINS = re.compile(r"\.step\(\)|\b(?:fit|fit_text|learn)\(|\brange\(\d{3,}\)")  # or loops for long
QUICK = [str(step.number) for step in STEPS if not TRAINS.search("\n".join(step.source.demo))]


@pytest.mark.parametrize("number", QUICK)
def test_a_demo_prints_the_same_on_the_package(number):
    assert judge(CURRICULUM, CURRICULUM.step(number)).complaints == []


def with_text(number, text):
    """The step with another text."""
    step = copy.copy(CURRICULUM.step(number))
    step.source = Source(step.path, text=text)
    return step


def test_the_contract_sees_another_output():
    """In the file LayerNorm divides by n - 1, in the package by n."""
    twin = next(each for each in TWINS if each.name == "LayerNorm.forward" and each.step == "58a")
    step = with_text("58a", broken(CURRICULUM.step("58a").source, twin))
    (complaint,) = judge(CURRICULUM, step).complaints
    ours, theirs = complaint.splitlines()
    assert re.fullmatch(r"the file prints {4}\[\[-0\.9258 .*", ours)
    assert re.fullmatch(r"the package prints \[\[-1\.069 .*", theirs)


def test_the_contract_sees_a_demo_that_fails():
    source = CURRICULUM.step("58a").source
    text = source.text.replace("LayerNorm(4), ", "LayerNorm(4, 1e-5, None, 3, 2), ", 1)
    (complaint,) = judge(CURRICULUM, with_text("58a", text)).complaints
    assert complaint.startswith("does not run on tinytorch: TypeError")


def test_the_contract_sees_a_name_that_is_never_reached():
    """Step 50d adds Flatten, max_pool2d and MaxPool2d."""
    source = CURRICULUM.step("50d").source
    head, start, _ = source.text.partition(f"\n{source.demo[0]}\n")
    step = with_text("50d", head + start + "    print(Flatten()(zeros(2, 3, 4)).shape)\n")
    assert judge(CURRICULUM, step).complaints == [
        f"adds or changes {name}, which its demo does not call"
        for name in ("max_pool2d", "MaxPool2d")
    ]


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


def test_what_a_step_imports_from_the_package_comes_from_the_library_that_it_runs_on():
    lines = (
        "import tinytorch.ops.shape",
        "from tinytorch.nn.modules.linear import Linear",
        "import time",
    )
    nodes = [ast.parse(line).body[0] for line in lines]
    assert [of_package(node, "torch") for node in nodes] == [True, True, False]
    assert not any(of_package(node, "tinytorch") for node in nodes)
