"""What `diff`, `history` and `where` say about a small curriculum."""

import re

import pytest

from steps.companion.added import added_lines, changing_lines
from steps.companion.curriculum import CurriculumError
from steps.companion.difference import Difference, hunks
from steps.companion.difference_checks import check_difference
from steps.companion.focus import changed_definition
from steps.companion.history import History

from .conftest import step_text

BOX = '''
class Box:
    """Holds."""

    def first(self):
        return 1

    def second(self):
        x = 2
        return x
'''
GROWN = (
    BOX.replace("x = 2", "x = 2 * 3")
    + """
    def third(self):
        return 3
"""
)


@pytest.fixture
def curriculum(make):
    steps = {
        1: step_text(1, BOX, title="A box"),
        2: step_text(2, GROWN, demo='print("two")  # -> two', title="It grows"),
        3: step_text(3, GROWN.replace("Box", "Case") + "\n\n# Alone.\n\nx = 1", title="Its name"),
        4: step_text(4, "from tinytorch.case import Case\n\ny = 2", title="It leaves"),
    }
    files = {"tinytorch/case.py": GROWN.replace("Box", "Case").lstrip()}
    toml = (
        '[modules]\n"tinytorch/case.py" = [1, 2, 3]\n'
        '[step.3]\nrenames = {Box = "Case"}\nwhy = "a better name"\n'
        '[step.4]\nremoves = ["x"]\nwhy = "enough"\n'
    )
    return make(steps, files, toml)


def changes(curriculum, number):
    difference = Difference(curriculum, curriculum.step(number))
    return [(each.kind, each.name, each.size, each.note) for each in difference.changes]


def test_changes_by_name(curriculum):
    assert changes(curriculum, 1) == [("new", "Box", "+6", "")]
    assert changes(curriculum, 2) == [
        ("changed", "Box.second", "+1 -1", ""),
        ("new", "Box.third", "+2", ""),
    ]
    assert changes(curriculum, 3) == [("renamed", "Box", "", "Case"), ("new", "x", "+1", "")]
    assert changes(curriculum, 4) == [("new", "y", "+1", ""), ("removed", "x", "-1", "")]
    difference = Difference(curriculum, curriculum.step(4))
    assert difference.moved_to == {"tinytorch/case.py": ["Case"]}
    assert "  moved to tinytorch/case.py\n            Case\n" in difference.text()


def test_what_is_taken_up_again_is_compared_with_its_last_form(make):
    steps = {
        1: step_text(1, "def f():\n    return 1\n\n\ndef g():\n    return 2"),
        2: step_text(2, "x = 1"),
        3: step_text(3, "x = 1\n\n\ndef f():\n    return 1\n\n\ndef g():\n    return 3"),
    }
    toml = (
        '[modules]\n"tinytorch/case.py" = [1, 3]\n'
        '[step.2]\nremoves = ["f", "g"]\nwhy = "for room"\n'
    )
    curriculum = make(steps, toml=toml)
    found = [("resumed", "f", "", "from step 01"), ("resumed", "g", "+1 -1", "from step 01")]
    assert changes(curriculum, 3) == found
    assert "  resumed   f  from step 01\n" in Difference(curriculum, curriculum.step(3)).text()
    history = History(curriculum, "f").text()
    assert "again, 2 lines" in history and history.endswith("--at 03")


def test_a_change_of_words_only(make):
    steps = {1: step_text(1, BOX), 2: step_text(2, BOX.replace("Holds.", "Holds a thing."))}
    assert changes(make(steps), 2) == [("changed", "Box", "words only", "")]


def test_text(curriculum):
    text = Difference(curriculum, curriculum.step(2)).text()
    assert text.startswith("Step 02: It grows")
    assert "stage 1, lesson 2 of 4" in text
    assert "steps/step01.py -> steps/step02.py, framework" in text
    assert re.search(r"^ +\d+  -         x = 2$", text, re.M)
    assert re.search(r"^ +\d+  \+         x = 2 \* 3$", text, re.M)
    assert "demo: 1 line new (show them with --demo)" in text
    assert 'print("two")' not in text
    assert 'print("two")' in Difference(curriculum, curriculum.step(2)).text(demo=True)


def test_the_place_in_a_stage(make):
    steps = {1: step_text(1, "x = 1"), 2: step_text(2, "x = 2")}
    places = {
        "": "lesson 2 of 2",
        "catalogues = [1]\n": "step 2 of 2, lesson",
        "catalogues = [2]\n": "step 2 of 2, catalogue",
    }
    for toml, place in places.items():
        curriculum = make(steps, toml=toml)
        assert Difference(curriculum, curriculum.step(2)).place == f"stage 1, {place}"


def test_a_line_that_only_follows_a_renaming_is_no_change(make):
    old = BOX + "\n\ndef make():\n    return Box()"
    new = old.replace("Box", "Case").replace("return 1", "return 5")
    toml = '[step.2]\nrenames = {Box = "Case"}\nwhy = "w"\n'
    curriculum = make({1: step_text(1, old), 2: step_text(2, new)}, toml=toml)
    assert changes(curriculum, 2) == [
        ("renamed", "Box", "", "Case"),
        ("changed", "Case.first", "+1 -1", ""),
    ]
    [hunk] = Difference(curriculum, curriculum.step(2)).framework
    assert [line.text.strip() for line in hunk if line.mark != " "] == ["return 1", "return 5"]
    assert list(added_lines(curriculum, curriculum.step(2)).values()) == ["        return 5"]


def test_what_moved_away_is_not_shown_line_by_line(curriculum):
    marked = [
        line for hunk in Difference(curriculum, curriculum.step(4)).framework for line in hunk
    ]
    assert [line.text for line in marked if line.mark == "-"] == ["x = 1"]


@pytest.mark.parametrize(("count", "folded"), [(15, False), (16, True)])
def test_many_definitions_that_go_whole_are_only_named(make, count, folded):
    names = [f"f{number:02}" for number in range(count)]
    old = "\n\n".join(
        f"# Number {number}.\ndef {name}():\n    return {number}\n"
        for number, name in enumerate(names)
    )
    kept = "def kept():\n    return 'kept'\n"
    toml = f'[step.2]\nremoves = {names}\nwhy = "for room"\n'.replace("'", '"')
    curriculum = make(
        {1: step_text(1, f"{old}\n\n{kept}"), 2: step_text(2, kept.replace("'kept'", "1"))},
        toml=toml,
    )
    difference = Difference(curriculum, curriculum.step(2))
    minus = [line.text for hunk in difference.framework for line in hunk if line.mark == "-"]
    text, rows = difference.text(), [f"  removed   {name}  " for name in names]
    assert ("    return 'kept'" in minus) and ("    return 3" in minus) is not folded
    assert ("# Number 3." in minus) is not folded
    assert [row in text for row in rows] == [not folded] * count
    row = "  removed   16 definitions, -32 (they are in steps/step01.py)\n            f00, f01, "
    assert (row in text) is folded
    assert (
        f"<code>{', '.join(names)}</code></td><td>16 definitions, -32" in difference.html()
    ) is (folded)
    assert [change.name for change in difference.changes] == ["kept", *names]
    assert "f03  (removed)" in changed_definition(difference, "f03")


def test_where_the_framework_stays_the_demo_is_shown(make):
    steps = {1: step_text(1, "x = 1"), 2: step_text(2, "x = 1", 'print("new")  # -> new')}
    difference = Difference(make(steps), make(steps).step(2))
    assert "(no change)" in difference.text() and 'print("new")' in difference.text()
    assert "<details open>" in difference.html()
    marks = [(line.mark, line.text.strip()) for [*hunk] in difference.demo for line in hunk]
    assert marks == [(" ", 'if __name__ == "__main__":'), ("+", 'print("new")  # -> new')]


def test_html_is_escaped_and_whole(make):
    steps = {1: step_text(1, "x = 1"), 2: step_text(2, "x = 1 < 2", title="A & B")}
    html = Difference(make(steps), make(steps).step(2))._repr_html_()
    assert "A &amp; B" in html and "x = 1 &lt; 2" in html and "1 < 2" not in html
    for tag in ("div", "pre", "table", "details"):
        assert html.count(f"<{tag}") == html.count(f"</{tag}>") > 0


def test_a_new_method_begins_at_its_own_line():
    """Two methods end alike; the shown block is the new method, not the tail of the old one."""
    old = ["def a():", "    return 1", ""]
    new = ["def a():", "    return 1", "", "def b():", "    return 1", ""]
    numbered = [list(enumerate(lines, 1)) for lines in (old, new)]
    [hunk] = hunks(*numbered)
    assert [line.text for line in hunk if line.mark == "+"] == ["def b():", "    return 1", ""]


def test_history_goes_through_renamings(curriculum):
    text = History(curriculum, "Box.second").text()
    assert text.splitlines()[:4] == [
        "Box.second   2 forms",
        "  01  A box     first, 3 lines",
        "  02  It grows  +1 -1",
        "  03  -> tinytorch/case.py:7  (as Case.second)",
    ]
    assert History(curriculum, "Case.second").text().splitlines()[1].startswith("  01  A box")


def test_history_tells_what_was_taken_away(curriculum):
    assert "  04  It leaves  removed: enough" in History(curriculum, "x").text()
    assert History(curriculum, "x").where().endswith("\n  dropped by  step 04: enough")


def test_history_at(curriculum):
    shown = History(curriculum, "Box.second").at(1)
    assert shown.startswith("Box.second, steps/step01.py, lines ") and "x = 2\n" in shown
    with pytest.raises(CurriculumError, match="Step 4 has no Box.second"):
        History(curriculum, "Box.second").at(4)


def test_where(curriculum):
    assert History(curriculum, "Box.third").where().splitlines() == [
        "Box.third",
        "  lives in    tinytorch/case.py:11  (as Case.third)",
        "  written by  step 02, steps/step02.py:20",
    ]


def test_two_modules_with_one_name_have_a_life_each(make):
    forms = [f"def f():\n    return {n}" for n in range(4)]
    curriculum = make(
        {n: step_text(n, form, title=f"Form {n}") for n, form in enumerate(forms, 1)},
        {"tinytorch/one.py": forms[1], "tinytorch/two.py": forms[3]},
        '[modules]\n"tinytorch/two.py" = [3, 4]\n"tinytorch/one.py" = [2]\n',
    )
    assert History(curriculum, "f").where().splitlines() == [
        "f",
        "  lives in    tinytorch/one.py:1",
        "  written by  step 02, steps/step02.py:10",
        "  began in    step 01, steps/step01.py:10",
        "another f",
        "  lives in    tinytorch/two.py:1",
        "  written by  step 04, steps/step04.py:10",
        "  began in    step 03, steps/step03.py:10",
    ]
    assert History(curriculum, "f").text().splitlines() == [
        "f   2 forms",
        "  01  Form 1  first, 2 lines",
        "  02  Form 2  +1 -1",
        "  02  -> tinytorch/one.py:1",
        "another f   2 forms",
        "  03  Form 3  first, 2 lines",
        "  04  Form 4  +1 -1",
        "  04  -> tinytorch/two.py:1",
        "show one with: python -m steps history f --at 02",
    ]


def test_a_name_that_means_another_thing_is_new(make):
    """`save` of a finished module, and then `save` of the next one."""
    steps = {
        1: step_text(1, "def save(x):\n    return x"),
        2: step_text(2, "def save(y):\n    y += 1\n    return y"),
        3: step_text(3, "def save(y):\n    y += 2\n    return y"),
    }
    files = {"tinytorch/one.py": "def save(x):\n    return x\n"}
    curriculum = make(
        steps, files, '[modules]\n"tinytorch/one.py" = [1]\n"tinytorch/two.py" = [2, 3]\n'
    )
    assert changes(curriculum, 2) == [("new", "save", "+3", "")]
    assert Difference(curriculum, curriculum.step(2)).moved_to == {"tinytorch/one.py": ["save"]}
    assert changes(curriculum, 3) == [("changed", "save", "+1 -1", "")]
    assert len(added_lines(curriculum, curriculum.step(2))) == 3
    assert len(added_lines(curriculum, curriculum.step(3))) == 1
    assert changing_lines(curriculum, curriculum.step(2)) == set()


def test_a_name_is_not_enough_to_have_moved(make):
    """`run` of a lesson is not `run` of a module that it did not build."""
    run = "def run(x):\n    return x + 1\n"
    steps = {
        1: step_text(1, run),
        2: step_text(2, "y = 1"),
        3: step_text(3, "y = 1\n\n\ndef run(x):\n    return [each for each in x if each]"),
        4: step_text(4, "y = 2"),
    }
    toml = '[modules]\n"tinytorch/one.py" = [1]\n[step.4]\nremoves = ["run"]\nwhy = "w"\n'
    curriculum = make(steps, {"tinytorch/one.py": run}, toml)
    assert Difference(curriculum, curriculum.step(2)).moved_to == {"tinytorch/one.py": ["run"]}
    assert changes(curriculum, 4) == [("changed", "y", "+1 -1", ""), ("removed", "run", "-2", "")]
    assert Difference(curriculum, curriculum.step(4)).moved_to == {}
    assert not list(check_difference(curriculum, curriculum.step(4)))
    silent = make(toml=toml.partition("[step.4]")[0])
    [complaint] = check_difference(silent, silent.step(4))
    assert "drops run of step 03 in silence" in str(complaint)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("second", "Did you mean Box.second or Case.second?"),
        ("Boxx", "Did you mean Box"),
        ("Cases", "Did you mean Case"),
        ("transformer", ""),
        ("?", ""),
    ],
)
def test_unknown_names(curriculum, name, found):
    with pytest.raises(CurriculumError) as error:
        History(curriculum, name)
    said = f"{name!r} is not there yet: no step and no module defines it."
    assert str(error.value).startswith(said)
    assert found in str(error.value) if found else str(error.value) == said


def test_a_file_that_begins_anew_is_new(make):
    """Another file's imports and definitions are not taken away in red."""
    curriculum = make(
        {
            1: step_text(1, "import math\nimport sys\n\n\ndef f():\n    return 1"),
            2: step_text(2, "import os\n\n\ndef g():\n    return 2"),
        },
        toml='[step.2]\nremoves = ["f"]\nwhy = "another thing"\n',
    )
    difference = Difference(curriculum, curriculum.step(2))
    assert difference.files == "steps/step02.py"
    assert ("removed", "f", "-2", "") in changes(curriculum, 2)
    marks = [line.mark for hunk in difference.lesson for line in hunk if line.text.strip()]
    assert marks == ["+", "+", "+"]


@pytest.mark.parametrize(("count", "folded"), [(3, False), (4, True)])
def test_many_imports_are_only_counted(make, count, folded):
    imports = "".join(f"import m{n}\n" for n in range(count))
    curriculum = make({1: step_text(1, "x = 1"), 2: step_text(2, f"{imports}\n\nx = 1\n\n\ny = 2")})
    difference = Difference(curriculum, curriculum.step(2))
    added = [line.text for hunk in difference.lesson for line in hunk if line.mark == "+"]
    assert ("import m0" in added) is not folded and "y = 2" in added
    row = f"\n    imports: {count} lines\n"
    assert (row in difference.text()) is folded
    assert (f"imports: {count} lines" in difference.html()) is folded


def test_a_difference_of_any_two_steps(curriculum):
    difference = Difference(curriculum, curriculum.step(4), against=curriculum.step(1))
    assert difference.files == "steps/step04.py" and difference.place == "against step 01"
    assert difference.moved_to == {}
    renamed = Difference(curriculum, curriculum.step(3), against=curriculum.step(1))
    names = {(change.kind, change.name) for change in renamed.changes}
    assert ("new", "Case") in names and ("removed", "Box") in names


BRANCHES = {
    1: "def f():\n    return 1\n\n\ndef g():\n    return 1\n\n\nx = 1",
    2: "def f():\n    return 2\n\n\ndef g():\n    return 1\n\n\nx = 1\ny = 2",
    3: "def f():\n    return 1\n\n\ndef g():\n    return 3\n\n\nx = 1\nz = 3",
    # In an order of its own, and with one line that neither branch has.
    4: "def g():\n    a = 4\n    return 3\n\n\ndef f():\n    return 2\n\n\nx = 1\ny = 2\nz = 3",
}


@pytest.mark.parametrize("joins", [True, False])
def test_what_a_joined_branch_has_is_not_added(make, joins):
    toml = "[step.3]\nfrom = 1\n[step.4]\nfrom = 3\n" + "joins = [2]\n" * joins
    curriculum = make({n: step_text(n, text) for n, text in BRANCHES.items()}, toml=toml)
    step = curriculum.step(4)
    found = [line.strip() for line in added_lines(curriculum, step).values()]
    complaints = [str(each) for each in check_difference(curriculum, step)]
    if joins:
        assert found == ["a = 4"] and complaints == []
    else:
        assert {"return 2", "y = 2"} <= {*found} and "has another place" in complaints[0]


@pytest.mark.parametrize("star", [True, False])
def test_a_file_that_begins_new_drops_all(make, star):
    toml = '[step.2]\nremoves = ["*"]\nwhy = "a new subject"\n' * star
    steps = {1: step_text(1, BRANCHES[1]), 2: step_text(2, "def h():\n    return 0")}
    curriculum = make(steps, toml=toml)
    complaints = [str(each) for each in check_difference(curriculum, curriculum.step(2))]
    assert len(complaints) == (0 if star else 3) and ("silence" in str(complaints)) is not star
