"""The check that words like "step 57" and "steps 40 to 42" name steps that are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from .complaint import Complaint
from .curriculum import Curriculum, Step
from .number import Number
from .source import Source, tokens_of

ITEM = r"(?:\d{2,}[a-z]?|[a-z]+\d\d)(?![\w%]|\.\d)"  # 54b, conv07
BETWEEN = r"(?:, and |, | and | or | to | through |-|–)"
FILE = re.compile(r"\bstep(\d{2,}[a-z]?)\b|\bsteps/depth/([a-z]+\d\d)\b")
WORDS = re.compile(rf"\b([Ss]teps\s+)({ITEM}(?:{BETWEEN}{ITEM})*)")
WORD = re.compile(rf"\b([Ss]tep\s+)({ITEM}(?:(?:-|–){ITEM})?)")
DOCUMENTS = (
    "README.md", "README.zh.md", "CONTRIBUTING.md", "Makefile", "benchmarks/README.md",
    "docs/trouble.md",
)  # fmt: skip


def prose(text: str) -> str:
    """The comments and the strings of several lines of a program, each at its line."""
    lines = [""] * (text.count("\n") + 1)
    tokens = tokens_of(text)
    comments = [(n, each) for n, _, each in tokens.comments if not each.startswith("# ->")]
    for first, words in sorted(comments + tokens.long_strings):
        for number, line in enumerate(words.splitlines(), first):
            lines[number - 1] = line.removeprefix("#")
    return "\n".join(lines)


def dangling(curriculum: Curriculum, text: str) -> list[tuple[int, str]]:
    """The references in a text to steps that do not exist: (line, number)."""
    topics = {step.number.topic for step in curriculum.steps if not step.run}
    found = set()
    for pattern in (FILE, WORDS, WORD):
        for match in pattern.finditer(text):
            for item in re.compile(ITEM).finditer(text, match.start() + 4, match.end()):
                number = Number.parse(item[0])
                whole = not number.part and not number.run and number.topic in topics
                if not whole and number not in curriculum.by_number:
                    line = text.count("\n", 0, item.start()) + 1
                    found.add((line, str(number)))
    return sorted(found)


def check_references(curriculum: Curriculum, step: Step):
    """The steps that the text and the comments of a step speak of are there."""
    yield from _complaints(curriculum, step.label, prose(step.source.text))
    if not step.run:
        yield from _into_depth(curriculum, step)


def _into_depth(curriculum, step):
    """What the text of a main step says of the depth, but for its last line "In depth: ..."."""
    if not curriculum.runs:
        return
    words = prose(step.source.text).splitlines()
    last = step.source.framework_first - 1  # the docstring ends here
    ends = [n for n, line in enumerate(words[:last]) if line.startswith("In depth: ")]
    for line in range(ends[-1], last) if ends else ():
        if not words[line].strip():  # a paragraph below it: then it is not the last line
            break
        words[line] = ""
    names = re.compile(rf"\b(?:{'|'.join(curriculum.runs)})\d\d\b")
    for number, line in enumerate(words, 1):
        for match in names.finditer(line):
            where = f"{step.label}, line {number}"
            how = 'name it in a last line "In depth: ..."'
            yield Complaint(where, f"sends the reader to {match[0]}, which is in depth", how)


def check_documents(curriculum: Curriculum):
    """The same for package, documents and notebooks."""
    for path in curriculum.package_files():
        name = path.relative_to(curriculum.root).as_posix()
        yield from _complaints(curriculum, name, prose(Source(path).text))
    for name in DOCUMENTS:
        path = curriculum.root / name
        if path.exists():
            yield from _complaints(curriculum, name, path.read_text(encoding="utf-8"))
    for path in sorted((curriculum.root / "notebooks").rglob("*.ipynb")):
        yield from _in_notebook(curriculum, path)


def _in_notebook(curriculum: Curriculum, path: Path):
    name = path.relative_to(curriculum.root).as_posix()
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for position, cell in enumerate(cells):
        text = "".join(cell["source"])
        yield from _complaints(curriculum, f"{name}, cell {position}", text)


def _complaints(curriculum, where, text):
    for line, number in dangling(curriculum, text):
        yield Complaint(f"{where}, line {line}", f"speaks of step {number}, which is not there")
