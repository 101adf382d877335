"""Steps found by a word: titles first, then texts, and the main road before the depth."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .curriculum import Curriculum
from .lookup import text_of
from .overview import title_of

_DOCSTRING = re.compile(r'\s*"""(.*?)"""', re.DOTALL)


def found_texts(curriculum: Curriculum, words: str) -> Iterator[str]:
    """A row for each step that has the words at the beginning of a word: in its title, or in the
    text below it, which is shown with its place. Upper and lower case are the same."""
    pattern = re.compile(r"(?<!\w)" + r"\s+".join(map(re.escape, words.split())), re.IGNORECASE)
    titled = [step for step in curriculum.steps if pattern.search(title_of(step))]
    for step in titled:
        yield f"  {step.number!s:6} {title_of(step)}"
    count = len(titled)
    for step in curriculum.steps:
        text = _DOCSTRING.match(text_of(step))
        if text and step not in titled and (match := pattern.search(text[1])):
            line = text[1].count("\n", 0, match.start())
            count += 1
            row = text[1].split("\n")[line].strip()
            yield f"  {step.number!s:6} {step.file}:{line + 1}: {row}"
    yield f"{count} step{'s' if count != 1 else ''} with {words!r}" + ("" if count else ".")
