"""Which added statements a step's own demo runs, and the figures made of it."""

import pytest

from steps.companion.added import added_statements, changing_lines
from steps.companion.coverage_checks import check_coverage, missed_statements
from steps.companion.stats import HEAD, table

from .conftest import step_text

OLD = """
def known(x):
    return x
"""
NEW = '''
import threading


def known(x):
    if x < 0:
        raise ValueError("negative")
    return x


def unknown(
    x,
    y=0,
):
    """Words."""
    total = (
        x
        + y
    )
    try:
        total += 1
    except TypeError:
        total = None
    return total
'''


def missed(make, framework, demo, toml="", before=OLD):
    """The texts of the added statements that the demo of a second step does not run."""
    curriculum = make({1: step_text(1, before), 2: step_text(2, framework, demo)}, toml=toml)
    step = curriculum.step(2)
    return [step.source.lines[n.start - 1].strip() for n in missed_statements(curriculum, step)]


def test_what_does_not_run_is_named(make):
    found = missed(make, NEW, "print(known(1))  # -> 1")
    assert found == [
        'raise ValueError("negative")',
        "total = (",
        "total += 1",
        "total = None",
        "return total",
    ]


def test_what_runs(make):
    demo = """
    print(unknown(1), unknown(1, 2))  # -> 2 4
    for x in ("a", -1):
        try:
            print(unknown(x) or known(x))
        except (TypeError, ValueError) as error:
            print(error)  # -> negative
    """
    found = missed(make, NEW, demo)
    assert found == ["total = None"]  # "a" + 0 fails above the `try`


def test_what_was_there_before_need_not_run(make):
    extended = OLD + "\n\ndef new():\n    return 1\n"
    assert missed(make, extended, "print(new())  # -> 1") == []
    changed = OLD.replace("return x", "return x + 1")
    assert missed(make, changed, "print(1)  # -> 1") == ["return x + 1"]


def test_what_does_nothing_is_no_statement(make):
    text = '''
class Base:
    """Words."""

    def rule(self):
        """Words."""
        raise NotImplementedError

    def later(self): ...
'''
    assert missed(make, text, "print(1)  # -> 1") == []
    guard = "def f(x):\n    if x:\n        raise NotImplementedError\n"
    assert missed(make, guard, "f(0); print(1)  # -> 1") == ["raise NotImplementedError"]


def test_an_import_with_a_fallback_is_not_owed(make):
    framework = """
try:
    import json
except ImportError:
    json = None
try:
    limit = int("2")
except ValueError:
    limit = 3


def known(x):
    return x
"""
    assert missed(make, framework, "print(known(1))  # -> 1") == ["limit = 3"]


def test_each_kind_of_statement_is_seen(make):
    text = """
import contextlib


class Box[T]:
    size: int
    shape: tuple = ()

    @property
    def all(self):
        return [
            each
            for each in self.shape
        ]


@contextlib.contextmanager
def f(x):
    global unknown
    y: int
    while True:
        match x:
            case 0:
                pass
            case [a, *_] if (
                a
            ):
                x = 0
                continue
            case _:
                x = [1]
                continue
        break
    else:
        x = 1
    for _ in range(2):
        if x: break
        else: ...
    assert not x
    del x
    with contextlib.suppress(ValueError):
        yield lambda: (
            1
        )
    try:
        raise ValueError
    except ValueError:
        pass
    finally:
        y = 2


async def wait():
    return 1
""".replace("[T]", "")
    demo = """
        import asyncio

        with f(5) as g:
            print(g(), asyncio.run(wait()), Box().all)  # -> 1 1 []
    """
    assert missed(make, text, demo) == ["x = 1"]


def test_threads_and_forks_count(make):
    text = "def a():\n    return 1\n\n\ndef b():\n    return 2"
    demo = """
    import os
    import threading

    thread = threading.Thread(target=a)
    thread.start()
    thread.join()
    if not (child := os.fork()):
        b()
        os._exit(0)
    os.waitpid(child, 0)
    print(1)  # -> 1
    """
    assert missed(make, text, demo) == []


def test_a_demo_that_fails_ran_as_far_as_it_came(make):
    text = "def a():\n    return 1\n\n\ndef b():\n    return 2"
    assert missed(make, text, "a()\n1 / 0\nb()\nprint(1)  # -> 1") == ["return 2"]


def test_several_lines_are_one_statement(make):
    curriculum = make({1: step_text(1, OLD), 2: step_text(2, NEW)})
    step = curriculum.step(2)
    found = [
        step.source.lines[lines.start - 1].strip() for lines in added_statements(curriculum, step)
    ]
    assert found == [
        "import threading",
        "if x < 0:",
        'raise ValueError("negative")',
        "def unknown(",
        "total = (",
        "total += 1",
        "total = None",
        "return total",
    ]


@pytest.mark.parametrize(
    ("toml", "count"),
    [("", 1), ("catalogues = [2]\n", 0)],
)
def test_a_lesson_runs_all_and_a_catalogue_most(make, toml, count):
    functions = [f"def f{n}():\n    return {n}" for n in range(10)]
    demo = "\n".join(f"f{n}()" for n in range(9)) + "\nprint(1)  # -> 1"
    steps = {1: step_text(1, "x = 1"), 2: step_text(2, "x = 1\n" + "\n".join(functions), demo)}
    curriculum = make(steps, toml=toml)
    found = [str(each) for each in check_coverage(curriculum, curriculum.step(2))]
    assert len(found) == 2 * count
    if count:
        assert found[0] == (
            "step 02: its demo does not run 1 of the 20 statements that it adds, and all must run: "
            "line 30 (show them, or add them later)"
        )
        assert found[1] == "step 02, line 30: return 9"


def test_a_catalogue_runs_nine_tenths(make):
    functions = [f"def f{n}():\n    return {n}" for n in range(10)]
    steps = {1: step_text(1, "x = 1"), 2: step_text(2, "x = 1\n" + "\n".join(functions), "f1()")}
    curriculum = make(steps, toml="catalogues = [2]\n")
    [first, *_] = check_coverage(curriculum, curriculum.step(2))
    assert (
        "does not run 9 of the 20 statements" in first.what
        and "90% must run: lines 12, 16" in first.what
    )


def test_what_needs_a_program_is_left_out(make):
    text = "def draw():\n    return 1\n\n\ndef b():\n    return 2"
    toml = '[step.2]\nunrun = ["draw"]\nwhy = "it needs dot"\n'
    assert missed(make, text, "print(b())  # -> 2", toml) == []


def test_the_lines_that_change_what_was_there(make):
    box = "class Box:\n    size = 1\n\n    def a(self):\n        return 1"
    new = (
        box.replace("size = 1", "size = 2").replace("return 1", "x = 2\n        return x")
        + "\n\n    def b(self):\n        return 3\n\n\ndef c(): ..."
    )
    curriculum = make({1: step_text(1, box), 2: step_text(2, new)})
    step = curriculum.step(2)
    lines = [step.source.lines[n - 1].strip() for n in sorted(changing_lines(curriculum, step))]
    assert lines == ["size = 2", "x = 2", "return x"]


def test_stats(make):
    steps = {
        1: step_text(1, OLD),
        2: step_text(2, OLD.replace("return x", "return +x"), "print(known(1))  # -> 1"),
        3: step_text(3, OLD.replace("return x", "return +x") + "\n\ny = 1\nz = 2"),
    }
    curriculum = make(steps, toml="catalogues = [3]\n")
    head, stage, everything = table(curriculum, curriculum.steps)
    assert head == HEAD
    assert stage.split() == ["1", "2", "1", "2", "2", "2", "33%", "80.0%"]
    assert everything.split()[1:] == stage.split()[1:]
