"""What Sphinx reads: a short file for each page, and the notebooks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from ..companion.curriculum import Run, Stage
from ..companion.minutes import minutes_of, told
from .project import (
    DEFINITIONS,
    DEPTH,
    LABS,
    ROOT,
    Page,
    addresses,
    chosen,
    curriculum,
    definitions,
    formers,
    pages,
    settings,
)


def write_sources(folder: Path) -> None:
    """Write every file that is not there as it should be, and remove those that should not be."""
    texts = {f"{name}.rst": text for name, text in _texts()}
    labs = dict(_labs())
    for path in folder.rglob("*") if folder.exists() else ():
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in texts and name not in labs:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for name, notebook in labs.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = lab_text(notebook, settings()["repository"])
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _texts() -> Iterator[tuple[str, str]]:
    main = [page for page in pages() if isinstance(page.group, Stage)]
    runs: dict[Run, list[Page]] = {}
    for page in pages():
        if isinstance(page.group, Run):
            runs.setdefault(page.group, []).append(page)
    yield "index", _index(main, runs)
    for page in pages():
        yield page.name, _page(page)
    if runs:
        yield f"{DEPTH}/index", _depth(runs)
    yield f"{DEFINITIONS}/index", _definitions()
    for last, names in formers().items():
        once = [name for name in names if name != last]
        title = last + (f", once {', '.join(once)}" if once else "")
        page = definitions()[names[0]]
        back = "`All definitions <index.html>`__"
        text = f":orphan:\n\n{_title(title)}\n\n{back}\n\n.. definition:: {names[0]}\n"
        yield f"{DEFINITIONS}/{page}", text


def _index(main, runs):
    found = [_title("tinytorch"), "", ABOUT.format(hours=_size(_steps(main)))]
    for stage in dict.fromkeys(page.group for page in main):
        mine = [page for page in main if page.group == stage]
        title = f"Stage {stage.number}: {stage.title}"
        found += [f"**{_plain(title)}**, {_size(_steps(mine))}", ""]
        found += [f"- `{_plain(_head(page))} <{page.name}.html>`__" for page in mine]
        found.append(_toctree(title, [page.name for page in mine]))
    more = [f"{DEPTH}/index"] if runs else []
    found.append(_toctree("More", [*more, f"{DEFINITIONS}/index"]))
    found.append(_toctree("Labs", [name.removesuffix(".ipynb") for name, _ in _labs()]))
    return "\n".join(found)


ABOUT = """Build a small PyTorch yourself, and see every line of it being added.

tinytorch is a course made of small programs, called steps. Each step adds one idea to the program
before it, usually in 5 to 30 lines of code. It says what was wrong without that idea, and prints
what it claims. Part I grows one file: from a box with a derivative to a small PyTorch, in under
1,200 lines of code, that trains a convolutional network and a GPT. The main road here: {hours}.

A page has a few steps, one below the other. Of each step you see its text; the lines that it
**adds**, bright, with a plus; those that it removes, with a minus; some lines around; its demo, to
be unfolded; and what it prints. Copied code has neither line numbers nor removed lines. The keys
← and → lead to the page before and to the next one.
"""


def _page(page: Page):
    group = page.group
    if isinstance(group, Run):
        target = addresses().get(group.beside, "")
        beside = f"`step {group.beside} <../{target}>`__" if target else f"step {group.beside}"
        about = f"In depth, *{_plain(group.title)}*, beside {beside}."
    else:
        about = f"Stage {group.number}, *{_plain(group.title)}*."
    orphan = ":orphan:\n\n" if isinstance(group, Run) else ""
    steps = "\n\n".join(f".. step:: {step.number}" for step in page.steps)
    return f"{orphan}{_title(_head(page))}\n\n{about} {_size(page.steps)}.\n\n{steps}\n"


def _head(page):
    title = page.group.title if isinstance(page.group, Run) else page.steps[0].title
    return f"{page.span.replace('-', ' to ')}: {title}"


def _depth(runs):
    found = [
        _title("In depth"),
        "",
        f"How each module of the package was finished: {len(runs)} runs, "
        f"{_size(_steps(page for each in runs.values() for page in each))}. "
        "Each lies beside a step of the main road: you read it when you want to know. What a step "
        "prints is, here, what it promises; the tests hold it to that.",
    ]
    for stage in curriculum().stages:
        mine = {run: each for run, each in runs.items() if run.stage == stage}
        if mine:
            found += ["", _title(f"Stage {stage.number}: {stage.title}", "-"), ""]
        for run, each in mine.items():
            first = each[0]
            found.append(
                f"- `{run.name} <../{first.name}.html>`__: {_plain(run.title)}, "
                f"{_size(_steps(each))}"
            )
    return "\n".join(found) + "\n"


def _definitions():
    found = [_title("Definitions"), "", "Every form that a definition had, step by step.", ""]
    for name, page in sorted(definitions().items(), key=lambda item: item[0].lower()):
        found.append(f"- `{_plain(name)} <{page}.html>`__")
    return "\n".join(found) + "\n"


def _labs() -> Iterator[tuple[str, Path]]:
    stages = {step.stage.number for step in chosen() if step.stage and not step.run}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if int(re.sub(r"\D", "", path.stem)) in stages:
            yield f"{LABS}/{path.name}", path
    for path in sorted((ROOT / "notebooks" / "depth").glob("*.ipynb")):
        if len(chosen()) == len(curriculum().steps):
            yield f"{LABS}/{path.name}", path


def lab_text(path: Path, repository: str) -> str:
    """A notebook; behind its title, where the repository is at GitHub, a button that opens it in
    Colab, a hosted Jupyter with a GPU."""
    text = path.read_text(encoding="utf-8")
    place = repository.removeprefix("https://github.com/").strip("/")
    if place == repository or place.count("/") != 1:
        return text
    notebook = json.loads(text)
    file = path.relative_to(ROOT).as_posix()
    hosted = f"https://colab.research.google.com/github/{place}/blob/main/{file}"
    words = (
        f"[Open this lab in Colab]({hosted}), a hosted Jupyter with a GPU. There, run this first: "
        f"`!git clone {repository}` and `%cd {place.partition('/')[2]}`."
    )
    cell = {"cell_type": "markdown", "id": "open-in-colab", "metadata": {}, "source": [words]}
    notebook["cells"].insert(1, cell)
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


def _steps(found):
    return [step for page in found for step in page.steps]


def _size(steps):
    count = f"{len(steps)} step{'s' if len(steps) != 1 else ''}"
    return f"{count}, {told(minutes_of(curriculum(), steps))}"


def _title(text, line="="):
    return f"{_plain(text)}\n{line * (2 * len(text) + 2)}"


def _plain(text):
    """A text in which nothing is markup."""
    return re.sub(r"([\\*`_|<>])", r"\\\1", text)


def _toctree(caption, names):
    rows = "".join(f"   {name}\n" for name in names)
    return f"\n.. toctree::\n   :caption: {caption}\n   :hidden:\n\n{rows}"
