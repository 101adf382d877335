"""Reading the steps one after the other: show, next, the pager, and single definitions."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from steps.companion import cli, promises
from steps.companion.cli import main
from steps.companion.curriculum import Curriculum
from steps.companion.lookup import find, names_of

from .conftest import step_text

ROOT = Path(__file__).resolve().parents[2]
ONE = "class Box:\n    def get(self):\n        return 1\n\n\ndef f():\n    return 1"
TWO = ONE.replace("def f():\n    return 1", "def f():\n    return 2\n\n\ndef g():\n    return 3")


@pytest.fixture
def command(make, capsys):
    steps = {
        1: step_text(1, ONE, title="The first"),
        "2a": step_text("2a", TWO, 'print("two", 1.0)  # -> two 1.0', title="The second"),
        "2b": step_text("2b", TWO.replace("3", "4"), title="The third"),
    }
    curriculum = make(steps)

    def run(*arguments):
        try:
            status = main([*arguments], curriculum.root)
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    run.root = curriculum.root
    return run


def test_show_has_text_difference_demo_and_output(command):
    status, out, err = command("show", "2a")
    assert (status, err) == (0, "")
    places = ["Step 02a: The second", "Words.", "new       g  +2", "+     return 2"]
    places += ["step02a.py, demo", '+     print("two", 1.0)', "python steps/step02a.py"]
    places += ["    two 1.0\n"]
    found = [out.find(each) for each in places]
    assert -1 not in found and found == sorted(found)


def test_show_of_several_steps(command):
    for asked in ("2", "2a-2b", "step02a-step02b.py"):
        out = command("show", asked)[1]
        heads = [line.split() for line in out.splitlines() if line.startswith("Step 0")]
        assert heads == [
            "Step 02a: The second stage 1, lesson 2 of 3".split(),
            "Step 02b: The third stage 1, lesson 3 of 3".split(),
        ]


def test_show_tells_what_is_wrong_with_a_step(command):
    path = command.root / "steps" / "step01.py"
    path.write_text(path.read_text().replace("-> one 1.5", "-> one 1.6"))
    out = command("show", "1")[1]
    assert "    one 1.5\n" in out and "promised  one 1.6" in out


def test_next_remembers_the_place(command):
    titles = [command("next")[1].splitlines()[0][:8] for _ in range(3)]
    assert titles == ["Step 01:", "Step 02a", "Step 02b"]
    assert (command.root / ".steps-place").read_text() == "step 02b\n"
    assert command("next") == (0, "That was the last one.\n", "")
    assert command("show")[1].startswith("Step 02b")
    assert command("next", "--back")[1].startswith("Step 02a")
    assert command("next", "--at", "step01.py")[1].startswith("Step 01")
    assert command("next", "--back") == (0, "There is none before.\n", "")
    assert command("next")[1].startswith("Step 02a")


def test_the_place_may_be_gone(command):
    (command.root / ".steps-place").write_text("01b\n")
    assert command("show")[1].startswith("Step 01")
    assert command("next")[1].startswith("Step 02a")
    (command.root / ".steps-place").write_text("here\n")
    status, out, err = command("next")
    assert (status, out) == (2, "")
    assert err == (
        ".steps-place: 'here' does not name a step. "
        "Set it anew, for example with: python -m steps next --at 01\n"
    )
    assert command("next", "--at", "2b")[1].startswith("Step 02b")


def test_git_ignores_the_place():
    assert "/.steps-place" in (ROOT / ".gitignore").read_text().splitlines()


def on_a_terminal(root, pager, *arguments):
    """What a command shows on a terminal, and its exit status."""
    code = "import sys; from pathlib import Path; from steps.companion.cli import main\n"
    code += f"sys.exit(main({list(arguments)!r}, Path({str(root)!r})))"
    here, there = pty.openpty()
    environment = os.environ | {"PAGER": pager, "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=there,
        stdout=there,
        stderr=there,
        cwd=ROOT,
        env=environment,
    )
    os.close(there)
    out = b""
    try:
        while chunk := os.read(here, 4096):
            out += chunk
    except OSError:  # the other end is closed
        pass
    os.close(here)
    return out.decode(), process.wait()


@pytest.mark.parametrize(("pager", "through"), [("cat -n", True), ("", False), ("gone", False)])
def test_a_terminal_gets_a_pager(command, pager, through):
    """`cat -n` numbers the lines, and so shows that they went through it."""
    out, status = on_a_terminal(command.root, pager, "show", "1")
    assert status == 0
    first = out.splitlines()[0].lstrip()
    assert first.startswith("1\tStep 01: The first" if through else "Step 01: The first")
    assert "one 1.5" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "1", "-v"],
        ["list"],
        ["diff", "1-2"],
        ["history", "f"],
        ["where", "f"],
        ["show"],
        ["find", "the"],
    ],
)
def test_every_reading_command_is_paged(command, arguments):
    out, status = on_a_terminal(command.root, "cat -n", *arguments)
    assert status == 0 and out.lstrip().startswith("1\t")


def test_the_pager_is_fed_step_by_step(command):
    """It ends after the first line, and step 2 has not run by then, nor does it ever."""
    path = command.root / "steps" / "step02b.py"
    path.write_text(
        path.read_text().replace('    print("one"', '    open("ran", "w")\n    print("one"')
    )
    out, status = on_a_terminal(command.root, "head -n 1", "show", "1-2")
    assert (out.count("Step 0"), status) == (1, 0)
    assert not (command.root / "ran").exists()


def test_an_error_is_told_without_a_pager(command):
    out, status = on_a_terminal(command.root, "cat -n", "diff", "2a", "nothing")
    assert status == 2 and out.startswith("Step 2a has no nothing.")


def test_diff_of_one_definition(command):
    status, out, err = command("diff", "2a", "f")
    assert (status, err) == (0, "")
    head, place, *lines = out.splitlines()
    assert head.startswith("Step 02a: The second")
    assert place == "  f, steps/step01.py -> steps/step02a.py"
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        "def f():",
        "-     return 1",
        "+     return 2",
    ]
    assert "  g  (new), steps/step02a.py" in command("diff", "2a", "g")[1]
    out = command("diff", "2", "g")[1]
    assert "(new)" in out and "+     return 4" in out
    assert command("diff", "1-2", "f")[1].count("Step 0") == 2  # 01 and 02a, and not 02b


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["2a", "h"], "Step 2a has no h. It changes f, g.\n"),
        (["2b", "gg"], "Step 2b has no gg. Did you mean g?\n"),
        (["2a", "Box.get"], "Step 2a leaves Box.get as it was. It changes f, g.\n"),
        (["2a-2b", "Box"], "None of the 2 steps changes Box.\n"),
    ],
)
def test_diff_of_a_definition_that_did_not_change(command, arguments, line):
    assert command("diff", *arguments) == (2, "", line)


def test_run_shows_the_output_with_v(command):
    assert "two 1.0" not in command("run", "2a")[1]
    out = command("run", "2a", "-v")[1]
    assert out.startswith("step 02a: The second\n    two 1.0\n\n stage 1  ##########  02a-02a")


def test_an_endless_step_stops_only_run(command, monkeypatch):
    monkeypatch.setattr(promises, "TIMEOUT", 1)
    text = step_text(3, ONE, 'print("begun", flush=True)  # -> begun\nwhile True:\n    pass')
    (command.root / "steps" / "step03.py").write_text(text)
    assert "written by  step 03, steps/step03.py" in command("where", "f")[1]
    assert "f   3 forms" in command("history", "f")[1]
    status, out, _ = command("run", "-v")
    assert status == 1 and "    begun\n\nstep 03: stopped after 1 s" in out and "not 03" in out


def test_help_lists_the_commands(command):
    status, out, err = command("--help")
    assert (status, err) == (0, "")
    assert all(f"\n  {name:10} {text}\n" in out for name, text in cli.COMMANDS.items())
    assert max(map(len, out.splitlines())) <= 100
    assert command("diff", "--help")[1].startswith("usage: python -m steps diff")


def test_a_search_finds_what_parsing_finds():
    """One of seven forms of the repository's definitions, and each that is not a plain name, such
    as "a, b" and "Tensor.grad (2)"."""
    exact, lazy = Curriculum(ROOT), Curriculum(ROOT)
    pairs = zip(exact.steps + exact.built_modules, lazy.steps + lazy.built_modules, strict=True)
    seen = set()
    for parsed, searched in pairs:
        assert parsed.path == searched.path
        for name, definition in parsed.source.definitions.items():
            if (name, definition.text) in seen:
                continue
            seen.add((name, definition.text))
            if len(seen) % 7 and name.replace(".", "").isidentifier():
                continue
            assert find(searched, name) == definition
            vars(searched).pop("source", None)  # it had to be parsed: search again
        single = {name for name in parsed.source.top_level if name.isidentifier()}
        assert single <= set(names_of(searched))


def test_where_parses_little(monkeypatch):
    from steps.companion import source

    parsed = []
    parse = source.ast.parse
    monkeypatch.setattr(source.ast, "parse", lambda text: parsed.append(len(text)) or parse(text))
    assert main(["where", "Variable.backward"], ROOT) == 0
    files = Curriculum(ROOT).steps
    assert sum(parsed) < sum(step.path.stat().st_size for step in files) / 4


def test_a_decorator_of_several_lines(make):
    text = "x = (\n    1\n)\n\n\n@known(\n    1, 2\n)\ndef f():\n    return x"
    curriculum = make({1: step_text(1, text)})
    assert find(curriculum.step(1), "f").text == text.partition("\n\n\n")[2]
