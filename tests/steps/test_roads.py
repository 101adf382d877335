"""Two roads: names like 54b and conv07, the order of reading, and the tree that `from` makes."""

import subprocess
import sys
from pathlib import Path

import pytest

from steps.companion import checks
from steps.companion.cli import main
from steps.companion.curriculum import Curriculum, CurriculumError
from steps.companion.difference import Difference
from steps.companion.history import History, name_in
from steps.companion.number import Number
from steps.companion.propagate import Carried, Stopped, propagate, resume

from .conftest import RUNS, STAGE, step_text

ROOT = Path(__file__).resolve().parents[2]
FROM = """
[step.3]
from = 1

[step.pool01]
from = 2

[step.conv01]
from = "pool02"
"""
NAMES = ["1", "2", "3", "4", "pool01", "pool02", "conv01", "conv02"]


@pytest.fixture
def roads(make):
    """1 - 2 - pool01 - pool02 - conv01 - conv02, and 1 - 3 - 4."""

    def curriculum(forms=None, toml="", files=None):
        forms = forms or dict.fromkeys(NAMES, "x = 1")
        steps = {name: step_text(name, form) for name, form in forms.items()}
        return make(steps, files, toml=toml + FROM, stages=STAGE + RUNS)

    return curriculum


def names(steps):
    return " ".join(step.number.short for step in steps)


@pytest.mark.parametrize(
    ("text", "name", "file"),
    [
        (7, "07", "step07.py"),
        ("54b", "54b", "step54b.py"),
        ("steps/step54b.py", "54b", "step54b.py"),
        ("conv07", "conv07", "depth/conv07.py"),
        ("Conv07.py", "conv07", "depth/conv07.py"),
        ("step conv07", "conv07", "depth/conv07.py"),
        ("steps/depth/conv07.py", "conv07", "depth/conv07.py"),
    ],
)
def test_a_name(text, name, file):
    number = Number.parse(text)
    assert (str(number), number.file) == (name, file)
    assert Number.parse(number) is number


@pytest.mark.parametrize("text", ["conv", "conv7", "conv007", "conv07a", "x", "", None, True])
def test_what_is_no_name(text):
    with pytest.raises(ValueError, match="does not name a step"):
        Number.parse(text)


def test_numbers_have_no_order_of_their_own():
    with pytest.raises(TypeError):
        Number(1) < Number(2)  # noqa: B015


def test_the_order_of_reading_is_the_main_road_and_then_the_runs_as_listed(roads):
    curriculum = roads()
    assert names(curriculum.steps) == "1 2 3 4 pool01 pool02 conv01 conv02"
    assert [step.run and step.run.name for step in curriculum.steps[3:5]] == [None, "pool"]
    assert curriculum.step("conv02").file == "steps/depth/conv02.py"
    assert curriculum.step("conv02").stage.number == 1


def test_before_chain_and_later_follow_from(roads):
    curriculum = roads()
    before = {
        step.number.short: (before.number.short if (before := curriculum.before(step)) else "")
        for step in curriculum.steps
    }
    assert before == {
        "1": "", "2": "1", "3": "1", "4": "3", "pool01": "2", "pool02": "pool01",
        "conv01": "pool02", "conv02": "conv01",
    }  # fmt: skip
    assert names(curriculum.chain(curriculum.step("conv01"))) == "1 2 pool01 pool02 conv01"
    assert names(curriculum.later(curriculum.step(1))) == "2 pool01 pool02 conv01 conv02 3 4"
    assert names(curriculum.later(curriculum.step(2))) == "pool01 pool02 conv01 conv02"
    assert names(curriculum.later(curriculum.step(3))) == "4"


def test_a_module_is_finished_for_those_that_are_read_later_or_stand_on_it(roads):
    toml = '[modules]\n"tinytorch/a.py" = ["pool01"]\n"tinytorch/b.py" = ["conv01"]\n'
    curriculum = roads(toml=toml)
    finished = {
        module.name[-4]: names(s for s in curriculum.steps if curriculum.is_finished(module, s))
        for module in curriculum.modules
    }
    assert finished == {"a": "pool02 conv01 conv02", "b": "conv02"}


def test_a_main_step_may_start_from_a_run(make):
    """Then it stands on the run's steps, though it is read before them."""
    toml = '[modules]\n"tinytorch/a.py" = ["pool01", 3]\n'
    toml += '[step.pool01]\nfrom = 2\n[step.3]\nfrom = "pool01"\n'
    forms = {name: step_text(name, "x = 1") for name in ("1", "2", "3", "pool01")}
    curriculum = make(forms, toml=toml, stages=STAGE + RUNS)
    assert names(curriculum.later(curriculum.step(2))) == "pool01 3"
    assert curriculum.roads.precedes(Number.parse("pool01"), Number.parse(3))
    with pytest.raises(CurriculumError, match="in rising order"):
        make(toml=toml.replace('["pool01", 3]', '[3, "pool01"]'), stages=STAGE + RUNS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("conv", "conv01 conv02"),
        ("conv02", "conv02"),
        ("pool02-conv01", "pool02 conv01"),
        ("3-4", "3 4"),
        (None, "1 2 3 4 pool01 pool02 conv01 conv02"),
    ],
)
def test_a_selection(roads, text, found):
    assert names(roads().select(text)) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3-conv01", "3-conv01 goes from one road to the other. Ask for each by itself: 3, then"),
        ("conv02-conv01", "conv02-conv01 counts down. Write conv01-conv02."),
        ("conv03", "There is no step conv03 yet. The nearest is conv02."),
        ("cnov", "'cnov' does not name steps. Did you mean conv?"),
        ("cnov01", "There is no step cnov01. Did you mean conv?"),
    ],
)
def test_a_selection_that_is_none(roads, text, message):
    with pytest.raises(CurriculumError) as error:
        roads().select(text)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("toml", "found"),
    [
        ("", "conv01 is the first step of its run. Say from where it starts: [step.conv01] from ="),
        ("[step.conv01]\nfrom = 9\n", "[step.conv01] from: there is no step 9"),
        ('[step.conv01]\nfrom = "pond01"\n', "pond01 is of no run that is listed."),
        ("[step.conv01]\nfrom = [1]\n", "[step.conv01] from is not a step"),
        (
            '[step.conv01]\nfrom = "conv03"\n',
            "from goes in a circle: conv01 from conv03 from conv02 from conv01",
        ),
        ("[step.conv01]\nfrom = 1\n[step.1]\nfrom = 1\n", "in a circle: 1 from 1"),
    ],
)
def test_a_wrong_from(make, toml, found):
    steps = {name: step_text(name) for name in ("1", "conv01", "conv02", "conv03")}
    with pytest.raises(CurriculumError) as error:
        make(steps, toml=toml, stages=STAGE + RUNS)
    assert found in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('name = "conv"', 'name = "conv2"', "'conv2' cannot name a run; write lower-case letters"),
        ('name = "conv"', 'name = "step"', "'step' cannot name a run"),
        ('name = "conv"', 'name = "pool"', "the run pool is listed twice"),
        ("beside = 3\n", "", "a [[run]] needs name, title, beside and stage"),
        ("beside = 3", 'beside = "pool01"', "is beside pool01, not on the main road"),
        ("stage = 1", "stage = 9", "there is no stage 9"),
        ("stage = 1", "stages = 1", "'stages' means nothing here. Did you mean stage"),
    ],
)
def test_a_wrong_run(make, old, new, found):
    with pytest.raises(CurriculumError) as error:
        make(stages=STAGE + RUNS.replace(old, new))
    assert found in str(error.value)


def test_numbers_of_a_run_and_strangers(make):
    toml = "[step.pool01]\nfrom = 1\n[step.pool03]\nremoves = []\n"
    toml += '[modules]\n"tinytorch/a.py" = ["conv02"]\n'
    steps = {name: step_text(name) for name in ("1", "pool01", "pool03")}
    files = {"steps/depth/tinytorch.py": "", "steps/depth/pond01.py": ""}
    curriculum = make(steps, files, toml, STAGE + RUNS)
    assert [str(each) for each in checks.check_numbers(curriculum)] == [
        "steps: pool03 is step 2 of its run (write 01, 02, 03, ...)",
        "steps/depth/pond01.py: is no step of a run "
        "(name it after a run of curriculum.toml and two digits: conv07.py)",
    ]
    assert "curriculum.toml, tinytorch/a.py: there is no step conv02 (take it out)" in [
        str(each) for each in checks.check_kinds(curriculum)
    ]


def test_a_run_has_less_room_than_the_main_road(roads):
    forms = dict.fromkeys(NAMES, "x = 1\n" * 1001)
    curriculum = roads(forms)
    assert list(checks.check_form(curriculum, curriculum.step("4"))) == []
    [complaint] = checks.check_form(curriculum, curriculum.step("conv01"))
    assert complaint.what == "has 1001 lines of code above the demo; at most 1000 are allowed"
    curriculum.step("conv01").long = 1001
    assert list(checks.check_form(curriculum, curriculum.step("conv01"))) == []


def test_a_difference_is_taken_against_from(roads):
    forms = dict.fromkeys(NAMES, "x = 1") | {"2": "x = 2", "pool01": "x = 3", "3": "x = 4"}
    curriculum = roads(forms)
    difference = Difference(curriculum, curriculum.step("pool01"))
    assert difference.files == "steps/step02.py -> steps/depth/pool01.py"
    assert difference.place == "in depth, pool 1 of 2"
    assert "- x = 2" in difference.text() and "+ x = 3" in difference.text()
    assert Difference(curriculum, curriculum.step(3)).files == "steps/step01.py -> steps/step03.py"
    assert Difference(curriculum, curriculum.step(3)).place == "stage 1, lesson 3 of 4"


def test_each_branch_has_forms_of_its_own(roads):
    forms = dict.fromkeys(NAMES, "x = 1") | {"2": "x = 2", "3": "x = 3", "4": "x = 3"}
    forms |= {"pool01": "x = 2", "pool02": "x = 4", "conv01": "x = 4", "conv02": "x = 4"}
    [life] = History(roads(forms), "x").lives
    assert [(form.step.number.short, form.size) for form in life.forms] == [
        ("1", "first, 1 line"),
        ("2", "+1 -1"),
        ("3", "+1 -1"),
        ("pool02", "+1 -1"),
    ]


def test_a_renaming_holds_in_its_branch_only(roads):
    forms = dict.fromkeys(NAMES, "y = 1") | {"1": "x = 1", "3": "x = 1", "4": "x = 1"}
    curriculum = roads(forms, toml='[step.2]\nrenames = {x = "y"}\nwhy = "short"\n')
    called = {step.number.short: name_in(curriculum, "x", step) for step in curriculum.steps}
    assert [name for name, each in called.items() if each == "x"] == ["1", "3", "4"]
    assert name_in(curriculum, "y", curriculum.step(4)) == "x"


def test_propagate_reaches_all_branches_and_stops_only_where_it_must(roads):
    text = "def f():\n    a = 1\n    return a"
    forms = dict.fromkeys(NAMES, text)
    forms |= {"pool02": text.replace("return a", "return b")}
    forms |= {name: forms["pool02"] for name in ("conv01", "conv02")}
    toml = '[modules]\n"tinytorch/a.py" = [2]\n"tinytorch/b.py" = ["conv02"]\n'
    files = {"tinytorch/a.py": text + "\n", "tinytorch/b.py": forms["conv02"] + "\n"}
    root = roads(forms, toml, files).root
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], check=True)
    path = root / "steps" / "step01.py"
    path.write_text(path.read_text().replace("return a", "return c"))
    results = list(propagate(Curriculum(root), 1))
    assert [each for each in results if isinstance(each, Carried)] == [
        Carried(file, ["f"])
        for file in (
            "steps/step02.py",
            "steps/depth/pool01.py",
            "steps/step03.py",
            "steps/step04.py",
            "tinytorch/a.py",
        )
    ]
    [stopped] = [each for each in results if isinstance(each, Stopped)]
    assert (stopped.file, stopped.name) == ("steps/depth/pool02.py", "f")
    path = root / "steps" / "depth" / "pool02.py"
    path.write_text(path.read_text().replace("return b", "return b + c"))
    assert [each.file for each in resume(Curriculum(root))] == [
        "steps/depth/conv01.py",
        "steps/depth/conv02.py",
        "tinytorch/b.py",
    ]
    assert "return b + c" in (root / "tinytorch" / "b.py").read_text()


def test_run_and_stats_go_by_stage_and_run(roads, capsys):
    root = roads().root

    def rows(*arguments):
        assert main(["run", *arguments], root) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.split("##########")[1].split()[0] for line in lines]

    assert rows() == ["01-04"]  # the main road
    assert rows("pool") == ["pool01-pool02"]
    assert rows("--all") == ["01-04", "pool01-pool02", "conv01-conv02"]
    with pytest.raises(SystemExit, match="2"):
        main(["run", "pool", "--all"], root)
    capsys.readouterr()
    assert main(["stats"], root) == 0
    heads = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert heads == ["stage", "1", "pool", "conv", "all"]


def test_a_step_in_depth_runs_without_installation(make, tmp_path):
    for name in ("steps/tinytorch.py", "steps/depth/tinytorch.py"):
        make(files={name: (ROOT / name).read_text()})
    make(
        files={
            "steps/depth/conv01.py": "from tinytorch.a.b import x\nprint(x)\n",
            "tinytorch/__init__.py": "raise RuntimeError",
            "tinytorch/a/__init__.py": "raise RuntimeError",
            "tinytorch/a/b.py": "x = 3",
        }
    )
    done = subprocess.run(
        [sys.executable, "steps/depth/conv01.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.parametrize("folder", ["steps", "steps/depth", "tests", "notebooks"])
def test_no_folder_has_more_entries_than_a_page_shows(folder):
    """A page of the repository lists 1,000 files."""
    assert len([path for path in (ROOT / folder).iterdir() if path.name[0] not in "._"]) <= 1000


def test_ls_is_the_order_of_reading():
    curriculum = Curriculum(ROOT)
    main_road = [step.path.name for step in curriculum.steps if not step.run]
    assert main_road == sorted(main_road)
    assert {step.number.topic for step in curriculum.steps if not step.run} <= set(range(1, 99))
