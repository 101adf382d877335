"""Words that name a step: they must name one that is there."""

import json
import re
from pathlib import Path

import pytest

from steps.companion.curriculum import Curriculum
from steps.companion.references import check_documents, check_references, dangling, prose

from .conftest import step_text

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def curriculum(make):
    return make({name: step_text(name) for name in ("1", "12", "14a", "14b", "15")})


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("Step 12, step 14a and steps 12, 14b and 15.", ""),
        ("steps 12 to 14", ""),  # 14 stands for all its parts
        ("step 13", "13"),
        ("Step\n16 wraps", "16"),
        ("steps 12, 13 and 16", "13 16"),
        ("steps 11-15", "11"),
        ("step 14c", "14c"),
        ("python steps/step16.py", "16"),
        ("step 12.5, step 16% and 16 steps", ""),
        ("step 7 of 10", ""),  # one digit may count anything
    ],
)
def test_a_reference_to_a_step_that_is_not_there(curriculum, text, missing):
    assert " ".join(number for _, number in dangling(curriculum, text)) == missing


def test_comments_and_texts_are_searched_and_what_is_printed_is_not():
    text = '"""As in\nstep 40."""\nx = 1  # see step 41\nprint("step 42")\n# -> step 43\n'
    words = prose(text)
    assert [n for n in ("40", "41", "42", "43") if n in words] == ["40", "41"]
    assert words.splitlines()[1:3] == ['step 40."""', " see step 41"]


def test_steps_package_and_documents(make):
    notebook = {"cells": [{"source": ["# Step 01\n", "steps 01 and 77"]}]}
    curriculum = make(
        {1: step_text(1, "# As in step 70.\nx = 1")},
        {
            "tinytorch/a.py": "# step 71\n",
            "README.md": "Words.\n`python steps/step72.py`\n",
            "notebooks/stage01.ipynb": json.dumps(notebook),
            "notebooks/depth/gpu.ipynb": json.dumps(notebook),
        },
    )
    found = [str(each) for each in check_references(curriculum, curriculum.step(1))]
    assert found == ["step 01, line 10: speaks of step 70, which is not there"]
    assert [str(each) for each in check_documents(curriculum)] == [
        "tinytorch/a.py, line 1: speaks of step 71, which is not there",
        "README.md, line 2: speaks of step 72, which is not there",
        "notebooks/depth/gpu.ipynb, cell 0, line 2: speaks of step 77, which is not there",
        "notebooks/stage01.ipynb, cell 0, line 2: speaks of step 77, which is not there",
    ]


def test_the_last_lines_of_the_road_name_the_runs_that_are_beside_them():
    """In both directions."""
    curriculum = Curriculum(ROOT)
    named, beside = set(), set()
    for step in curriculum.steps:
        if step.run:
            continue
        _, found, line = step.source.docstring.rpartition("\nIn depth: ")
        if found:
            named |= {(step.number, run) for run in re.findall(r"\b([a-z]+)\d\d\b", line)}
    for run in curriculum.runs.values():
        beside.add((run.beside, run.name))
    assert {(str(number), run) for number, run in named ^ beside} == set()
