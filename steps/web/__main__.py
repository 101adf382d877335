"""Build the web edition: python -m steps.web [--main-road] [--to FOLDER]"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from ..companion.curriculum import CurriculumError
from . import outputs
from .project import ONLY, SITE, chosen
from .sources import write_sources


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m steps.web", description="the web edition")
    parser.add_argument("--only", metavar="STEPS", help="a part of it: 11-18, or 01-60c")
    parser.add_argument("--to", type=Path, help="the folder to write; by default site")
    options = parser.parse_args(arguments)
    folder = options.to or (SITE / f"part-{options.only}" if options.only else SITE)
    if options.only:
        os.environ[ONLY] = options.only
    began = time.perf_counter()
    try:
        outputs.run_all(step for step in chosen() if not step.run)
    except (CurriculumError, outputs.BrokenStep) as error:
        parser.exit(2, f"{error}\n")
    print(f"the steps have run: {time.perf_counter() - began:.0f} s", flush=True)
    write_sources(folder / "source")

    from sphinx.application import Sphinx  # of the extra `site`; the steps run without it

    app = Sphinx(
        folder / "source",
        Path(__file__).parent,
        folder / "html",
        folder / "doctrees",
        "html",
        parallel=os.cpu_count() or 1,
        warningiserror=True,
        keep_going=True,
    )
    app.build()
    start = folder / "html" / "index.html"
    print(f"{time.perf_counter() - began:.0f} s. Open in a browser: {start.resolve().as_uri()}")
    return app.statuscode


if __name__ == "__main__":
    raise SystemExit(main())
