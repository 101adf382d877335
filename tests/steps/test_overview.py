"""Where the reader is, what there is to read, how long it takes, and what a word finds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from steps.companion import minutes as rule
from steps.companion.cli import main
from steps.companion.curriculum import Curriculum
from steps.companion.minutes import check_hours, minutes, told
from steps.companion.overview import check_tables, tables
from steps.companion.references import check_references

from .conftest import RUNS, STAGE, step_text

ROOT = Path(__file__).resolve().parents[2]
FROM = '[step.pool01]\nfrom = 2\n[step.conv01]\nfrom = "pool02"\n'
SECOND = '[[stage]]\nnumber = 2\ntitle = "Later"\nfirst = 21\nlast = 30\n'
NAMES = ["1", "2", "3", "21", "pool01", "pool02", "conv01"]


@pytest.fixture
def curriculum(make):
    steps = {
        name: step_text(name, f"x = {n}", title=f"Title of {name}") for n, name in enumerate(NAMES)
    }
    toml = '[modules]\n"tinytorch/a.py" = [3]\n"tinytorch/b.py" = ["pool01", "pool02"]\n'
    return make(steps, toml=toml + FROM, stages=STAGE + SECOND + RUNS)


@pytest.fixture
def command(curriculum, capsys):
    def run(*arguments):
        try:
            status = main([*arguments], curriculum.root)
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


def test_where_am_i(command):
    status, out, err = command()
    assert (status, err) == (0, "")
    assert out.splitlines()[:4] == [
        "-" * 32 + "  0 of 4 steps, 0 min read, 9 min to go",
        "",
        "next   step 01: Title of 1, 2 min",
        "       It begins stage 1: A small stage.",
    ]
    command("next", "--at", "2")
    assert command()[1].splitlines()[:5] == [
        "#" * 16 + "-" * 16 + "  2 of 4 steps, 5 min read, 5 min to go",
        "",
        "last   step 02: Title of 2",
        "       In depth beside it: pool (2 steps, 5 min). See: python -m steps list pool",
        "next   step 03: Title of 3, 2 min",
    ]
    command("next", "--at", "21")
    out = command()[1]
    assert out.startswith("#" * 32 + "  4 of 4 steps") and "next   " not in out


def test_where_am_i_without_steps(make, capsys):
    assert main([], make().root) == 0
    assert capsys.readouterr().out == "There are no steps yet.\n"


def test_next_stays_on_the_main_road_and_tells_what_lies_beside(command):
    places = [command("next")[1] for _ in range(4)]
    assert [text.split(":")[0] for text in places] == ["Step 01", "Step 02", "Step 03", "Step 21"]
    last = [text.splitlines()[-1] for text in places]
    assert "depth" not in last[0] + last[3]
    assert last[1] == "In depth beside it: pool (2 steps, 5 min). See: python -m steps list pool"
    assert last[2] == "In depth beside it: conv (1 step, 2 min). See: python -m steps list conv"
    out = command("next")[1]
    assert out == "That was the last one.\nIn depth there is more: python -m steps list --all\n"
    status, out, err = command("next", "--at", "pool01")
    assert (status, out) == (2, "")
    assert err == (
        "pool01 is in depth, and next stays on the main road. "
        "Read it with: python -m steps show pool01\n"
    )
    assert command("next", "--back")[1].startswith("Step 03")


def test_a_place_in_depth_counts_as_the_step_beside_it(command, curriculum):
    (curriculum.root / ".steps-place").write_text("step pool01\n")
    assert command("show")[1].startswith("Step pool01")
    assert command("next")[1].startswith("Step 03")


STAGE_1 = [
    "stage 1  A small stage   3 steps, 7 min, 2 read",
    "  01  Title of 1   2 min",
    "> 02  Title of 2   2 min",
    "  03  Title of 3   2 min",
]
MODULE = "      -> tinytorch/a.py"
IN_DEPTH = [
    "  in depth: pool  Pooling, 2 steps, 5 min",
    "  in depth: conv  Convolutions, 1 step, 2 min",
]
STAGE_2 = ["", "stage 2  Later   1 step, 2 min", "  21  Title of 21   2 min"]
POOL = [
    "pool  Pooling   in depth, beside step 02, 2 steps, 5 min",
    "  pool01 Title of pool01   2 min",
    "  pool02 Title of pool02   2 min",
    "      -> tinytorch/b.py",
]
CONV = [
    "",
    "conv  Convolutions   in depth, beside step 03, 1 step, 2 min",
    "  conv01 Title of conv01   2 min",
]


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ([], [*STAGE_1, "  in depth: pool 2, conv 1", *STAGE_2]),
        (["1"], [*STAGE_1, MODULE, *IN_DEPTH]),
        (["2"], STAGE_2[1:]),
        (["pool"], POOL),
        (["--all"], [*STAGE_1, MODULE, "", *POOL, *CONV, *STAGE_2]),
    ],
)
def test_list(command, arguments, rows):
    command("next", "--at", "2")
    assert command("list", *arguments)[1].splitlines() == [*rows, ""]


def test_minutes_by_the_rule(make):
    demo = "y = 1\n\n# four lines\nprint(y)\nprint(y)"
    text = step_text(2, "x = 1\n\n\ndef f():\n    # new\n    return 2", demo)
    curriculum = make({1: step_text(1, "x = 1", "pass"), 2: text})
    words = len("Step 02: A title Words. Changed: a. Try: b.".split())
    assert minutes(curriculum, curriculum.step(2)) == pytest.approx(words / 180 + 3 / 7 + 0.4 + 2)
    assert minutes(curriculum, curriculum.step(1)) == pytest.approx(words / 180 + 1 / 7 + 0.1 + 2)


def test_minutes_of_what_is_taken_up_again(make):
    """A definition that an earlier step wrote is not read once more."""
    f = "def f():\n    a = 1\n    b = 2\n    return a + b"
    steps = {1: step_text(1, f), 2: step_text(2, "x = 1"), 3: step_text(3, f + " + 3")}
    curriculum = make(steps, toml='[modules]\n"tinytorch/a.py" = [1, 3]\n')
    alone = make(toml="")
    count = [minutes(each, each.step(3)) for each in (curriculum, alone)]
    assert count[1] - count[0] == pytest.approx(3 / 7)


def test_a_renaming_is_no_reading(make):
    toml = '[step.2]\nrenames = {f = "g"}\nwhy = "w"\n'
    steps = {n: step_text(n, f"def {name}():\n    return 1") for n, name in ((1, "f"), (2, "g"))}
    curriculum = make(steps, toml=toml)
    words = len("Step 02: A title Words. Changed: a. Try: b.".split())
    assert minutes(curriculum, curriculum.step(2)) == pytest.approx(words / 180 + 0.1 + 2)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 min"), (59.4, "59 min"), (59.6, "1 h 00 min"), (125, "2 h 05 min")]
)
def test_hours_are_told(count, text):
    assert told(count) == text


def test_hours_have_a_limit(curriculum, monkeypatch):
    assert list(check_hours(curriculum)) == []
    monkeypatch.setattr(rule, "HOURS", ((1, 1, 0.1), (2, 2, 1)))
    monkeypatch.setattr(rule, "ALL_HOURS", 0.15)
    assert [str(each) for each in check_hours(curriculum)] == [
        f"{name}: {taken} to read; at most {hours} h are allowed "
        "(cut, or move something into depth)"
        for name, taken, hours in (
            ("stages 1 to 1", "7 min", 0.1),
            ("the main road", "9 min", 0.15),
        )
    ]


def test_the_tables_of_both_roads(curriculum, command):
    wanted = [str(each) for each in check_tables(curriculum)]
    assert wanted == [
        f"steps/{name}README.md: is not what the steps say (python -m steps readme)"
        for name in ("", "depth/")
    ]
    assert command("readme")[1].splitlines() == [
        "wrote steps/README.md",
        "wrote steps/depth/README.md",
    ]
    assert list(check_tables(curriculum)) == []
    main_table = (curriculum.root / "steps" / "README.md").read_text()
    assert "## Stage 1: A small stage\n\n3 steps, 7 min.\n" in main_table
    assert "| [01](step01.py) | Title of 1 | 2 |\n" in main_table
    assert "[pool](depth/README.md#pool-pooling), [conv](depth/README.md#conv-convo" in main_table
    depth = (curriculum.root / "steps" / "depth" / "README.md").read_text()
    assert "## pool: Pooling\n\n2 steps, 5 min; beside step [02](../step02.py).\n" in depth
    assert "| [pool01](pool01.py) | Title of pool01 | 2 |\n" in depth
    path = curriculum.root / "steps" / "step01.py"
    path.write_text(path.read_text().replace("Title of 1", "Another title"))
    [complaint] = check_tables(Curriculum(curriculum.root))
    assert complaint.where == "steps/README.md"


def test_one_road_needs_no_tables(make):
    curriculum = make({1: step_text(1)})
    assert list(check_tables(curriculum)) == [] and list(tables(curriculum)) == ["steps/README.md"]


def test_find(command, curriculum):
    for name, word in (("step03.py", "Momentum"), ("depth/pool01.py", "momentum")):
        path = curriculum.root / "steps" / name
        path.write_text(path.read_text().replace("Words.", f"Of  words and\nof the {word}s of it."))
    path = curriculum.root / "steps" / "depth" / "conv01.py"
    path.write_text(path.read_text().replace("Title of conv01", "Momentum"))
    assert command("find", "momentum")[1].splitlines() == [
        "  conv01 Momentum",
        "  03     steps/step03.py:4: of the Momentums of it.",
        "  pool01 steps/depth/pool01.py:4: of the momentums of it.",
        "3 steps with 'momentum'",
    ]
    assert command("find", "words", "and")[1].splitlines()[-1] == "2 steps with 'words and'"
    assert command("find", "omentum") == (0, "0 steps with 'omentum'.\n", "")


@pytest.mark.parametrize(
    ("words", "bad"),
    [
        ("See pool01.", ["step 02, line 3"]),
        ("As in steps pool01 and pool02.", ["step 02, line 3"] * 2),
        ("In depth: pool01, conv01.", []),
        ("In depth: pool01,\nand conv01.", []),
        ("In depth: pool01.\n\nAnd conv01.", ["step 02, line 5"]),
        ("The pool of 01.", []),
    ],
)
def test_the_main_road_speaks_of_the_depth_in_a_last_line_only(curriculum, words, bad):
    path = curriculum.root / "steps" / "step02.py"
    text = path.read_text().replace("Words.\n\nChanged: a.\nTry: b.\n", f"{words}\n")
    path.write_text(text)
    again = Curriculum(curriculum.root)
    found = list(check_references(again, again.step(2)))
    assert [each.where for each in found] == bad
    path = curriculum.root / "steps" / "depth" / "pool01.py"
    path.write_text(path.read_text().replace("Words.", words))
    again = Curriculum(curriculum.root)
    assert list(check_references(again, again.step("pool01"))) == []


def test_history_tells_the_main_road_first_and_then_each_run(command):
    assert command("history", "x")[1].splitlines() == [
        "x   7 forms",
        "  01  Title of 1       first, 1 line",
        "  02  Title of 2       +1 -1",
        "  03  Title of 3       +1 -1",
        "  21  Title of 21      +1 -1",
        "  in depth, pool: Pooling",
        "  pool01 Title of pool01  +1 -1",
        "  pool02 Title of pool02  +1 -1",
        "  in depth, conv: Convolutions",
        "  conv01 Title of conv01  +1 -1",
        "show one with: python -m steps history x --at 21",
    ]


def test_diff_of_two_steps_of_either_kind(command):
    out = command("diff", "1", "pool02")[1]
    assert out.startswith("Step pool02: Title of pool02") and "against step 01\n" in out
    assert "steps/step01.py -> steps/depth/pool02.py" in out
    assert "-> steps/step03.py" in command("diff", "conv01", "3")[1]
    assert command("diff", "1", "99")[0] == 2


def test_minutes_are_the_same_in_each_run():
    """Python orders a set by the hashes of its elements, which change from run to run."""
    code = (
        "from pathlib import Path; from steps.companion.curriculum import Curriculum; "
        "from steps.companion.minutes import minutes; c = Curriculum(Path()); "
        "print([minutes(c, step) for step in c.steps if step.run and step.run.name == 'core'])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1 and len(said.pop()) > 90
