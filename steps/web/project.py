"""What all pages share: the curriculum, the pages, the addresses, and a cache on disk."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..companion.curriculum import Curriculum, Run, Stage, Step
from ..companion.history import name_in
from ..companion.lookup import text_of
from ..companion.number import Number
from ..companion.reading import main_road

ROOT = Path(__file__).resolve().parents[2]
# In the environment: the steps that a part of the site shows, and the folder that it is written to.
ONLY, FOLDER = "TINYTORCH_SITE_STEPS", "TINYTORCH_SITE"
LEAST, AIM, MOST = 3, 5, 9  # steps of a page
MAIN, DEPTH, DEFINITIONS, LABS = "steps", "depth", "definitions", "labs"  # folders of the site


@dataclass(frozen=True)
class Page:
    """Steps that are read together: a part of a stage, or of a run in depth."""

    group: Stage | Run
    steps: tuple[Step, ...]

    @property
    def span(self) -> str:
        """ "11-14", or the one step that it has."""
        ends = dict.fromkeys((str(self.steps[0].number), str(self.steps[-1].number)))
        return "-".join(ends)

    @property
    def name(self) -> str:
        return f"{DEPTH if isinstance(self.group, Run) else MAIN}/{self.span}"


@cache
def curriculum() -> Curriculum:
    return Curriculum(ROOT)


def folder() -> Path:
    """The pages are in its folder html; beside it what Sphinx reads and remembers, and a cache."""
    return Path(os.environ.get(FOLDER, ROOT / "site"))


@cache
def chosen() -> list[Step]:
    """The steps that the site shows: all, or what `python -m steps.web --only` names."""
    if ONLY not in os.environ:
        return curriculum().steps
    return [step for part in os.environ[ONLY].split(",") for step in curriculum().select(part)]


@cache
def settings() -> dict[str, str]:
    """[tool.tinytorch] of pyproject.toml: the addresses of the repository and of the site."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["tinytorch"]


@cache
def pages() -> list[Page]:
    """Every page of steps: those of the main road, then those in depth."""
    groups = curriculum().groups(chosen())
    return [Page(group, part) for group, steps in groups for part in divided(tuple(steps))]


def divided(steps: tuple[Step, ...]) -> list[tuple[Step, ...]]:
    """Steps as pages of about AIM, so that the parts of a topic (31a, 31b) stay together."""

    @cache
    def best(first: int) -> tuple[int, tuple[int, ...]]:
        """The least cost of the steps from `first` on, and where their pages end."""
        if first == len(steps):
            return 0, ()
        found = []
        for last in range(first + 1, min(first + MOST, len(steps)) + 1):
            inside = last < len(steps) and steps[last].number.topic == steps[last - 1].number.topic
            size = last - first
            cost, ends = best(last)
            cost += (size - AIM) ** 2 + 20 * inside + 20 * (size < LEAST)
            found.append((cost, (last, *ends)))
        return min(found)

    ends = best(0)[1]
    return [steps[a:b] for a, b in zip((0, *ends), ends, strict=False)]


@cache
def addresses() -> dict[Number, str]:
    """Where each step stands: "steps/11-14.html#step14"."""
    return {s.number: f"{page.name}.html#{anchor(s)}" for page in pages() for s in page.steps}


def anchor(step: Step) -> str:
    return str(step.number) if step.run else f"step{step.number}"


@cache
def last_names() -> dict[str, str]:
    """Each definition of the main road that has a page, with the name that it has last."""
    road = main_road(curriculum())
    names = {name for step in chosen() if not step.run for name in step.source.definitions}
    return {name: name_in(curriculum(), name, road[-1]) for name in sorted(names)}


def formers() -> dict[str, list[str]]:
    """All names of each definition, by the last one: {"Tensor": ["Tensor", "Variable"]}."""
    found: dict[str, list[str]] = {}
    for name, last in last_names().items():
        found.setdefault(last, []).append(name)
    return dict(sorted(found.items()))


@cache
def definitions() -> dict[str, str]:
    """The name of the page of each definition, under all the names that it had.

    Where two names differ in upper and lower case only, as Relu and relu, one page gets a longer
    name: not every disk tells them apart.
    """
    taken: dict[str, str] = {}
    for name in formers():
        page = re.sub(r"[^\w.]+", "-", name).lower()
        while page in taken.values():
            page += "_"
        taken[name] = page
    return {name: taken[last] for name, last in last_names().items()}


def link(docname: str, target: str) -> str:
    """The address of a file of the site, seen from a page."""
    return posixpath.relpath(target, posixpath.dirname(docname) or ".")


def digest(*texts: str) -> str:
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode() + b"\0")
    return found.hexdigest()[:32]


@cache
def package_digest() -> str:
    return digest_of("tinytorch/**/*.py", "tinytorch/**/*.gz")


@cache
def tools_digest() -> str:
    """What a difference and a definition's page depend on, beside the steps: the companion, the
    painting, the package, and where everything stands."""
    tools = digest_of("steps/companion/*.py", "steps/web/[cl]*.py", "steps/curriculum.toml")
    places = (f"{name}={where}" for name, where in (addresses() | definitions()).items())
    return digest(package_digest(), tools, *places)


@cache
def steps_digest() -> str:
    return digest(tools_digest(), *map(text_of, curriculum().steps))


def digest_of(*patterns: str) -> str:
    """The digest of the files that some patterns name, from the root."""
    files = sorted(path for each in patterns for path in ROOT.glob(each) if path.is_file())
    return digest(*(str(path.read_bytes()) for path in files))


def cached(kind: str, texts: tuple[str, ...], make: Callable[[], str]) -> str:
    """What `make` returns, from the disk where the texts that it depends on are the same."""
    path = folder() / "cache" / kind / digest(*texts)
    if not path.exists():
        made = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{id(made)}")
        fresh.write_text(made, encoding="utf-8")
        fresh.replace(path)
    return path.read_text(encoding="utf-8")
