"""Practice: the file to begin with, the check, the hints, and the exercises of Part I."""

import ast
import json
from pathlib import Path

import pytest

from steps.companion import practice
from steps.companion.checks import check_form
from steps.companion.cli import main
from steps.companion.curriculum import Curriculum, CurriculumError
from steps.companion.exercise import LINES, MOST, exercise_of

from .conftest import step_text
from .practice_all import (
    DRAWN,
    SLOW,
    UNSEEN,
    drawn_mutants,
    exercises,
    part_one,
    sandbox,
    verdict_on,
)

ROOT = Path(__file__).resolve().parents[2]

BOX = '''
class Box:
    """Holds a number."""

    def __init__(self, n):
        self.n = n

    def get(self):
        """The number."""
        return self.n
'''

# Step 2 changes get, and adds a method and a function; NAME and the class's words are given.
MORE = '''
NAME = "box"


class Box:
    """Holds a number, and adds."""

    def __init__(self, n):
        self.n = n

    def get(self):
        """The number."""
        return self.n + 0.5

    # Both must be boxes.
    def plus(
        self,
        other,
    ):
        """A box with the sum."""
        # not in place
        return Box(self.n + other.n)


def total(boxes): return sum(box.get() for box in boxes)
'''

DEMO = """
box = Box(1)
print("get", box.get())  # -> get 1.5
print("plus", box.plus(Box(3)).get())  # -> plus 4.5
print("total", total([box, box]))  # -> total 3.0
"""

START = '''
NAME = "box"


class Box:
    """Holds a number, and adds."""

    def __init__(self, n):
        self.n = n

    # your turn: as it was in step 01, to be changed
    def get(self):
        """The number."""
        return self.n

    # Both must be boxes.
    def plus(
        self,
        other,
    ):
        """A box with the sum."""
        raise NotImplementedError("your turn: Box.plus")


def total(boxes):
    raise NotImplementedError("your turn: total")
'''

TEXT = """Words about it. The sum of two boxes is a Box of self.n + other.n, a new one.

PyTorch has self.n + other.n too. So total adds what get returns, self.n and a half.

    a figure with boxes and total

Changed: Box.get. New: Box.plus, total."""


def worded(text, words=TEXT):
    return text.replace("Words.\n\nChanged: a.", words)


def steps():
    return {
        1: step_text(1, BOX, 'print("get", Box(1).get())  # -> get 1', title="A box"),
        2: worded(step_text(2, MORE, DEMO, title="More")),
        3: step_text(3, MORE, 'print("only a demo")  # -> only a demo'),
        4: step_text(4, MORE.replace("0.5", "0.25"), "print(Box(1).get())  # -> 1.25"),
    }


@pytest.fixture
def command(make, capsys):
    root = make(steps()).root

    def run(*arguments):
        try:
            status = main([*arguments], root)
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    run.root = root
    run.file = root / "practice" / "step02.py"
    run.solution = steps()[2]
    return run


def exercise(make, text, before=BOX, toml="", demo=DEMO):
    curriculum = make({1: step_text(1, before), 2: step_text(2, text, demo)}, toml=toml)
    return exercise_of(curriculum, curriculum.step(2))


def names(found):
    return [task.name for task in found.tasks] if found else None


def test_the_start_has_text_demo_and_holes(command):
    status, out, err = command("practice", "2")
    assert (status, err) == (0, "")
    assert command.file.read_text() == command.solution.replace(MORE.strip(), START.strip())
    assert out.startswith("Step 02: More\nwrote practice/step02.py\n")
    lines = command.file.read_text().splitlines()
    for name, word in (("Box.get", "change"), ("Box.plus", "write"), ("total", "write")):
        row = next(row for row in out.splitlines() if row.endswith("  " + name))
        assert row.split()[0] == word
        assert f"def {name.rpartition('.')[2]}" in lines[int(row.split()[1].split(":")[1]) - 1]


def test_the_work_of_the_reader_stays(command):
    command("practice", "2")
    command.file.write_text("# mine\n")
    status, out, err = command("practice", "2")
    assert (status, err) == (0, "") and command.file.read_text() == "# mine\n"
    assert out.startswith("practice/step02.py is there and stays as it is; with --again ")
    for count in (1, 2):
        status, out, err = command("practice", "2", "--again")
        assert status == 0 and f"What you had is now practice/step02_before{count}.py" in out
        assert "your turn" in command.file.read_text()
        command.file.write_text("# mine again\n")
    kept = [command.file.with_name(f"step02_before{n}.py").read_text() for n in (1, 2)]
    assert kept == ["# mine\n", "# mine again\n"]


def test_check_names_what_fails_first(command):
    assert command("practice", "2", "--check") == (
        2,
        "",
        "There is no practice/step02.py. Write it with: python -m steps practice 2\n",
    )
    command("practice", "2")
    text = command.file.read_text()
    place = 1 + text.splitlines().index('    print("get", box.get())  # -> get 1.5')
    status, out, _ = command("practice", "2", "--check")
    assert status == 1 and out.splitlines() == [
        f"practice/step02.py:{place}: a promise is not kept",
        "  printed   get 1",
        "  promised  get 1.5",
        "0 of 3 promises kept",
    ]
    text = text.replace("return self.n\n", "return self.n + 0.5\n")
    command.file.write_text(text)
    hole = 'raise NotImplementedError("your turn: Box.plus")'
    place = 1 + [line.strip() for line in text.splitlines()].index(hole)
    status, out, _ = command("practice", "2", "--check")
    first, line, after, count = out.splitlines()
    assert status == 1 and count == "1 of 3 promises kept"
    assert first == f"practice/step02.py:{place}: NotImplementedError: your turn: Box.plus"
    assert line.strip() == hole and after.endswith(" is not reached: plus 4.5")


def test_check_of_a_solution(command):
    command("practice", "2")
    command.file.write_text(command.solution)
    status, out, err = command("practice", "2", "--check")
    assert (status, err) == (0, "")
    assert out.startswith("Box.get, Box.plus and total: right. practice/step02.py keeps the 3 ")
    assert "python -m steps practice 2 --solution" in out and "python -m steps next" in out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "practice/step02.py is empty. Begin anew: python -m steps practice 2 --again"),
        ("  \n", "practice/step02.py is empty. Begin anew: python -m steps practice 2 --again"),
        ("x = (\n", "practice/step02.py, line 1: '(' was never closed"),
        ("x = 1 / 0\n", "practice/step02.py:1: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit()\n", "steps/step02.py:{demo}: a promise is not kept"),
        ("raise SystemExit(3)\n", "practice/step02.py: ended with exit status 3"),
    ],
)
def test_check_of_other_files(command, text, line):
    command("practice", "2")
    command.file.write_text(text)
    demo = 1 + command.solution.splitlines().index('    print("get", box.get())  # -> get 1.5')
    status, out, _ = command("practice", "2", "--check")
    assert status == 1 and out.splitlines()[0] == line.format(demo=demo)


def test_the_promises_of_the_step_count(command):
    """A reader who takes the promises away, or the demo, does not keep them."""
    command("practice", "2")
    text = command.file.read_text()
    for changed in (text.partition("if __name__")[0], text.replace("# -> get 1.5", "")):
        command.file.write_text(changed)
        status, out, _ = command("practice", "2", "--check")
        assert status == 1 and "promised  get 1.5" in out and "steps/step02.py:" in out
    framework = command.solution.partition("if __name__")[0]
    command.file.write_text(framework + 'if __name__ == "__main__":\n    print("a try")\n')
    assert command("practice", "2", "--check")[0] == 0
    assert sorted(path.name for path in command.file.parent.glob("*.py")) == ["step02.py"]


def test_an_endless_file_is_stopped(command, monkeypatch):
    monkeypatch.setattr(practice, "TIMEOUT", 1)
    command("practice", "2")
    command.file.write_text("while True:\n    pass\n")
    status, out, _ = command("practice", "2", "--check")
    assert status == 1 and out.startswith("practice/step02.py: stopped after 1 s\n")


def test_a_hole_that_the_demo_does_not_reach_counts(make, capsys):
    """The demo never calls g: what it needs is right, and g is still to be written."""
    demo = "print(f())  # -> 2"
    text = "def f():\n    return 2\n\n\ndef g():\n    return 3"
    root = make({1: step_text(1, "def f():\n    return 1"), 2: step_text(2, text, demo)}).root
    assert main(["practice", "2"], root) == 0
    path = root / "practice" / "step02.py"
    path.write_text(path.read_text().replace("return 1", "return 2"))
    capsys.readouterr()
    assert main(["practice", "2", "--check"], root) == 1
    assert capsys.readouterr().out == "The promises are kept, and yet to be written: g\n"


def test_a_demo_that_shows_nothing_is_not_offered(make, capsys):
    text = "def f(n):\n    return n + n"
    root = make({1: step_text(1, "def f(n):\n    return 2 * n"), 2: step_text(2, text)}).root
    assert main(["practice", "2"], root) == 2
    assert "The demo of step 2 does not show whether it is solved." in capsys.readouterr().err
    assert not (root / "practice" / "step02.py").exists()
    (root / "practice" / "step02.py").write_text(step_text(2, "def f(n):\n    return 2 * n"))
    assert main(["practice", "2", "--check"], root) == 1
    assert "Nothing is written yet" in capsys.readouterr().out


def test_hints_come_one_after_the_other(command):
    sentences = [
        "Box.get: So total adds what get returns, self.n and a half.",
        "Box.plus: The sum of two boxes is a Box of self.n + other.n, a new one.",
        "total: So total adds what get returns, self.n and a half.",
    ]
    counts = [
        "Box.get: 1 line new or changed",
        "Box.plus: 1 line to write",
        "total: 1 line to write",
    ]
    firsts = [
        "Box.get: the first is return self.n + 0.5",
        "Box.plus: it begins with return Box(self.n + other.n)",
        "total: it begins with return sum(box.get() for box in boxes)",
    ]
    seen = []
    for more in (sentences, counts, firsts, None):
        status, out, err = command("practice", "2", "--hint")
        seen += more or [
            "There are no more hints. The solution: python -m steps practice 2 --solution"
        ]
        assert (status, err) == (0, "") and out.splitlines() == seen
    assert not command.file.exists()


def test_the_solution_stands_beside(command):
    command("practice", "2")
    start = command.file.read_text()
    out = command("practice", "2", "--solution")[1]
    assert command.file.with_name("step02_solution.py").read_text() == command.solution
    assert command.file.read_text() == start
    assert out.startswith("wrote practice/step02_solution.py\n")
    assert "-         return self.n\n" in out and "+         return self.n + 0.5\n" in out
    command.file.write_text(command.solution)
    assert "They are the same." in command("practice", "2", "--solution")[1]


def test_a_step_with_nothing_to_write(command):
    status, out, err = command("practice", "3")
    assert (status, out) == (2, "")
    assert err == "Step 3 leaves no function to write. The next: python -m steps practice 4\n"


def test_progress_and_offers(command):
    assert "practice" not in command("--help")[1].partition("To write:")[2]
    out = command("next", "--at", "2")[1]
    assert out.endswith("Write Box.get, Box.plus and total yourself: python -m steps practice 2\n")
    assert "python -m steps practice" not in command("next", "--at", "3")[1]
    command("next", "--at", "2")
    assert "yourself: python -m steps practice 2\n" in command()[1]
    assert "solved" not in command()[1]
    command("practice")
    command.file.write_text(command.solution)
    command("practice", "--check")
    out = command()[1]
    assert "1 exercise solved" in out and "yourself" not in out
    (command.root / practice.PROGRESS).write_text("[damaged")
    assert "solved" not in command()[1]


def test_progress_of_a_step_that_is_gone(command):
    path = command.root / practice.PROGRESS
    path.parent.mkdir()
    path.write_text(json.dumps({"99": {"solved": True}, "02": {"solved": True}, "01": 3}))
    assert "1 exercise solved" in command()[1]


def test_git_ignores_practice():
    assert "/practice/" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_rule_keeps_to_its_limits(make):
    long = "\n".join(f"    n += {i}" for i in range(LINES))
    text = "\n\n\n".join(f"def f{i}(n):\n    n += {i}\n    return n" for i in range(9))
    found = exercise(make, f"def g(n):\n{long}\n    return n\n\n\n{text}")
    assert len(found.tasks) == MOST and "g" not in names(found)


def test_what_is_no_task(make):
    """Values, abstract methods, and words."""
    text = "LIMIT = 3\n\n\nclass Shape:\n    def area(self):\n        raise NotImplementedError\n\n"
    text += "    def name(self):\n        '''Its name.'''\n\n    def less(self): ...\n"
    assert exercise(make, text) is None
    assert exercise(make, BOX.replace("The number.", "Other words.")) is None
    assert exercise(make, "NAME = 1") is None  # Box is removed


def test_what_the_demo_cannot_run_is_no_task(make):
    toml = '[step.02]\nunrun = ["total", "Box.plus"]\nwhy = "no program"\n'
    assert names(exercise(make, MORE, toml=toml)) == ["Box.get"]


def test_a_wrapper_is_the_last_choice(make):
    lines = "\n".join(f"    n += {i}" for i in range(5))
    text = f"def long(n):\n{lines}\n    return n\n\n\ndef box(n):\n    return Box.apply(n)"
    assert names(exercise(make, text)) == ["long"]
    assert names(exercise(make, "def box(n):\n    return Box.apply(n)")) == ["box"]


def test_curriculum_names_the_tasks(make):
    toml = '[step.02]\npractice = ["total"]\n'
    assert names(exercise(make, MORE, toml=toml)) == ["total"]
    assert exercise(make, MORE, toml="[step.02]\npractice = []\n") is None
    with pytest.raises(CurriculumError, match="does not write or change 'Box.__init__'"):
        exercise(make, MORE, toml='[step.02]\npractice = ["Box.__init__"]\n')
    with pytest.raises(CurriculumError, match="practice is not a list"):
        exercise(make, MORE, toml='[step.02]\npractice = "total"\n')
    text = MORE + "\n\ndef more():\n    return 1\n"
    toml = '[step.02]\npractice = ["Box.get", "Box.plus", "total", "more"]\n'
    with pytest.raises(CurriculumError, match="4 definitions with 4 lines; at most 3 with 20"):
        exercise(make, text, toml=toml)


def test_check_tells_of_a_name_that_is_gone(make):
    curriculum = make(steps(), toml='[step.02]\npractice = ["gone"]\n')
    (complaint,) = check_form(curriculum, curriculum.step(2))
    assert "[step.02] practice: the step does not write or change 'gone'" in str(complaint)
    assert practice.practice_line(curriculum, curriculum.step(2)) == []  # reading goes on


def test_a_renamed_class_and_a_method_that_became_a_function(make):
    toml = '[step.02]\nrenames = {Box = "Case", "Box.get" = "get"}\nwhy = "so"\n'
    text = "class Case:\n    def __init__(self, n):\n        self.n = n\n\n\n"
    text += "def get(case):\n    return Case(case.n).n"
    found = exercise(make, text, toml=toml)
    assert names(found) == ["get"]
    assert found.tasks[0].start == (
        "# your turn: as it was in step 01, to be changed\n"
        'def get(self):\n    """The number."""\n    return self.n'
    )


def test_a_change_that_only_takes_away(make):
    before = BOX + "\n\ndef f(n):\n    n += 1\n    n += 2\n    return n"
    found = exercise(make, BOX + "\n\ndef f(n):\n    n += 2\n    return n", before)
    assert found.hints()[1:] == [["f: 1 line to take away"], ["f: this goes: n += 1"]]


def test_decorators_and_setters(make):
    text = BOX + (
        "\n    @property\n    def size(self):\n        return 1\n"
        "\n    @size.setter\n    def size(self, n):\n        self.n = n\n"
    )
    found = exercise(make, text)
    assert names(found) == ["Box.size", "Box.size (2)"]
    assert found.tasks[1].start == (
        "    @size.setter\n    def size(self, n):\n"
        '        raise NotImplementedError("your turn: Box.size (2)")'
    )
    ast.parse(found.start())


# ---- Part I ----


def test_steps_of_part_one_have_exercises():
    """Of those that write or change a function, all but a few, and none with a fault."""
    curriculum = Curriculum(ROOT)
    found = exercises(curriculum)
    assert len(found) >= 0.85 * len(part_one(curriculum))
    for each in found:
        assert 1 <= len(each.tasks) <= MOST
        assert sum(len(task.lines) for task in each.tasks) <= LINES
        ast.parse(each.start())
        assert each.start(()) == each.step.source.text
        assert [len(group) for group in each.hints()] == [len(each.tasks)] * 3


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The repository's curriculum, with a practice folder of its own, and its quick exercises."""
    curriculum = sandbox(tmp_path_factory.mktemp("sandbox"))
    found = exercises(curriculum)
    return curriculum, [each for each in found if str(each.step.number) not in SLOW]


def test_starts_are_refused_and_solutions_right(quick):
    curriculum, found = quick
    for each in found:
        assert not verdict_on(curriculum, each, each.start()).ok, each.step.label
    for each in found[::3]:
        assert verdict_on(curriculum, each, each.step.source.text).ok, each.step.label


def test_mutants_are_seen(quick):
    """A demo that a wrong answer passes teaches it."""
    curriculum, found = quick
    drawn = drawn_mutants(found)
    assert len(drawn) == DRAWN
    passed = []
    for each, line, text in drawn:
        row = text.splitlines()[line - 1].strip()
        if row not in UNSEEN and verdict_on(curriculum, each, text).ok:
            passed.append(f"{each.step.label}, line {line}: {row}")
    assert not passed
