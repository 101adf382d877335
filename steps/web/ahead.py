"""Makes ahead of Sphinx what takes long, by as many processes as there are cores.

Sphinx finds it in the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from . import outputs
from .code import kept_difference
from .lives import lives_html
from .project import DEFINITIONS, chosen, curriculum, definitions, formers, pages, steps_digest

Piece = tuple[str, object]


def make_all() -> None:
    """Run the steps of the main road; make all differences and all pages of definitions.

    Raises:
        BrokenStep: a step does not print what it says.
    """
    definitions(), steps_digest()  # before the processes begin: each would read all files again
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_make, _pieces()))


def _pieces() -> Iterator[Piece]:
    """What there is to make. The last pieces are small, so that no core waits long at the end."""
    # The last steps run longest, so they are first.
    yield from (("output", str(step.number)) for step in reversed(chosen()) if not step.run)
    yield from (("differences", position) for position in range(len(pages())))
    # A class and its members have their forms in the same lines, so one process makes them.
    families: dict[str, list[str]] = {}
    for names in formers().values():
        families.setdefault(names[0].partition(".")[0], []).append(names[0])
    yield from (("definitions", each) for each in sorted(families.values(), key=len, reverse=True))


def _make(piece: Piece) -> None:
    kind, what = piece
    if kind == "output":
        outputs.run(curriculum().step(what))
    elif kind == "differences":
        for step in pages()[what].steps:
            kept_difference(step, pages()[what].name)
    else:
        for name in what:
            lives_html(name, f"{DEFINITIONS}/{definitions()[name]}")
