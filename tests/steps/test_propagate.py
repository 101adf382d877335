"""Carrying a change on: into equal definitions, changed ones, the package, up to a conflict."""

import subprocess

import pytest

from steps.companion.curriculum import Curriculum, CurriculumError
from steps.companion.propagate import Carried, Stopped, propagate

from .conftest import step_text

FIRST = '''
import math


def helper(x):
    return x + 1


class Box:
    """Holds."""

    def first(self):
        a = 1
        b = 2
        c = 3
        return a + b + c

    def second(self):
        return 2
'''
SECOND = FIRST.replace("return a + b + c", "return a * b * c")
THIRD = SECOND.replace("Box", "Case") + "\n    def third(self):\n        return 3\n"


@pytest.fixture
def repository(make):
    """Three steps under git, of which the last one is a module too."""
    module = THIRD.replace("import math\n", "import os\n").lstrip()
    curriculum = make(
        {1: step_text(1, FIRST), 2: step_text(2, SECOND), 3: step_text(3, THIRD)},
        {"tinytorch/box.py": module},
        '[modules]\n"tinytorch/box.py" = [2, 3]\n[step.3]\nrenames = {Box = "Case"}\nwhy = "w"\n',
    )
    for command in (
        "init -q",
        "add .",
        "-c user.name=A -c user.email=a@b.c commit -q -m first",
    ):
        subprocess.run(["git", "-C", curriculum.root, *command.split()], check=True)
    return curriculum.root


def edit(root, old, new, name="steps/step01.py"):
    path = root / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def carried(root, number=1, revision="HEAD"):
    return list(propagate(Curriculum(root), number, revision))


def texts(root):
    names = ("steps/step02.py", "steps/step03.py", "tinytorch/box.py")
    return [(root / name).read_text() for name in names]


def test_equal_definitions_take_the_new_text(repository):
    edit(repository, "return x + 1", "return x + 10  # ten")
    before = texts(repository)
    assert carried(repository) == [
        Carried("steps/step02.py", ["helper"]),
        Carried("steps/step03.py", ["helper"]),
        Carried("tinytorch/box.py", ["helper"]),
    ]
    expected = [text.replace("return x + 1", "return x + 10  # ten") for text in before]
    assert texts(repository) == expected


def test_a_changed_definition_is_merged_under_its_new_name(repository):
    edit(repository, "a = 1", "a = 100")
    before = texts(repository)
    assert [each.names for each in carried(repository)] == [
        ["Box.first"],
        ["Case.first"],
        ["Case.first"],
    ]
    assert texts(repository) == [text.replace("a = 1", "a = 100") for text in before]


def test_a_class_docstring_and_a_new_method(repository):
    edit(repository, "Holds.", "Holds a thing.")
    edit(
        repository,
        "        return 2\n",
        "        return 2\n\n    def more(self):\n        return 4\n",
    )
    results = carried(repository)
    assert results[0] == Carried("steps/step02.py", ["Box"])
    text = texts(repository)[0]
    assert "Holds a thing." in text and "def more" in text and "return a * b * c" in text


def test_an_import_and_a_new_function_reach_the_steps(repository):
    edit(repository, "import math", "import math\nimport sys")
    assert carried(repository) == [
        Carried("steps/step02.py", ["the rest"]),
        Carried("steps/step03.py", ["the rest"]),
    ]
    assert all("import math\nimport sys\n" in text for text in texts(repository)[:2])


def test_docstring_and_demo_stay_behind(repository):
    edit(repository, "Words.", "Other words.")
    edit(repository, '"one", 1.5', '"one", 1.5, 2')
    with pytest.raises(CurriculumError, match="nothing to carry"):
        carried(repository)


def test_a_conflict_stops_and_leaves_the_file_alone(repository):
    edit(repository, "return a + b + c", "return a - b - c")
    before = texts(repository)
    [stopped] = carried(repository)
    assert stopped == Stopped(
        "steps/step02.py",
        "Box.first",
        "Mend step02.py by hand, then: python -m steps propagate 2",
    )
    assert texts(repository) == before


def test_from_the_step_that_was_mended_by_hand_it_goes_on(repository):
    edit(repository, "return a * b * c", "return (a * b) - c", "steps/step02.py")
    assert [each.file for each in carried(repository, 2)] == ["steps/step03.py", "tinytorch/box.py"]
    assert all("return (a * b) - c" in text for text in texts(repository))


def test_twice_is_once(repository):
    edit(repository, "a = 1", "a = 100")
    carried(repository)
    assert carried(repository) == []


def test_another_revision(repository):
    edit(repository, "a = 1", "a = 100")
    commit = "-c user.name=A -c user.email=a@b.c commit -q -a -m second"
    subprocess.run(["git", "-C", repository, *commit.split()], check=True)
    assert len(carried(repository, revision="HEAD~1")) == 3
    with pytest.raises(CurriculumError, match="cannot be read from nowhere"):
        carried(repository, revision="nowhere")
