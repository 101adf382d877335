"""Renaming steps: the files, their titles, curriculum.toml, and every reference in words."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from steps.companion.curriculum import Curriculum, CurriculumError
from steps.companion.move import Moves, move
from steps.companion.number import Number

from .conftest import RUNS, STAGE, step_text

ROOT = Path(__file__).resolve().parents[2]

WORDS = '''
# Step 11 is the first; steps 11, 12 and 13 follow it.
x = "step 12"


def f():
    """As in steps 11 to 13 (step12.py), and as the walk of step
    13. It needs 12 steps and step 2, in 12 of 13 cases. `python -m steps diff 12` shows it.
    """
'''
TOML = """
# What step 12 adds.
catalogues = [12, 13]

[modules]
"tinytorch/a.py" = [11, 12]
"tinytorch/b.py" = [12, 13]

[step.12]
gradcheck = ["x.select(0, 12)"]

[step.13]
renames = {x = "y"}
why = "step 12 says so"
"""


def notebook(*cells):
    """The text of a notebook: (type, source, text of the output)."""
    made = [
        {"cell_type": kind, "source": source.splitlines(keepends=True)}
        | (
            {"outputs": [{"name": "stdout", "text": output.splitlines(keepends=True)}]}
            if output
            else {}
        )
        for kind, source, output in cells
    ]
    return json.dumps({"cells": made}, indent=1, ensure_ascii=False) + "\n"


@pytest.fixture
def curriculum(make):
    files = {
        "tinytorch/a.py": WORDS,
        "README.md": "Step 12, `steps/step12.py`, `python -m steps check 11-13`\n",
        "docs/step12.svg": "<svg>step 12</svg>\n",
        "tests/steps/test_x.py": "# step 12\n",
        "notebooks/stage01.ipynb": notebook(
            ("markdown", "## 11 and 12: both\n\nStep 12 is next.", ""),
            ("code", "show(12, f)\nfind(12)\ns = load(13)", "    12 + step\n    13 - step 12\n"),
        ),
    }
    numbers = {n: step_text(n, WORDS, title=f"Number {n}") for n in (10, 11, 12, 13)}
    return make(numbers, files, TOML, STAGE)


def moved(curriculum, *names):
    result = move(curriculum, list(zip(names[::2], names[1::2], strict=True)))
    return result, lambda name: (curriculum.root / name).read_text()


def test_a_lesson_is_put_in(curriculum):
    """12 and 13 become parts, with room for a new 12b."""
    result, text = moved(curriculum, "12", "12a", "13", "12c")
    assert result.renamed == {
        "steps/step12.py": "steps/step12a.py",
        "steps/step13.py": "steps/step12c.py",
        "docs/step12.svg": "docs/step12a.svg",
    }
    assert text("steps/step12c.py").startswith('"""Step 12c: Number 13\n')
    assert text("tinytorch/a.py") == WORDS.lstrip().replace(
        "steps 11, 12 and 13 follow", "steps 11, 12a and 12c follow"
    ).replace('"step 12"', '"step 12a"').replace(
        "11 to 13 (step12.py)", "11 to 12 (step12a.py)"
    ).replace("    13. It", "    12c. It").replace("diff 12`", "diff 12a`")
    assert text("README.md") == ("Step 12a, `steps/step12a.py`, `python -m steps check 11-12`\n")
    assert text("docs/step12a.svg") == "<svg>step 12a</svg>\n"
    assert text("tests/steps/test_x.py") == "# step 12\n"
    cells = json.loads(text("notebooks/stage01.ipynb"))["cells"]
    assert "".join(cells[0]["source"]) == "## 11 and 12a: both\n\nStep 12a is next."
    assert "".join(cells[1]["source"]) == 'show("12a", f)\nfind(12)\ns = load("12c")'
    assert "".join(cells[1]["outputs"][0]["text"]) == "    12 + step\n    13 - step 12a\n"


def test_the_curriculum_follows(curriculum):
    _, text = moved(curriculum, "12", "12a", "13", "12c")
    new = Curriculum(curriculum.root)
    assert [str(step.number) for step in new.steps] == ["10", "11", "12a", "12c"]
    assert [[str(n) for n in m.builders] for m in new.modules] == [["11", "12a"], ["12a", "12c"]]
    assert [step.kind for step in new.steps] == ["lesson", "lesson", "catalogue", "catalogue"]
    assert new.step("12a").gradcheck == ["x.select(0, 12)"]
    assert new.step("12c").why == "step 12a says so"
    assert "# What step 12a adds." in text("steps/curriculum.toml")


def test_there_and_back_changes_nothing(curriculum):
    before = {p: p.read_text() for p in curriculum.root.rglob("*") if p.is_file()}
    moved(curriculum, "12", "15b", "13", "15c", "11", "15a")
    assert "steps 15a, 15b and 15c follow" in (curriculum.root / "tinytorch/a.py").read_text()
    assert "steps 15a to 15c (" in (curriculum.root / "tinytorch/a.py").read_text()
    moved(Curriculum(curriculum.root), "15c", "13", "15a", "11", "15b", "12")
    assert [path.name for path, text in before.items() if path.read_text() != text] == []


def test_a_range_inside_a_topic_keeps_its_letters(make):
    moves = Moves(make({n: step_text(n) for n in ("5a", "5b", "6")}), [("5b", "5c"), ("6", "7")])
    assert moves.text("steps 05a to 05b, steps 05b to 06") == "steps 05a to 05c, steps 05c to 07"


def test_long_lists_are_wrapped_as_they_were(make):
    numbers = [f"{n:02d}{part}" for n in range(1, 18) for part in "abc"]
    rows = [""]
    for number in numbers:
        if len(rows[-1]) > 90:
            rows.append("")
        rows[-1] += f' "{number}",'
    toml = "catalogues = [\n" + "\n".join("   " + row for row in rows) + "\n]\n"
    assert max(map(len, toml.splitlines())) <= 100
    curriculum = make({number: step_text(number) for number in numbers}, toml=toml)
    moved(curriculum, "17c", "18c")
    moved(Curriculum(curriculum.root), "18c", "17c")
    assert curriculum.file.read_text().startswith(toml)


def test_a_permutation(curriculum):
    _, text = moved(curriculum, "12", "13", "13", "12")
    assert text("steps/step12.py").startswith('"""Step 12: Number 13\n')
    assert text("steps/step13.py").startswith('"""Step 13: Number 12\n')
    assert "steps 11, 13 and 12 follow" in text("tinytorch/a.py")
    assert '"tinytorch/a.py" = [11, 13]' in text("steps/curriculum.toml")


def test_history_is_kept_by_git(curriculum):
    git = ["git", "-C", str(curriculum.root)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    moved(curriculum, "12", "12a")
    done = subprocess.run([*git, "status", "--short"], capture_output=True, text=True, check=True)
    assert "steps/step12a.py" in done.stdout and "steps/step12.py" not in done.stdout


def test_what_cannot_be_mapped_is_named(curriculum):
    path = curriculum.root / "tinytorch" / "c.py"
    path.write_text(
        '"""Words.\n\nSubtraction is for step 11, division for 12, the rest (13).\n"""\n'
    )
    (curriculum.root / "tinytorch" / "d.py").write_text("# step 13 " + "x" * 90 + "\n")
    result, _ = moved(curriculum, "12", "14", "13", "15a")
    line = "Subtraction is for step 11, division for 12, the rest (13)."
    assert f"tinytorch/c.py, line 3: {line}" in result.unsure
    assert "tinytorch/d.py, line 1 is longer than 100 columns" in result.unsure


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ([("14", "15")], "There is no step 14 yet. The nearest is 13."),
        ([("12", "13")], "Two steps would have the number 13."),
        ([("12", "15"), ("13", "15")], "Two steps would have the number 15."),
        ([("12", "15"), ("12", "16")], "Step 12 is moved twice."),
        ([("12", "x")], "'x' does not name a step."),
    ],
)
def test_a_wrong_move_is_refused(curriculum, pairs, found):
    with pytest.raises(CurriculumError) as error:
        move(curriculum, pairs)
    assert str(error.value) == found
    assert (curriculum.folder / "step12.py").exists()


def test_a_number_without_a_letter_means_all_parts_of_its_topic(make):
    steps = {n: step_text(n) for n in ("5", "6a", "6b", "7")}
    moves = Moves(make(steps), [("6a", "8a"), ("6b", "8b"), ("7", "9")])
    assert moves.text("step 06, steps 05 to 06, steps 06 and 07") == (
        "step 08, steps 05 to 08, steps 08 and 09"
    )
    assert moves.text("steps 06b to 07, steps 06a-06b") == "steps 08b to 09, steps 08a-08b"


# Between the roads

DEPTH = """Step 12 is one, steps 12 and 13 are two, as steps 11 to 13 and step 14 (all) show.
`python steps/step12.py`, `python -m steps check 12-13`, `python -m steps show 14`, step12.py.
"""


@pytest.fixture
def two_roads(make):
    """11 - 12 - 13 - 14a - 14b, and the runs pool and conv, which have no steps yet."""
    forms = {name: step_text(name, f"x = {n}") for n, name in enumerate(["11", "12", "13"])}
    forms |= {name: step_text(name, f"y = '{name}'") for name in ("14a", "14b")}
    forms["13"] = step_text("13", "from pathlib import Path\n\nhere = Path(__file__).parent / 'a'")
    output = "Step 13: A title\nstep 14: 0.25\n"
    cells = [("code", "show(12)\nload(14)\nload('14a')", output), ("markdown", "## 14: all", "")]
    files = {
        "README.md": DEPTH,
        "tinytorch/a.py": "# As in step 12.\nfrom steps.step12 import x\n",
        "notebooks/stage01.ipynb": notebook(*cells),
    }
    toml = 'catalogues = [13, "14b"]\n\n[modules]\n"tinytorch/a.py" = [12, 13, "14a"]\n\n'
    toml += '[step.12]\ngradcheck = ["x"]\n\n[step.14b]\ngradcheck = ["y"]\n'
    return make(forms, files, toml, STAGE + RUNS)


def test_a_step_goes_into_depth_and_all_keep_what_they_follow(two_roads):
    result, text = moved(two_roads, "12", "conv01")
    assert result.renamed == {"steps/step12.py": "steps/depth/conv01.py"}
    new = Curriculum(two_roads.root)
    assert [str(step.number) for step in new.steps] == ["11", "13", "14a", "14b", "conv01"]
    assert [str(n) for n in new.roads.chain(new.step("14b").number)] == [
        "11", "conv01", "13", "14a", "14b",
    ]  # fmt: skip
    assert [str(n) for n in new.modules[0].builders] == ["conv01", "13", "14a"]
    assert '[step.conv01]\nfrom = 11\ngradcheck = ["x"]\n' in text("steps/curriculum.toml")
    assert '[step.13]\nfrom = "conv01"\n\n[step.14b]' in text("steps/curriculum.toml")
    assert text("steps/depth/conv01.py").startswith('"""Step conv01: A title\n')
    assert text("README.md") == (
        "Step conv01 is one, steps conv01 and 13 are two, as steps 11 to 13 and step 14 "
        "(all) show.\n`python steps/depth/conv01.py`, `python -m steps check conv01-13`, "
        "`python -m steps show 14`, conv01.py.\n"
    )
    assert text("tinytorch/a.py") == "# As in step conv01.\nfrom steps.depth.conv01 import x\n"


def test_there_and_back_between_the_roads_changes_nothing(two_roads):
    before = {p: p.read_bytes() for p in two_roads.root.rglob("*") if p.is_file()}
    there = ("12", "conv01", "13", "conv02", "14a", "pool01")
    moved(two_roads, *there)
    assert len(list(two_roads.folder.glob("depth/*.py"))) == 3
    moved(Curriculum(two_roads.root), *there[::-1])
    after = {p: p.read_bytes() for p in two_roads.root.rglob("*") if p.is_file()}
    assert [p.name for p in after.keys() | before.keys() if after.get(p) != before.get(p)] == []


def test_steps_of_a_run_move_on_by_one(two_roads):
    """Each name is mapped once, also where the new name of one is the old name of the next."""
    moved(two_roads, "12", "conv01", "13", "conv02")
    _, text = moved(Curriculum(two_roads.root), "conv01", "conv02", "conv02", "conv03")
    new = Curriculum(two_roads.root)
    assert [str(step.number) for step in new.steps if step.run] == ["conv02", "conv03"]
    assert [str(n) for n in new.modules[0].builders] == ["conv02", "conv03", "14a"]
    assert "[step.conv02]\nfrom = 11\n" in text("steps/curriculum.toml")
    assert '[step.14a]\nfrom = "conv03"\n' in text("steps/curriculum.toml")


def test_a_whole_topic_becomes_the_range_of_its_names(two_roads):
    moves = Moves(two_roads, [("12", "conv01"), ("14a", "conv02"), ("14b", "pool01")])
    for old, new in {
        "step 14": "steps conv02 and pool01",
        "Steps 12 and 14": "Steps conv01 and conv02 and pool01",
        "steps 13 to 14": "steps 13 to pool01",
        "-m steps run 14": "-m steps run conv02-pool01",
        "step 14.5": "step 14.5",
    }.items():
        assert moves.text(old) == new
    assert moves.cell("load(14)\nload('14a')\nload(12)") == (
        'load("pool01")\nload(\'conv02\')\nload("conv01")'
    )


def test_a_printed_count_is_no_step(two_roads):
    moves = Moves(two_roads, [("12", "conv01"), ("14a", "conv02"), ("14b", "conv03")])
    assert moves.text('start = "Step 14: "') == 'start = "Step 14: "'
    assert moves.text('print(f"step {n}: 1")  # -> step 14: 1\n').endswith("# -> step 14: 1\n")
    assert (
        moves.output("step 14: 0.5\nStep 14a: A title\n") == "step 14: 0.5\nStep conv02: A title\n"
    )


def test_a_path_from_its_own_file_goes_up_one_folder_more(two_roads):
    _, text = moved(two_roads, "13", "conv01")
    assert "Path(__file__).parent.parent / 'a'" in text("steps/depth/conv01.py")


def test_a_wrong_name_of_a_run_is_refused(two_roads):
    with pytest.raises(CurriculumError) as error:
        moved(two_roads, "12", "cnov01")
    assert str(error.value) == (
        "There is no run cnov. List it as a [[run]] in curriculum.toml. Did you mean conv?"
    )


@pytest.mark.slow
def test_a_real_step_goes_to_the_other_road_and_back(tmp_path):
    """Byte for byte: 84a becomes conv01, or, where it is in depth by now, conv01 a main step."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in names.stdout.decode().rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tmp_path / name)
    there = ("84a", "conv01")
    curriculum = Curriculum(tmp_path)
    if "conv" not in curriculum.runs:
        run = '\n[[run]]\nname = "conv"\ntitle = "Convolution"\nbeside = "40b"\nstage = 14\n'
        curriculum.file.write_text(curriculum.file.read_text() + run)
    elif curriculum.step("conv01"):
        there = ("conv01", "98c")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    moved(Curriculum(tmp_path), *there)
    assert not (tmp_path / "steps" / Number.parse(there[0]).file).exists()
    assert (tmp_path / "steps" / Number.parse(there[1]).file).exists()
    moved(Curriculum(tmp_path), *there[::-1])
    after = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert [p.name for p in after.keys() | before.keys() if after.get(p) != before.get(p)] == []
