"""Running a step: which statement printed what, and whether that is what it promised."""

import signal
import time

import pytest

from steps.companion import processes, promises
from steps.companion.matching import matches
from steps.companion.promises import PromiseError, promises_of, run_step

from .conftest import step_text


@pytest.fixture
def outcome(make):
    def run(demo, framework=""):
        curriculum = make({1: step_text(1, framework, demo)})
        return run_step(curriculum.step(1), curriculum.root)

    return run


@pytest.fixture(params=["forked", "started"])
def each_way(request, monkeypatch):
    """A step runs in a fork where there are forks, and in a Python that starts for it elsewhere."""
    if request.param == "forked" and not processes.FORKS:
        pytest.skip("this system does not fork")
    monkeypatch.setattr(processes, "FORKS", request.param == "forked")


@pytest.mark.parametrize(
    ("promised", "printed"),
    [
        ("text", "text"),
        ("3.14", "3.14159"),
        ("3.1415", "3.14159"),
        ("3.1416", "3.14159"),
        ("2.0", "2.0"),
        ("2.", "2."),
        ("[1. 2.5]", "[1. 2.51]"),
        ("4e-11", "4.2e-11"),
        ("-1.5", "-1.52"),
        ("0.0", "-0.0"),
        ("3.297442541400256", "3.2974425414002564"),
        ("took ... s, loss 0.5", "took 12.3 s, loss 0.5004"),
        ("...", "anything"),
        ("x1.5 is a name, 2.5 is none", "x1.5 is a name, 2.51 is none"),
    ],
)
def test_a_promise_accepts_what_it_says(promised, printed):
    assert matches(promised, printed)


@pytest.mark.parametrize(
    ("promised", "printed"),
    [
        ("text", "Text"),
        ("a  b", "a b"),
        ("3.14", "3.13"),
        ("3.14", "3.15"),
        ("2.0", "2"),
        ("2", "2.0"),
        ("2", "3"),
        ("2.", "2.3"),
        ("4e-11", "6e-11"),
        ("-1.5", "1.5"),
        ("float32", "float64"),
        ("took ... s, loss 0.5", "took 12.3 s, loss 0.7"),
        ("1.5", "1.5 and more"),
        ("0.5", "nan"),
    ],
)
def test_a_promise_refuses_everything_else(promised, printed):
    assert not matches(promised, printed)


def test_a_kept_promise(outcome):
    result = outcome('print("x =", 1.5)  # -> x = 1.5')
    assert result.ok and result.kept == 1


def test_a_broken_promise_names_line_and_both_texts(outcome):
    result = outcome('print("x =", 1.25)  # -> x = 1.5')
    assert not result.ok
    line = promises_of(result.step.source)[0].first
    assert result.report() == (
        f"step 01, line {line}: printed   x = 1.25\n" + " " * 17 + "promised  x = 1.5"
    ).replace(" " * 17 + "promised", " " * len(f"step 01, line {line}: ") + "promised")


def test_promises_kept_are_counted_by_statement(outcome):
    loop = "for n in range(2):\n    print(n)\n    # -> 0\n    # -> 5\n"
    assert outcome("print(7)  # -> 7\n" + loop).kept == 1
    assert outcome("print(7)  # -> 7\nif False:\n    print(1)\n    # -> 1\n    # -> 2\n").kept == 1


def test_a_statement_that_never_prints_breaks_its_promise(outcome):
    [broken] = outcome("if False:\n    print(1)  # -> 1\nprint(2)  # -> 2").broken
    assert (broken.promised, broken.printed) == ("1", None)


def test_a_step_that_fails_does_not_list_what_it_never_reached(outcome):
    demo = 'print(1)  # -> 2\nraise ValueError("here")\nprint(3)  # -> 3\nprint(4)  # -> 4'
    report = outcome(demo).report()
    assert "ValueError: here" in report and "promised  2" in report
    assert "2 of its statements with a promise printed nothing" in report
    assert "promised  3" not in report and "(nothing)" not in report


def test_a_statement_of_several_lines(outcome):
    assert outcome('print(\n    "a",\n    "b",\n)  # -> a b').ok


def test_one_promise_in_a_loop_is_about_the_last_line(outcome):
    assert outcome("for n in range(3):\n    print(n)  # -> 2").ok
    assert not outcome("for n in range(3):\n    print(n)  # -> 1").ok


def test_several_promises_are_all_the_lines_in_order(outcome):
    loop = "for n in range(3):\n    print(n)\n    # -> 0\n    # -> 1\n"
    assert outcome(loop + "    # -> 2").ok
    assert not outcome(loop + "    # -> 3").ok
    assert not outcome(loop).ok, "a line too many"
    assert not outcome(loop + "    # -> 2\n    # -> 3").ok, "a line too few"


def test_dots_stand_for_one_line_or_more(outcome):
    loop = "for n in range(9):\n    print(n)\n    # -> 0\n    # -> ...\n"
    assert outcome(loop + "    # -> 8").ok
    assert outcome(loop).ok
    assert not outcome(loop + "    # -> 7").ok
    assert not outcome("print(0)\n# -> 0\n# -> ...").ok


def test_the_first_promise_may_stand_beside_the_print(outcome):
    assert outcome('print("a\\nb")  # -> a\n# -> b').ok


def test_pieces_of_a_line_and_blank_lines(outcome):
    assert outcome('for n in range(3):\n    print(n, end=" ")  # -> 0 1 2\nprint()').ok
    assert outcome('print("\\nTable\\n")  # -> Table').ok


def test_output_of_a_function_belongs_to_the_innermost_promise(outcome):
    beside_call = "def show(x):\n    print(x)"
    assert outcome("show(1)  # -> 1\nshow(2)  # -> 2", beside_call).ok
    inside = "def show(x):\n    print(x)  # -> 2"
    assert outcome("show(1)\nshow(2)", inside).ok
    assert not outcome("show(1)  # -> 1\nshow(2)", inside).ok


def test_a_promise_in_a_string_is_none(outcome):
    result = outcome('print("a # -> b")  # -> a # -> b')
    assert result.ok and result.kept == 1


def test_a_promise_beside_nothing_is_an_error(make):
    curriculum = make({1: step_text(1, demo="x = 1\n\n# -> 1\nprint(x)")})
    with pytest.raises(PromiseError, match="no statement"):
        promises_of(curriculum.step(1).source)


@pytest.mark.usefixtures("each_way")
def test_an_exception_is_reported_from_the_step_on(outcome):
    result = outcome("print(1)  # -> 1\n1 / 0")
    assert result.kept == 1 and "ZeroDivisionError" in result.failure
    assert "runpy" not in result.failure and "recorder" not in result.failure


@pytest.mark.usefixtures("each_way")
def test_a_warning_is_an_error(outcome):
    assert "UserWarning" in outcome('import warnings\nwarnings.warn("old")').failure


@pytest.mark.usefixtures("each_way")
def test_exit_status(outcome):
    assert outcome("print(1)  # -> 1\nraise SystemExit(0)").ok
    assert "exit status 3" in outcome("raise SystemExit(3)").failure
    assert "ended with" in outcome("import os\nos._exit(4)").failure


@pytest.mark.usefixtures("each_way")
def test_a_step_that_hangs_is_stopped(outcome, monkeypatch):
    monkeypatch.setattr(promises, "TIMEOUT", 1)
    assert outcome("while True:\n    pass").failure == "stopped after 1 s"


@pytest.mark.usefixtures("each_way")
def test_what_a_step_started_ends_with_it(outcome, monkeypatch):
    """A process that outlives the step would hold its error output open."""
    monkeypatch.setattr(promises, "TIMEOUT", 1)
    demo = """
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).wait()
    """
    began = time.monotonic()
    assert outcome(demo).failure == "stopped after 1 s"
    assert time.monotonic() - began < 30


def test_a_step_that_closes_its_error_output_and_hangs_is_stopped(outcome, monkeypatch):
    monkeypatch.setattr(promises, "TIMEOUT", 1)
    assert outcome("import os\nos.close(2)\nwhile True:\n    pass").failure == "stopped after 1 s"


def test_a_slow_step_fails(outcome, monkeypatch):
    monkeypatch.setattr(promises, "LIMIT", 0.0)
    assert "the limit is" in outcome("print(sum(range(10**7)) > 0)  # -> True").failure


@pytest.mark.usefixtures("each_way")
def test_a_step_runs_as_its_own_file(outcome):
    """The search path, the arguments and the module are those of `python steps/step01.py`."""
    demo = """
        import os, sys
        print(os.path.basename(sys.path[0]), os.path.basename(sys.argv[0]), len(sys.argv))
        # -> steps step01.py 1
        print(sys.modules["__main__"].__dict__ is globals())  # -> True
        print("steps.companion" in sys.modules)  # -> False
        print(os.environ["OMP_NUM_THREADS"])  # -> 1
    """
    assert outcome(demo).report() == ""


@pytest.mark.usefixtures("each_way")
def test_a_step_does_not_see_what_another_one_did(outcome):
    clean = """
        import json, os, random, sys, threading, warnings
        import numpy as np

        print(repr(np.float64(1.5)), "numpy" in json.__dict__, os.environ.get("LEFT"))
        # -> np.float64(1.5) False None
        print(os.path.basename(os.getcwd()) == "elsewhere", threading.active_count())  # -> False 1
        print(sys.getrecursionlimit(), sys.modules.get("left"))  # -> 1000 None
        print(warnings.filters[-1] is not None, np.geterr()["divide"])  # -> True warn
        print(random.random(), np.random.rand())
    """
    change = """
        np.set_printoptions(legacy="1.25")
        np.seterr(divide="raise")
        np.random.seed(0)
        random.seed(0)
        json.numpy = os.environ["LEFT"] = sys.modules["left"] = "left"
        sys.setrecursionlimit(2000)
        os.mkdir("elsewhere")
        os.chdir("elsewhere")
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print(repr(np.float64(1.5)), np.random.rand(), os.getcwd()[-9:])
        # -> 1.5 0.548813 elsewhere
    """
    first, changed, last = outcome(clean), outcome(clean + change), outcome(clean)
    assert first.report() == changed.report() == last.report() == ""
    lines = {result.output.splitlines()[-1] for result in (first, last)}
    lines.add(changed.output.splitlines()[-2])
    assert len({number for line in lines for number in line.split()}) == 6


@pytest.mark.usefixtures("each_way")
def test_a_step_has_the_environment_of_today(outcome, monkeypatch):
    demo = 'import os\nprint(os.environ.get("TODAY"))'
    for today in ("1", "2"):
        monkeypatch.setenv("TODAY", today)
        assert outcome(demo + f"  # -> {today}").report() == ""


@pytest.mark.skipif(not processes.FORKS, reason="this system does not fork")
def test_one_python_serves_many_tests(outcome, monkeypatch):
    parents = set()
    for test in ("first", "second"):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", test)  # as pytest does
        parents.add(outcome("import os\nprint(os.getppid())").output)
    assert len(parents) == 1


@pytest.mark.skipif(not processes.FORKS, reason="this system does not fork")
def test_a_step_can_press_ctrl_c_in_a_job_in_the_background(outcome, monkeypatch):
    monkeypatch.setattr(processes, "_waiting", [])  # the next Python is started here
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for `make test &`
    try:
        demo = """
            import signal
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                print("stopped")  # -> stopped
        """
        assert outcome(demo).report() == ""
        processes._waiting.pop().close()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_python_that_cannot_import_numpy_says_so(outcome, monkeypatch, tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('damaged')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "damaged" in outcome("print(1)  # -> 1\nimport numpy").failure
