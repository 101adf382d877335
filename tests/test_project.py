"""The repository's frame: the README, the Makefile and the two lists of packages tell the truth."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import tinytorch

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()
QUICKSTART = ROOT / "docs" / "quickstart.md"
CURRICULUM = tomllib.loads((ROOT / "steps" / "curriculum.toml").read_text())
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(), re.M))


def test_the_package_and_pyproject_name_one_version():
    assert tinytorch.__version__ == PYPROJECT["project"]["version"]


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


# --- the two lists of packages ---------------------------------------------------------------


def environment_extras():
    """Read environment.yml: for each extra, its packages. "" stands for what is always needed.

    A package that is switched off (`# - name`) counts: the file names it.
    """
    packages, extra = {"": set()}, ""
    pip_section = (ROOT / "environment.yml").read_text().split("- pip:\n")[1]
    for line in pip_section.splitlines():
        if heading := re.fullmatch(r"\s*# extra: (\w+)", line):
            extra = heading[1]
            packages[extra] = set()
        elif package := re.fullmatch(r"\s*(?:# )?- ([a-z].*)", line):
            packages[extra].add(package[1])
    return packages


def test_environment_and_pyproject_name_the_same_packages():
    conda = environment_extras()
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]

    assert conda[""] == set(project["dependencies"])
    assert conda.keys() - {""} == extras.keys()
    # Each package stands once in environment.yml, under the first extra that asks for it.
    listed = set.union(*conda.values())
    for extra, wanted in extras.items():
        assert conda[extra] <= set(wanted), f"environment.yml lists too much under {extra}"
        assert set(wanted) <= listed, f"environment.yml lacks a package of {extra}"


def test_environment_asks_for_the_same_python():
    wanted = PYPROJECT["project"]["requires-python"]
    assert f"- python{wanted}\n" in (ROOT / "environment.yml").read_text()


def test_numpy_alone_is_required():
    assert [re.match(r"[\w-]+", name)[0] for name in PYPROJECT["project"]["dependencies"]] == [
        "numpy"
    ]


def test_the_environment_that_runs_this_fits_the_project():
    lowest = re.search(r"(\d+)\.(\d+)", PYPROJECT["project"]["requires-python"])
    assert sys.version_info >= (int(lowest[1]), int(lowest[2]))


# --- the README ------------------------------------------------------------------------------


def test_readme_names_only_make_targets_that_exist():
    named = set(re.findall(r"`?make ([a-z-]+)", README))
    assert {"tour", "test"} <= named
    assert named <= MAKE_TARGETS


def test_readme_links_and_pictures_exist():
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", README) + re.findall(r'src="([^"]+)"', README)
    missing = [t for t in targets if "://" not in t and not (ROOT / t).exists()]
    assert targets and not missing


def test_readme_links_to_the_web_edition_or_to_where_it_is_explained():
    site = PYPROJECT["tool"]["tinytorch"]["site"]
    assert f"]({site or 'docs'})" in README


def test_readme_pictures_are_those_of_today():
    """The pictures are text (SVG), and the same on every machine."""
    pictures = runpy.run_path(str(ROOT / "docs" / "make_pictures.py"))
    today = pictures["terminal"](pictures["difference"](14))
    assert (ROOT / "docs" / "step14.svg").read_text() == today, "draw it again: make pictures"
    assert (ROOT / "docs" / "graph.svg").read_text() == pictures["matyas_graph"]()


def test_readme_table_of_stages_is_the_curriculum():
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (\d\d+)(?:-(\d\d+))? \|", README, re.M)
    table = [(int(n), title, int(first), int(last or first)) for n, title, first, last in rows]
    stages = [(s["number"], s["title"], s["first"], s["last"]) for s in CURRICULUM["stage"]]
    assert table == stages


def test_readme_tells_the_hours_that_the_companion_computes():
    from steps.companion.curriculum import Curriculum
    from steps.companion.overview import HOURS_ROW, HOURS_TEXT, tables

    assert len(HOURS_ROW.findall(README)) >= len(CURRICULUM["stage"])
    assert len(HOURS_TEXT.findall(README)) == 1
    assert tables(Curriculum(ROOT))["README.md"] == README, "python -m steps readme"


CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")


def test_the_chinese_readme_has_the_same_commands():
    """Line for line. What stands beside a command, after two spaces, is in its own language."""

    def commands(text):
        blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.S | re.M)
        return [[re.split(r"  +(?!#)", line)[0] for line in each.splitlines()] for each in blocks]

    assert commands(CHINESE) == commands(README)
    words = [Counter(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)))
             for text in (CHINESE, README)]  # fmt: skip
    assert words[0] == words[1]


def test_the_chinese_readme_has_the_same_tables_and_links():
    """Each row has the same numbers and names; each link goes to the same place."""

    def rows(text):
        return [re.findall(r"[\d.,-]*\d", row) for row in re.findall(r"^\|.*\|$", text, re.M)]

    def links(text):
        return Counter(re.findall(r"\]\(([^)]+)\)|^\[.*?\]: (.*)", text, re.M))

    assert rows(CHINESE) == rows(README)
    ours, theirs = links(CHINESE), links(README)
    assert ours - theirs == {("README.md", ""): 1} and theirs - ours == {("README.zh.md", ""): 1}
    assert [len(re.findall(f"^{mark} ", CHINESE, re.M)) for mark in ("#", "##", "-", "1.")] == [
        len(re.findall(f"^{mark} ", README, re.M)) for mark in ("#", "##", "-", "1.")
    ]


def test_the_chinese_readme_tells_the_same_hours():
    from steps.companion.curriculum import Curriculum
    from steps.companion.overview import tables

    assert tables(Curriculum(ROOT))["README.zh.md"] == CHINESE, "python -m steps readme"


def test_readme_names_runs_in_depth_that_exist_and_all_of_them_lie_between_them():
    """ "`tracer` to `compile`" stands for the runs of the curriculum from the one to the other."""
    runs = [run["name"] for run in CURRICULUM["run"]]
    named = set()
    for first, last in re.findall(r"`([a-z]+)` to `([a-z]+)`", README):
        assert runs.index(first) < runs.index(last)
        named |= set(runs[runs.index(first) : runs.index(last) + 1])
    named |= set(re.findall(r"`([a-z]+)`", README)) & set(runs)
    assert named == set(runs)


def test_the_first_command_of_the_readme_shows_a_result_with_numpy_alone(tmp_path):
    """The first block after the introduction, in a folder with what it names and no package."""
    commands = re.findall(r"^```\n(.*?)^```", README, re.S | re.M)[0].splitlines()
    assert commands[0] == "pip install numpy"
    assert commands[1].startswith("python steps/step")
    for name in ("steps/step40a.py", "tinytorch/datasets/digits.csv.gz"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    done = subprocess.run(
        [sys.executable, *commands[1].split()[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"held-out digits right 9[5-9]", done.stdout)


def test_documents_name_only_companion_commands_that_exist():
    from steps.companion.cli import COMMANDS

    documents = README + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"python -m steps ([a-z]+)", documents))
    assert {"run", "diff", "history", "where", "propagate"} <= named
    assert named <= COMMANDS.keys()


def test_readme_example_prints_what_the_readme_says(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(example, "README.md", "exec"), {})
    promised = re.findall(r"# -> (.*)", example)
    assert promised and capsys.readouterr().out.splitlines() == promised


def test_quickstart_prints_what_it_says(capsys, tmp_path, monkeypatch):
    """The page's blocks of code are one program, and its "# ->" are promises."""
    monkeypatch.chdir(tmp_path)  # it saves a file
    blocks = re.findall(r"^```python\n(.*?)^```", QUICKSTART.read_text(), re.S | re.M)
    namespace = {}
    for block in blocks:
        exec(compile(block, "quickstart.md", "exec"), namespace)
        printed = capsys.readouterr().out.splitlines()
        assert printed == re.findall(r"# -> (.*)", block)
    assert len(blocks) >= 4


def test_quickstart_links_exist():
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", QUICKSTART.read_text())
    assert targets and all("://" in t or (QUICKSTART.parent / t).exists() for t in targets)


# --- the benchmarks ----------------------------------------------------------------------------


def test_benchmarks_tell_what_a_peer_lacks(tmp_path, monkeypatch, capsys):
    """A peer that is installed, but cannot be imported, is not "not installed"."""
    from benchmarks.__main__ import peer

    (tmp_path / "broken_peer.py").write_text("import absent_plots\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert peer("broken_peer", "Broken", "broken==1.0") is None
    assert peer("absent_peer", "Absent", "absent==1.0") is None
    assert peer("json", "JSON", "json") is not None
    assert capsys.readouterr().out.splitlines() == [
        "Broken is left out: it needs absent_plots (pip install absent_plots)",
        "Absent is not installed: pip install absent==1.0",
    ]


# --- the Makefile and continuous integration ---------------------------------------------------


def test_the_tour_ends_with_the_one_file_that_reads_digits_and_writes_text():
    makefile = (ROOT / "Makefile").read_text()
    name = re.search(r"^ONE_FILE := (\S+)$", makefile, re.M)[1]
    text = (ROOT / name).read_text()
    assert all(word in text for word in ("--tour", "read_digits()", "write_text(", "generate("))
    assert f"python {name} --tour" in README


def test_continuous_integration_calls_the_readmes_own_test_command():
    assert "make test\n" in README
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text()
    assert "run: make test\n" in (ROOT / ".github" / "workflows" / "test.yml").read_text()


def test_ci_script_is_sound_bash():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, "git must keep .ci/run executable"
    assert "set -euo pipefail" in script.read_text()
    subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.fixture
def lonely(tmp_path):
    """A folder that holds the Makefile, and a way to write a Python that is not good enough."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def make_tour_with(script):
        fake = tmp_path / "python3"
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        command = ["make", "tour", f"PYTHON={fake}"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    return make_tour_with


@needs_make
@pytest.mark.parametrize("user, flags", [(0, ["--allow-root"]), (1000, [])])
def test_notebooks_open_for_root_in_a_container_too(tmp_path, user, flags):
    """Jupyter refuses to run as root unless it is told that this is meant."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "id").write_text(f"#!/bin/sh\necho {user}\n")
    (tmp_path / "id").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = ["make", "--dry-run", "--old-file=.venv/.notebooks", "notebooks"]
    made = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    (line,) = [line for line in made.stdout.splitlines() if "jupyter lab" in line]
    command = line.split(" ", 3)[3]  # behind three settings: one thread
    assert command.split() == [".venv/bin/jupyter", "lab", *flags, "notebooks"]


@needs_make
def test_an_old_python_is_refused_in_plain_words(lonely):
    made = lonely('case "$1" in --version) echo "Python 3.9.2";; *) exit 1;; esac')
    assert made.returncode == 2
    assert "needs Python 3.11 or newer" in made.stderr
    assert "Python 3.9.2" in made.stderr


@needs_make
def test_a_python_without_venv_is_refused_in_plain_words(lonely, tmp_path):
    made = lonely('case "$2" in *ensurepip*) exit 1;; *) exit 0;; esac')
    assert made.returncode == 2
    assert "python3-venv" in made.stderr
    assert not (tmp_path / ".venv").exists()
