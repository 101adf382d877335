"""Carrying a change on: into equal definitions, changed ones, the package, up to a conflict."""

import subprocess

import pytest

from steps.companion.curriculum import Curriculum, CurriculumError
from steps.companion.merging import Conflict, by_statements, merge
from steps.companion.propagate import PLACE, Carried, propagate, resume

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
    assert (stopped.file, stopped.name) == ("steps/step02.py", "Box.first")
    assert stopped.advice == "Mend step02.py by hand, then: python -m steps propagate --continue"
    assert stopped.forms.splitlines() == [
        "  ours (the later file):",
        "            return a * b * c",
        "  base (before the change):",
        "            return a + b + c",
        "  theirs (the change):",
        "            return a - b - c",
    ]
    assert texts(repository) == before


def go_on(root):
    return list(resume(Curriculum(root)))


def test_continue_takes_up_where_it_stopped(repository):
    edit(repository, "return a + b + c", "return a - b - c")
    edit(repository, "return x + 1", "return x + 10")
    [stopped] = carried(repository)
    edit(repository, "return x + 1", "return x + 10", "steps/step02.py")
    edit(repository, "return a * b * c", "return (a - b) * c", "steps/step02.py")
    assert go_on(repository) == [
        Carried("steps/step03.py", ["helper", "Case.first"]),
        Carried("tinytorch/box.py", ["helper", "Case.first"]),
    ]
    assert all("return (a - b) * c" in text for text in texts(repository))
    with pytest.raises(CurriculumError, match="nothing to go on with"):
        go_on(repository)


def test_continue_shows_the_stop_again_where_nothing_was_mended(repository):
    edit(repository, "return a + b + c", "return a - b - c")
    first = carried(repository)
    assert go_on(repository) == first and go_on(repository) == first


def test_continue_of_a_place_that_cannot_be_read(repository):
    (repository / PLACE).write_text("{}")
    with pytest.raises(CurriculumError, match="Remove it"):
        go_on(repository)


def test_dry_run_writes_nothing_and_names_all_stops(repository):
    edit(repository, "return a + b + c", "return a - b - c")
    edit(repository, "return x + 1", "return x + 10")
    before = texts(repository)
    results = list(propagate(Curriculum(repository), 1, dry=True))
    assert [(type(each).__name__, each.file) for each in results] == [
        ("Stopped", "steps/step02.py"),
        ("Carried", "steps/step02.py"),
        ("Carried", "steps/step03.py"),
        ("Carried", "tinytorch/box.py"),
    ]
    assert texts(repository) == before and not (repository / PLACE).exists()


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


def commit(root):
    for command in ("add .", "-c user.name=A -c user.email=a@b.c commit -q -m more"):
        subprocess.run(["git", "-C", root, *command.split()], check=True)


def test_a_name_that_is_another_thing_later_is_left_alone(make, repository):
    """`helper` of a step after the module is finished: its own, with other text."""
    other = step_text(4, "def helper(x):\n    return x - 1\n")
    make(
        {4: other, 5: other.replace("04", "05")},
        toml=(repository / "steps" / "curriculum.toml").read_text(),
        stages="",
    )
    commit(repository)
    edit(repository, "return x + 1", "return x + 10")
    assert [each.file for each in carried(repository)] == [
        "steps/step02.py",
        "steps/step03.py",
        "tinytorch/box.py",
    ]


def test_what_comes_back_with_the_same_text_takes_the_change(make, repository):
    helper = "def helper(x):\n    return x + 1\n"
    make(
        {4: step_text(4, "def other():\n    pass\n"), 5: step_text(5, helper)},
        toml=(repository / "steps" / "curriculum.toml").read_text(),
        stages="",
    )
    commit(repository)
    edit(repository, "return x + 1", "return x + 10")
    assert carried(repository)[2] == Carried("steps/step05.py", ["helper"])


def test_what_is_resumed_takes_the_change_into_its_new_form(make, repository):
    """Step 5 builds the module again, and rewrites another line of the method."""
    again = THIRD.replace("c = 3", "c = 4")
    toml = (repository / "steps" / "curriculum.toml").read_text().replace("[2, 3]", "[2, 3, 5]")
    make(
        {4: step_text(4, "def other():\n    pass\n"), 5: step_text(5, again)},
        {"tinytorch/box.py": again.replace("import math\n", "import os\n").lstrip()},
        toml=toml,
        stages="",
    )
    commit(repository)
    edit(repository, "a = 1", "a = 100")
    assert [each.file for each in carried(repository)] == [
        "steps/step02.py",
        "steps/step03.py",
        "steps/step05.py",
        "tinytorch/box.py",
    ]
    text = (repository / "tinytorch" / "box.py").read_text()
    assert "a = 100\n        b = 2\n        c = 4\n" in text


BASE = "def f(a, b):\n    c = a\n    d = b\n\n    return c, d"


@pytest.mark.parametrize(
    ("ours", "theirs", "both"),
    [
        # A comment, below a line whose annotation changed
        (("c = a", "c: int = a"), ("d = b", "d = b  # b"), "    c: int = a\n    d = b  # b\n"),
        (("a, b)", "a, b=2)"), ("c = a", "c = -a"), "def f(a, b=2):\n    c = -a\n"),
        (("d = b", "d = -b"), ("    d = b\n", "    d = b\n    d += 1\n"), "d = -b\n    d += 1\n"),
        (("    d = b\n", "    e = 1\n    d = b\n"), ("c = a", "c = -a"), "c = -a\n    e = 1\n"),
        (("c = a", "c = -a"), ("    d = b\n", ""), "c = -a\n\n    return"),
    ],
)
def test_neighbours_are_no_conflict(ours, theirs, both):
    assert both in merge(BASE, BASE.replace(*ours), BASE.replace(*theirs), "f")
    assert both in merge(BASE, BASE.replace(*theirs), BASE.replace(*ours), "f")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (("d = b", "d = -b"), ("d = b", "d = b  # b")),  # one statement
        (("    d = b", "    e = 1\n    d = b"), ("    d = b", "    g = 1\n    d = b")),  # one place
        (("    c = a\n", ""), ("    d = b", "    e = 1\n    d = b")),  # put in where one goes
        (
            ("c = a", "c = 1\n    e = 2"),
            ("    d = b", "    g = 1\n    d = b"),
        ),  # before e or after?
        # between two changes of the other
        (("    c = a\n    d = b\n\n", "    c = 1\n    d = b\n    e = 1\n"), ("d = b", "d = 2")),
        # one statement of several lines
        (
            ("return c, d", "return (\n        c,\n        d,\n    )"),
            ("return c, d", "return c, -d"),
        ),
    ],
)
def test_what_is_not_apart_is_a_conflict(ours, theirs):
    for one, other in ((ours, theirs), (theirs, ours)):
        with pytest.raises(Conflict):
            merge(BASE, BASE.replace(*one), BASE.replace(*other), "f")


def test_a_merge_that_is_no_python_is_a_conflict():
    base = "def f():\n    if a:\n        b()\n    c()"
    ours = base.replace("        b()\n", "        pass\n    else:\n        b()\n")
    assert by_statements(base, ours, base.replace("if a:", "with a:")) is None
