"""Build the web edition: python -m steps.web [--only STEPS] [--to FOLDER]"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from ..companion.curriculum import CurriculumError
from .ahead import make_all
from .links import dead_links
from .outputs import BrokenStep
from .project import FOLDER, ONLY, folder
from .sources import write_sources


def main(arguments: list[str] | None = None) -> int:
    """Write the pages. 1: Sphinx had a warning, or a link leads nowhere."""
    parser = argparse.ArgumentParser(prog="python -m steps.web", description="the web edition")
    parser.add_argument("--only", metavar="STEPS", help="a part of it: 11-18, or 01-60c,conv")
    parser.add_argument("--to", metavar="FOLDER", help="where to write; by default site")
    options = parser.parse_args(arguments)
    for name, value in ((ONLY, options.only), (FOLDER, options.to)):
        if value:
            os.environ[name] = value
    began = time.perf_counter()
    try:
        make_all()
    except (CurriculumError, BrokenStep) as error:
        parser.exit(2, f"{error}\n")
    print(
        f"the steps have run, and their differences are made: {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    target = folder().resolve()
    write_sources(target / "source")

    from sphinx.application import Sphinx  # of the extra `site`; the steps run without it

    app = Sphinx(
        target / "source",
        Path(__file__).parent,
        target / "html",
        target / "doctrees",
        "html",
        parallel=os.cpu_count() or 1,
        warningiserror=True,
    )
    app.build()
    for path in (target / "html").rglob("*.html"):  # pages of an earlier build
        name = path.relative_to(target / "html").with_suffix("").as_posix()
        if name not in app.env.found_docs | {"genindex", "search"}:
            path.unlink()
    dead = dead_links(target / "html")
    for line in dead:
        print(line)
    print(f"{time.perf_counter() - began:.0f} s: {(target / 'html' / 'index.html').as_uri()}")
    return 1 if dead else app.statuscode


if __name__ == "__main__":
    raise SystemExit(main())
