"""The command line: what it prints, where, and with which exit status."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import steps
import tinytorch
from steps.companion import checks, cli
from steps.companion.cli import main
from steps.companion.curriculum import Curriculum, CurriculumError
from steps.companion.history import in_the_package, known_names

from .conftest import STAGE, step_text

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def command(make, capsys):
    curriculum = make(
        {
            1: step_text(1, "x = 1", title="The first"),
            2: step_text(2, "x = 2", title="The second"),
            4: step_text(4, "x = 3", 'print("a", 1.0)  # -> a 2.0', title="The fourth"),
        }
    )

    def run(*arguments):
        try:
            status = main([*arguments], curriculum.root)
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


def test_list(command):
    status, out, err = command("list")
    assert (status, err) == (0, "")
    assert out == (
        "stage 1  A small stage   3 steps, 7 min\n  01  The first    2 min\n"
        "  02  The second   2 min\n  04  The fourth   2 min\n\n"
    )


def test_run(command):
    status, out, err = command("run", "1-2")
    assert (status, err) == (0, "")
    assert out.startswith(" stage 1  ##########  01-02   2 steps, 2 promises kept ")


def test_run_leaves_room_for_long_numbers(command, make):
    second = '[[stage]]\nnumber = 2\ntitle = "B"\nfirst = 21\nlast = 200\n'
    make({n: step_text(n) for n in ("103a", "106m")}, stages=STAGE + second)
    _, out, _ = command("run")
    rows = [line.partition("##########  ")[2] for line in out.splitlines()]
    assert [row[:20] for row in rows[1:2]] == ["103a-106m   2 steps,"]
    assert out.splitlines()[0].startswith(" stage 1  ##########  01-04       3 steps")


@pytest.mark.parametrize("text", ["x = (", "x = 1\n  y", b"\xff", b"x = 1\0"])
def test_a_step_that_cannot_be_read_is_named_and_left_out(command, make, tmp_path, text):
    path = tmp_path / "steps" / "step03.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    status, out, err = command("list")
    assert (status, err) == (0, "")
    assert [line[:14] for line in out.splitlines()[1:5]] == [
        "  01  The firs",
        "  02  The seco",
        "  03  step03.p",
        "  04  The four",
    ]
    for arguments in (["where", "x"], ["history", "x"]):
        status, out, err = command(*arguments)
        assert status == 0 and out.startswith("x") and "04" in out
        assert err.startswith("left out: step03.py") and err.count("\n") == 1
    assert command("diff", "2")[0] == 0
    assert command("diff", "4")[::2][0] == 2
    status, out, _ = command("run")
    assert status == 1 and "not 03, 04" in out and "\nstep 03: step03.py" in out
    status, out, _ = command("check")
    assert status == 1 and "step03.py" in out


def test_a_module_that_cannot_be_read_is_named_and_left_out(make, capsys):
    toml = '[modules]\n"tinytorch/a.py" = [1]\n"tinytorch/b.py" = [1]\n'
    files = {"tinytorch/a.py": "x = (", "tinytorch/b.py": "y = 1\n"}
    root = make({1: step_text(1, "x = 1\ny = 1")}, files, toml).root
    assert main(["where", "y"], root) == 0  # a.py has no y
    out, err = capsys.readouterr()
    assert "lives in    tinytorch/b.py:1" in out and err == ""
    assert main(["where", "x"], root) == 0
    out, err = capsys.readouterr()
    assert "written by  step 01, steps/step01.py:10" in out
    assert err == "left out: a.py, line 1: '(' was never closed\n"
    assert main(["check"], root) == 1
    assert "a.py, line 1: '(' was never closed" in capsys.readouterr().out


def test_list_shows_the_kind(make, capsys):
    steps = {1: step_text(1), "2a": step_text("2a", title="Catalogue: the rest"), 3: step_text(3)}
    root = make(steps, toml='catalogues = ["2a"]\n').root
    assert main(["list"], root) == 0
    assert capsys.readouterr().out.splitlines()[1:4] == [
        "  01  A title                            2 min",
        "  02a Catalogue: the rest  (catalogue)   2 min",
        "  03  A title                            2 min",
    ]


def test_run_names_what_is_broken(command):
    status, out, _ = command("run")
    assert status == 1
    assert "3 steps, 2 promises kept, not 04" in out
    assert out.endswith("\nstep 04, line 14: printed   a 1.0\n                  promised  a 2.0\n")


def test_check(command):
    status, out, _ = command("check", "1-2")
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        [name, "2", "steps", "kept"] for name in checks.STEP_CHECKS
    ]
    assert command("check", "1-2", "--only", "form,kind")[1].split()[::4] == ["form", "kind"]
    status, out, _ = command("check", "--only", "package imports")
    assert status == 0 and out.startswith(" package imports  0 files ")
    status, out, _ = command("check")
    assert status == 1
    assert "step 04, line 14: printed 'a 1.0'" in out


def test_the_others(command):
    assert "  changed   x  +1 -1\n" in command("diff", "2")[1]
    assert command("diff", "2", "--html")[1].startswith("<div>")
    assert command("history", "x")[1].startswith("x   3 forms\n")
    assert "x = 2" in command("history", "x", "--at", "2")[1]
    assert command("where", "x")[1].splitlines() == [
        "x",
        "  written by  step 04, steps/step04.py:10",
        "  began in    step 01, steps/step01.py:10",
        "  last in     step 04, steps/step04.py:10",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["rum"], "There is no command 'rum'. Did you mean run?"),
        (["run", "3"], "There is no step 3 yet. The nearest are 2 and 4."),
        (["run", "7-9"], "There is no step 7 yet. The nearest is 4."),
        (["run", "1-9"], "There is no step 9 yet. The nearest is 4."),
        (["run", "4-1"], "4-1 counts down. Write 1-4."),
        (["check", "2-"], "'2-' does not name steps. Write 14, 54a or 11-18."),
        (["check", "--only", "forms"], "There is no check 'forms'. Did you mean form"),
        (["run", "two"], "'two' does not name steps. Write 14, 54a or 11-18."),
        (["diff", "99"], "There is no step 99. The nearest is 4."),
        (["diff", "two"], "'two' does not name steps. Write 14, 54a or 11-18."),
        (["diff", "2b"], "There is no step 2b, but 2."),
        (["list", "2"], "There is no stage 2. There are stages 1 to 1."),
        (["list", "con"], "'con' is no stage (8) and no run in depth (conv)."),
        (["propagate"], "propagate takes the step that changed, or --continue after a stop."),
        (["propagate", "--continue"], "No propagate has stopped"),
        (["move", "1"], "move takes pairs: the old number and the new one."),
        (
            ["where", "xx"],
            "'xx' is not there yet: no step and no module defines it. Did you mean x?",
        ),
        (["where", "X"], "'X' is not there yet: no step and no module defines it. Did you mean x?"),
        (["where", "q"], "'q' is not there yet: no step and no module defines it.\n"),
        (["history", "x", "--at", "3"], "There is no step 3 yet. The nearest are 2 and 4."),
        (["propagate", "1"], "steps/step01.py cannot be read from HEAD:"),
    ],
)
def test_bad_input_gets_one_line_and_status_2(command, arguments, line):
    status, out, err = command(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(line) and err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["diff"], ["run", "1", "2"], ["find"]])
def test_wrong_usage_gets_one_line_and_status_2(command, arguments):
    status, out, err = command(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("python -m steps") and err.count("\n") == 1


PARTS = {name: step_text(name, f"x = {n}") for n, name in enumerate(["3", "5a", "5b", "5c", "6"])}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("5", "05a 05b 05c"),
        ("5b", "05b"),
        ("step5b", "05b"),
        ("step05b.py", "05b"),
        ("steps/step05b.py", "05b"),
        ("3-5", "03 05a 05b 05c"),
        ("5b-6", "05b 05c 06"),
        ("3-5a", "03 05a"),
        ("step05c-step06.py", "05c 06"),
    ],
)
def test_a_selection_with_parts(make, text, numbers):
    found = make(PARTS).select(text)
    assert " ".join(str(step.number) for step in found) == numbers


def test_a_topic_with_parts_is_not_one_step(make):
    curriculum = make(PARTS)
    with pytest.raises(CurriculumError, match=r"^Step 5 has parts. Write 5a, 5b or 5c.$"):
        curriculum.step(5)
    with pytest.raises(CurriculumError, match=r"^There is no step 5d, but 5a, 5b and 5c.$"):
        curriculum.step("5d")
    assert [str(curriculum.before(curriculum.step(n)).number) for n in ("5a", "5b", 6)] == [
        "03",
        "05a",
        "05c",
    ]


def test_propagate_without_git(command, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    status, _, err = command("propagate", "1")
    assert (status, err) == (2, "propagate compares with git's HEAD, and there is no git.\n")


def test_without_numpy(command, monkeypatch):
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    line = "This Python has no NumPy. After `make tour`: source .venv/bin/activate\n"
    assert command("run") == command("check", "1") == command("stats") == (2, "", line)
    assert command("list")[0] == 0


def test_stopped_by_hand(command, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_steps", interrupt)
    assert command("run") == (130, "", "\nstopped\n")


def test_a_narrow_terminal_has_no_bar(command, monkeypatch):
    """The line of progress is written over: it must not wrap."""
    monkeypatch.setattr(cli, "enabled", lambda: True)
    for columns, bar in (("40", False), ("90", True)):
        monkeypatch.setenv("COLUMNS", columns)
        out = command("run", "1-2")[1]
        assert ("----------" in out) == bar
        running = out.replace("\n", "\r").split("\r")[1:-2]
        assert running and all(len(line) < int(columns) for line in running)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("Tensor.sum", "sum"),
        ("torch.nn.Linear", "Linear"),
        ("tinytorch.arccos", "acos"),
        ("Tensor.exp_", "exp"),
        ("exp_", "exp"),
        ("torch.nn.functional.relu", "relu"),
        ("Tensor.__ifloordiv__", "floor_divide"),
        ("torch.long", "int64"),
        ("randn_like", "rand_like, randn_like"),
    ],
)
def test_a_name_as_a_program_writes_it(asked, name, capsys):
    assert main(["where", asked]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == f"{asked}: defined as {name}"
    assert rest[0].startswith("  lives in    tinytorch/")


def test_a_name_that_two_modules_use_means_the_one_that_the_program_writes(capsys):
    for asked, home in (
        ("torch.relu", "ops/elementwise"),
        ("nn.functional.relu", "nn/modules/activation"),
    ):
        assert main(["where", asked]) == 0
        out = capsys.readouterr().out
        assert f"lives in    tinytorch/{home}.py:" in out and "another" not in out


def test_every_function_and_class_of_the_package_has_an_answer():
    curriculum = Curriculum(ROOT)
    known = set(known_names(curriculum))
    places = {"torch": tinytorch, "Tensor": tinytorch.Tensor, "nn": tinytorch.nn}
    places |= {"nn.functional": tinytorch.nn.functional, "optim": tinytorch.optim}
    asked = [
        f"{place}.{name}"
        for place, owner in places.items()
        for name in dir(owner)
        if callable(value := getattr(owner, name)) and not hasattr(object, name)
        if getattr(value, "__module__", "").startswith("tinytorch")
        if name != "__getattr__"  # of the module itself, which step compile28 shows
    ]
    assert len(asked) > 400
    asked = [name for name in asked if name not in known]
    assert [name for name in asked if in_the_package(curriculum, name) not in known] == []


@pytest.mark.parametrize(
    ("asked", "home"),
    [
        ("Variable.backward", "tinytorch/autograd/backward.py"),
        ("Variable.__add__", "tinytorch/ops/arithmetic.py"),
        ("Function.__call__", "tinytorch/autograd/node.py"),
    ],
)
def test_what_a_first_step_wrote_is_found_in_the_package(asked, home, capsys):
    assert main(["where", asked]) == 0
    assert f"lives in    {home}:" in capsys.readouterr().out.splitlines()[1]
    assert main(["history", asked]) == 0
    assert f"-> {home}:" in capsys.readouterr().out.splitlines()[-2]


def test_python_m_steps():
    done = subprocess.run(
        [sys.executable, "-m", "steps", "run", "0"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith("There is no step 0.")


def test_diff_for_a_notebook():
    assert steps.__all__ == ["diff"]
    difference = steps.diff(2)
    assert difference._repr_html_().startswith("<div>")
    assert repr(difference).startswith("Step 02: ")
    assert repr(steps.diff("step02.py")) == repr(difference)
    for wrong in (0, "one", None):
        with pytest.raises(CurriculumError) as error:
            steps.diff(wrong)
        assert error.value._render_traceback_() == [str(error.value)]


def test_import_tinytorch_in_a_step_finds_modules_one_by_one(make, tmp_path):
    """The package's __init__ files do not run, so a step has only what it imports."""
    stand_in = (ROOT / "steps" / "tinytorch.py").read_text()
    make(
        files={
            "steps/tinytorch.py": stand_in,
            "steps/step01.py": "import tinytorch.a.b\nfrom tinytorch.a.c.d import y\n"
            "print(tinytorch.a.b.x, y)\n",
            "tinytorch/__init__.py": "raise RuntimeError",
            "tinytorch/a/__init__.py": "raise RuntimeError",
            "tinytorch/a/b.py": "from .c import d\nx = 1 + d.y",
            "tinytorch/a/c/__init__.py": "raise RuntimeError",
            "tinytorch/a/c/d.py": "y = 2",
        }
    )
    done = subprocess.run(
        [sys.executable, "steps/step01.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("3 2\n", "")


def test_the_stand_in_for_tinytorch_is_on_no_path_here():
    assert str(ROOT / "steps") not in sys.path


def test_run_leaves_out_a_step_whose_program_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(cli.shutil, "which", lambda program: None)
    step = next(step for step in Curriculum(ROOT).steps if step.needs == "cc")
    assert main(["run", str(step.number)], ROOT) == 0
    assert f"{step.label} is left out: there is no program `cc`" in capsys.readouterr().out
