"""Renames steps, and every reference to them, all at once.

Files keep their history (`git mv`). The references are those of curriculum.toml, the titles, file
names ("step57.py"), calls ("python -m steps diff 57", `steps.diff(57)`) and words: "step 57",
"steps 40, 67 and 78", "steps 38 to 51". What is written in another way cannot be told from other
numbers; `move` names those lines and leaves them.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .curriculum import Curriculum, CurriculumError
from .number import Number
from .references import BETWEEN, FILE, ITEM, WORD, WORDS, prose

# What is searched for references. The tests of the companion use numbers of curricula of their own.
PLACES = ("README.md", "CONTRIBUTING.md", "Makefile", "docs", "benchmarks", "examples", "notebooks")
PLACES += ("tinytorch", "tests", "steps")
LEFT_ALONE = ("tests/steps", "steps/companion")
ENDINGS = {".py", ".md", ".ipynb", ".svg", ".toml", ""}
COLUMNS = 100
LONG = 100_000  # characters of an output beyond which it is a picture

_COMMAND = re.compile(r"(-m steps [a-z]+ (?:[\w.]+ --at )?)(\d+[a-z]?(?:-\d+[a-z]?)?)\b")
_HEADING = re.compile(rf"^(#+ )({ITEM}(?:{BETWEEN}{ITEM})*)(?=:)", re.MULTILINE)
_CALL = re.compile(r"""\b((?:diff|difference|load|show)\()(\d+|\\?["']\d+[a-z]\\?["'])(?=[,)])""")
_RANGE = re.compile(r"(\d+[a-z]?)( to | through |-|–)(\d+[a-z]?)|\d+[a-z]?")
_MENTION = re.compile(r"\b[Ss]teps?\s+\d")


@dataclass
class Moved:
    """What a move did: the files it renamed and wrote, and the lines that it could not map."""

    renamed: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)


class Moves:
    """A simultaneous renaming of steps: what a number, a range, a text becomes."""

    def __init__(self, curriculum: Curriculum, pairs: list[tuple[str, str]]):
        self.map: dict[Number, Number] = {}
        for old, new in pairs:
            try:
                number = Number.parse(new)
            except ValueError as error:
                raise CurriculumError(f"{error}.") from None
            self._add(curriculum.step(old).number, number)
        stay = [each for each in curriculum.by_number if each not in self.map]
        self.after = [*stay, *self.map.values()]
        for number in self.after:
            if self.after.count(number) > 1:
                raise CurriculumError(f"Two steps would have the number {number.short}.")
        self.before = list(curriculum.by_number)

    def _add(self, old, new):
        if old in self.map:
            raise CurriculumError(f"Step {old.short} is moved twice.")
        if old != new:
            self.map[old] = new

    def number(self, old: Number) -> Number:
        return self.map.get(old, old)

    def text(self, text: str, calls: bool = False) -> str:
        """A text with all its references renamed; `calls` includes `diff(57)` and `load(57)`."""
        text = FILE.sub(lambda match: "step" + self._one(match[1]), text)
        text = _COMMAND.sub(lambda match: match[1] + self._items(match[2], padded=False), text)
        text = WORDS.sub(lambda match: match[1] + self._items(match[2]), text)
        text = WORD.sub(lambda match: match[1] + self._items(match[2]), text)
        return _CALL.sub(self._call, text) if calls else text

    def cell(self, text: str) -> str:
        """The same for a cell of a notebook; a heading may name steps: "## 50 and 51: a table"."""
        text = _HEADING.sub(lambda match: match[1] + self._items(match[2]), text)
        return self.text(text, calls=True)

    def output(self, text: str) -> str:
        """The same for what a cell printed. A difference has line numbers: no reference wraps."""
        return "".join(map(self.text, text.splitlines(keepends=True)))

    def _items(self, text, padded=True):
        """A list of numbers and ranges: "40, 67 and 78", "38 to 51"."""

        def item(match):
            if match[1] is None:
                return self._one(match[0], padded=padded)
            begin, end = self._one(match[1], 0, padded), self._one(match[3], -1, padded)
            if Number.parse(begin).topic == Number.parse(end).topic:
                begin, end = self._one(match[1], None, padded), self._one(match[3], None, padded)
            return begin + match[2] + end

        return _RANGE.sub(item, text)

    def _one(self, text, end=None, padded=True):
        """One number; `end` says whether it begins (0) or ends (-1) a range.

        A number without a letter may mean all parts of its topic: then it becomes the topic of
        the first or the last of them. At the end of a range, a whole topic needs no letter.
        """
        old = Number.parse(text)
        meant = [each for each in self.before if each.topic == old.topic]
        if old not in meant and old.part == "" and meant:
            new = {self.number(each).topic for each in meant}
            if len(new) == 1 or end is not None:
                topic = self.number(sorted(meant)[end or 0]).topic
                return text if topic == old.topic else f"{topic:02d}"
        if old not in self.map:
            return text
        new = self.map[old]
        if end is not None:
            parts = sorted(each for each in self.after if each.topic == new.topic)
            new = Number(new.topic) if new == parts[end] else new
        return str(new) if padded else new.short

    def _call(self, match):
        old, quote = match[2].strip("\\\"'"), '"'
        new = self._one(old, padded=False)
        if new == old:
            return match[0]
        return f"{match[1]}{new if new.isdecimal() else quote + new + quote}"

    def unsure(self, text: str) -> list[int]:
        """The lines with a bare number of a moved step, in a paragraph that speaks of steps."""
        found = []
        lines = text.splitlines()
        paragraph: list[int] = []
        for position, line in enumerate([*lines, ""]):
            if line.strip(" #>"):
                paragraph.append(position)
                continue
            words = "\n".join(lines[each] for each in paragraph)
            if _MENTION.search(words):
                found += [each + 1 for each in paragraph if self._has_bare_number(lines[each])]
            paragraph = []
        return found

    def _has_bare_number(self, line):
        for pattern in (FILE, _COMMAND, WORDS, WORD):
            line = pattern.sub("", line)
        bare = re.findall(r"(?:^|\b(?:in|for|by|of|since|until|from|and|step) |\()(\d+)\b", line)
        topics = {old.topic for old in self.map if self.map[old].topic != old.topic}
        return any(int(each) in topics for each in bare if len(each) < 4)


def move(curriculum: Curriculum, pairs: list[tuple[str, str]]) -> Moved:
    """Rename steps, OLD to NEW, and every reference to them."""
    moves, result = Moves(curriculum, pairs), Moved()
    for path in _files(curriculum.root):
        name = path.relative_to(curriculum.root).as_posix()
        text = path.read_text(encoding="utf-8")
        new = _rewritten(path, text, moves)
        result.unsure += [f"{name}, line {n}: {line}" for n, line in _unsure(path, text, moves)]
        if new == text:
            continue
        result.written.append(name)
        path.write_text(new, encoding="utf-8")
        if path.suffix == ".py":
            for number, line in enumerate(new.splitlines(), 1):
                if len(line) > COLUMNS:
                    result.unsure.append(f"{name}, line {number} is longer than {COLUMNS} columns")
    result.renamed = _rename(curriculum.root, moves)
    return result


def _files(root: Path) -> list[Path]:
    found = []
    for place in PLACES:
        path = root / place
        found += sorted(path.rglob("*")) if path.is_dir() else [path]
    return [path for path in found if path.is_file() and _belongs(path.relative_to(root))]


def _belongs(path):
    inner = any(path.is_relative_to(each) for each in LEFT_ALONE)
    return path.suffix in ENDINGS and not inner and "__pycache__" not in path.parts


def _rewritten(path: Path, text: str, moves: Moves) -> str:
    if path.suffix == ".ipynb":
        return _notebook(text, moves)
    if path.name == "curriculum.toml":
        return _curriculum(text, moves)
    return moves.text(text, calls="docs" in path.parts or path.suffix == ".md")


def _unsure(path, text, moves):
    """(line number, line) for each line of prose that may mean a moved step."""
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    elif path.suffix == ".py":
        text = prose(text)
    elif path.suffix == ".svg":
        return
    lines = text.splitlines()
    for number in moves.unsure(text):
        yield number, lines[number - 1].strip()


def _notebook(text: str, moves: Moves) -> str:
    """A notebook with all texts of its cells changed, sources and outputs alike."""

    def changed(value, change):
        if isinstance(value, dict):
            return {key: changed(each, change) for key, each in value.items()}
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return change("".join(value)).splitlines(keepends=True)
        if isinstance(value, list):
            return [changed(each, change) for each in value]
        return value if not isinstance(value, str) or len(value) > LONG else change(value)

    notebook = json.loads(text)
    before = json.dumps(notebook, indent=1, ensure_ascii=False)
    for cell in notebook["cells"]:
        cell["source"] = changed(cell["source"], moves.cell)
        for output in cell.get("outputs", ()):
            output.update(changed(output, moves.output))
    after = json.dumps(notebook, indent=1, ensure_ascii=False)
    return text if after == before else after + "\n"


def _curriculum(text: str, moves: Moves) -> str:
    """curriculum.toml: its lists of numbers, its tables [step.NN], and the words in it."""

    def numbers(match):
        values = [Number.parse(each.strip('"')) for each in re.findall(r'"?\d+[a-z]?"?', match[2])]
        new = sorted(map(moves.number, values))
        if new == values:
            return match[0]
        items = [f'"{each}"' if each.part else str(each.topic) for each in new]
        line = f"{match[1]}[{', '.join(items)}]"
        if len(line) <= COLUMNS:
            return line
        rows = [""]
        for item in items:
            if len(rows[-1]) + len(item) > COLUMNS - 5:
                rows.append("")
            rows[-1] += f" {item},"
        return f"{match[1]}[\n" + "\n".join("   " + row for row in rows) + "\n]"

    lists = r'^((?:catalogues|"tinytorch/[\w/]+\.py") = )\[([^\]]*)\]'
    text = re.sub(lists, numbers, text, flags=re.M)
    text = re.sub(
        r"^(\[step\.)(\d+[a-z]?)\b",
        lambda match: match[1] + moves._one(match[2]),
        text,
        flags=re.M,
    )
    return moves.text(text)


def _rename(root: Path, moves: Moves) -> dict[str, str]:
    """Rename the files named after a step, by way of other names: a move may be a permutation."""
    found = {}
    for folder in ("steps", "docs"):
        for path in sorted((root / folder).glob("step*.*")):
            if match := re.fullmatch(r"step(\d\d+[a-z]?)", path.stem):
                old = Number.parse(match[1])
                if old in moves.map:
                    found[path] = path.with_name(f"step{moves.map[old]}{path.suffix}")
    away = {path: path.with_name(f"moving-{path.name}") for path in found}
    for path, aside in away.items():
        _git_mv(root, path, aside)
    for path, aside in away.items():
        _git_mv(root, aside, found[path])
    names = {old: new.relative_to(root).as_posix() for old, new in found.items()}
    return {old.relative_to(root).as_posix(): new for old, new in names.items()}


def _git_mv(root, old, new):
    """`git mv`, or a plain renaming where git does not know the file."""
    command = ["git", "-C", str(root), "mv", str(old), str(new)]
    try:
        if subprocess.run(command, capture_output=True).returncode == 0:
            return
    except FileNotFoundError:
        pass
    old.rename(new)
