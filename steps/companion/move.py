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
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from .curriculum import Curriculum, CurriculumError
from .difference import Difference
from .names import nearest
from .number import Number
from .references import BETWEEN, ITEM, WORD, WORDS, prose
from .roads import Roads, defaults

# What is searched for references. The tests of the companion use numbers of curricula of their own.
PLACES = (
    "README.md",
    "README.zh.md",
    "CONTRIBUTING.md",
    "Makefile",
    "docs",
    "benchmarks",
    "examples",
    "notebooks",
)
PLACES += ("tinytorch", "tests", "steps")
LEFT_ALONE = ("tests/steps", "steps/companion")
ENDINGS = {".py", ".md", ".ipynb", ".svg", ".toml", ""}
COLUMNS = 100
LONG = 100_000  # characters of an output beyond which it is a picture

_NAME = r"(?:\d+[a-z]?|[a-z]+\d\d)"
_RANGE = re.compile(rf"({_NAME})( to | through |-|–)({_NAME})|{_NAME}")
_PATTERNS = {  # the references in a text; each is found in one pass, and none twice
    "command": rf"-m steps [a-z]+ (?:[\w.]+ --at )?{_NAME}(?:-{_NAME})?\b",
    "heading": rf"^#+ {ITEM}(?:{BETWEEN}{ITEM})*(?=:)",
    "call": rf"\b(?:diff|difference|load|show)\((?:\d+|\\?[\"']{_NAME}\\?[\"'])(?=[,)])",
    "words": WORDS.pattern,
    "word": WORD.pattern,
    "file": r"(?:\bsteps[/.])?\bstep\d{2,}[a-z]?\b",
    "depth": r"(?:\b(?:steps[/.])?depth[/.])?\b[a-z]+\d\d\b",
}
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
            if number.run and number.run not in curriculum.runs:
                raise CurriculumError(
                    f"There is no run {number.run}. List it as a [[run]] in curriculum.toml."
                    + nearest(number.run, curriculum.runs)
                )
            self._add(curriculum.step(old).number, number)
        self.before = curriculum.roads.numbers
        self.known = curriculum.by_number.keys()
        after = Counter(map(self.number, self.before))
        for number, times in after.items():
            if times > 1:
                raise CurriculumError(f"Two steps would have the number {number.short}.")
        self.origins = self._origins(curriculum)
        self.roads = Roads(after, curriculum.runs, self.origins)
        self.after = self.roads.numbers
        self._parts: dict[int, list[Number]] = {}
        for number in self.before:
            if not number.run:
                self._parts.setdefault(number.topic, []).append(number)
        self._left = {  # the topics that no longer mean what they meant
            old.topic
            for old, new in self.map.items()
            if not old.run and (new.run or new.topic != old.topic)
        }
        self._pattern = re.compile(
            "|".join(f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS.items()), re.MULTILINE
        )

    def _add(self, old, new):
        if old in self.map:
            raise CurriculumError(f"Step {old.short} is moved twice.")
        if old != new:
            self.map[old] = new

    def number(self, old: Number) -> Number:
        return self.map.get(old, old)

    def _origins(self, curriculum):
        """What `from` has to say, so that each step keeps the one that it begins at.

        Steps that only change places on their own road follow each other in their new order.
        """
        roads, declared = curriculum.roads, curriculum.origins
        old_of = {self.number(old): old for old in self.before}
        default = defaults(sorted(old_of, key=roads.key))
        found = {}
        for old in self.before:
            new, origin = self.number(old), roads.before[old]
            if origin is None:
                continue
            expected, kept = default[new], self.number(origin)
            if expected == kept:
                if old in declared and origin == roads.default(old):
                    found[new] = kept  # it said so before, though it need not
                continue
            road = [old, origin, *([old_of[expected]] if expected else [])]
            crosses = any(self.number(each).run != each.run for each in road)
            if old in declared or crosses or expected is None:
                found[new] = kept
        return found

    def text(self, text: str, calls: bool = False, headings: bool = False) -> str:
        """A text with all its references renamed; `calls` includes `diff(57)` and `load(57)`."""
        skipped = [*([] if calls else ["call"]), *([] if headings else ["heading"])]

        def renamed(match):
            kind, words = match.lastgroup, match[0]
            if kind in skipped:
                return words
            if kind in ("word", "words") and self._counts(match):
                return words
            return getattr(self, f"_{kind}")(words)

        return self._pattern.sub(renamed, text)

    def cell(self, text: str) -> str:
        """The same for a cell of a notebook; a heading may name steps: "## 50 and 51: a table"."""
        return self.text(text, calls=True, headings=True)

    def output(self, text: str) -> str:
        """The same for what a cell printed. A difference has line numbers: no reference wraps."""
        lines = text.splitlines(keepends=True)
        return "".join(self.text(f"# -> {line}")[5:] for line in lines)

    def _counts(self, match):
        """Whether "step 100" may be a count, "step 100: 0.31": a program prints it, and no step has
        this number, though a topic may."""
        begin = match.string.rfind("\n", 0, match.start()) + 1
        numbers = [Number.parse(each) for each in re.findall(_NAME, match[0])]
        is_printed = "# ->" in match.string[begin : match.start()]
        if match.lastgroup == "word" and match.string[match.end() :][:1] == ":":
            is_printed = True  # a title, of a step that never was: "Step 99: "
        return is_printed and any(number not in self.known for number in numbers)

    def _command(self, words):
        head, space, names = words.rpartition(" ")
        return head + space + self._items(names, padded=False, to="-")

    def _heading(self, words):
        head, space, names = words.partition(" ")
        return head + space + self._items(names)

    def _words(self, words):
        head = re.match(r"[Ss]teps\s+", words)[0]
        return head + self._items(words[len(head) :])

    def _word(self, words):
        head = re.match(r"[Ss]tep", words)[0]
        space = re.match(r"\s+", words[len(head) :])[0]
        names = words[len(head + space) :]
        new = self._items(names)
        several = " " in new and " " not in names  # the parts of a topic
        return f"{head}{'s' if several else ''}{space}{new}"

    def _file(self, words):
        folder, _, name = words.rpartition("step")
        return self._path(folder[-1:], words, Number.parse(name))

    def _depth(self, words):
        *folders, name = re.split("[/.]", words)
        between = words[len("steps")] if folders[:1] == ["steps"] else ""
        return self._path(between, words, Number.parse(name))

    def _path(self, between, words, old):
        """The name of a file without its ending, with its folders where they stood before.

        `between` is what stood between them: a slash, or a point in an import.
        """
        if old not in self.map:
            return words
        path = self.map[old].file.removesuffix(".py")
        return f"steps/{path}".replace("/", between) if between else path.removeprefix("depth/")

    def _items(self, text, padded=True, to=" to "):
        """A list of numbers and ranges: "40, 67 and 78", "38 to 51"."""

        def item(match):
            if match[1] is None:
                return self._one(match[0], padded=padded, to=to)
            begin, end = self._one(match[1], 0, padded), self._one(match[3], -1, padded)
            ends = Number.parse(begin), Number.parse(end)
            if ends[0].topic == ends[1].topic and not ends[0].run and not ends[1].run:
                begin, end = self._one(match[1], None, padded), self._one(match[3], None, padded)
            return begin + match[2] + end

        return _RANGE.sub(item, text)

    def _one(self, text, end=None, padded=True, to=" to "):
        """One number; `end` says whether it begins (0) or ends (-1) a range.

        A number without a letter may mean all parts of its topic: then it becomes the topic of
        the first or the last of them, or the first and the last of their names in depth. At the end
        of a range on the main road, a whole topic needs no letter.
        """
        old = Number.parse(text)
        meant = [] if old.run else self._parts.get(old.topic, [])
        if old not in meant and old.part == "" and meant:
            new = [self.number(each) for each in meant]
            if all(each.run for each in new):
                return self._names(new, to) if end is None else new[end].short
            if any(each.run for each in new):
                return text
            if len({each.topic for each in new}) == 1 or end is not None:
                topic = new[end or 0].topic
                return text if topic == old.topic else f"{topic:02d}"
        if old not in self.map:
            return text
        new = self.map[old]
        if end is not None and not new.run and not old.run:
            parts = [each for each in self.after if each.topic == new.topic and not each.run]
            new = Number(new.topic) if new == parts[end] else new
        return str(new) if padded else new.short

    @staticmethod
    def _names(numbers, to):
        """ "conv01 to conv09", or "conv08, conv09 and pool01 to pool04"."""
        found = []
        for _, group in groupby(numbers, key=lambda number: number.run):
            first, *rest = group
            if to == " to " and len(rest) == 1:
                found += [first.short, rest[0].short]
            else:
                found.append(f"{first.short}{to}{rest[-1].short}" if rest else first.short)
        if to != " to ":  # in a command, from the first to the last
            return f"{numbers[0].short}{to}{numbers[-1].short}" if len(numbers) > 1 else found[0]
        *most, last = found
        return f"{', '.join(most)} and {last}" if most else last

    def _call(self, words):
        head, bracket, name = words.partition("(")
        quote = (re.match(r"\\?[\"']", name) or ['"'])[0]
        name = name.strip("\\\"'")
        new = self._one(name, padded=False)
        if " " in new:  # a notebook means the last part of a topic
            new = self._one(name, -1, padded=False)
        if new == name:
            return words
        return f"{head}({new if new.isdecimal() else quote + new + quote}"

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
        line = self._pattern.sub("", line)
        bare = re.findall(r"(?:^|\b(?:in|for|by|of|since|until|from|and|step) |\()(\d+)\b", line)
        return any(int(each) in self._left for each in bare if len(each) < 4)


def move(curriculum: Curriculum, pairs: list[tuple[str, str]]) -> Moved:
    """Rename steps, OLD to NEW, and every reference to them. Lines that have become too long are
    named."""
    moves, result = Moves(curriculum, pairs), Moved()
    places = _places(curriculum, moves.number)
    roads = {old.file: (old, new) for old, new in moves.map.items() if old.run != new.run}
    for path in _files(curriculum.root):
        name = path.relative_to(curriculum.root).as_posix()
        text = path.read_text(encoding="utf-8")
        new = _rewritten(path, text, moves)
        if ends := roads.get(name.removeprefix("steps/")):
            new = _from_its_folder(new, *ends)
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
    _tell_places(curriculum.root, places)
    return result


def _tables(text):
    """The tables of a file, each with the comments above it."""
    return re.split(r"(?<=\n)(?=(?:#.*\n)*\[)", text)


def _from_its_folder(text, old, new):
    """A step that looks for files from its own place on has one folder more to go up in depth."""
    up, upper = r"((?<![\w.])__file__\)(?:\.resolve\(\))?\.parent)\b(?!s)", r"\1.parent"
    if old.run and not new.run:
        up, upper = up.replace(")\\b(?!s)", ")\\.parent\\b(?!s)"), r"\1"
    return re.sub(up, upper, text)


_HEAD = re.compile(rf"(<b>Step ({_NAME}): [^\n]*?</b> <small>)\(([^()\n]*)\)")


def _places(curriculum, number=lambda number: number):
    """The place of each step that an output of a notebook shows, "stage 9, lesson 4 of 8", by its
    new number."""
    found = {}
    for path in sorted((curriculum.root / "notebooks").rglob("*.ipynb")):
        for match in _HEAD.finditer(path.read_text(encoding="utf-8")):
            step = curriculum.by_number.get(Number.parse(match[2]))
            if step and str(number(step.number)) not in found:
                found[str(number(step.number))] = Difference(curriculum, step).place
    return found


def _tell_places(root, before):
    """Put the places of today into the outputs of notebooks that told them rightly before."""
    today = _places(Curriculum(root))

    def told(match):
        right = before.get(match[2]) == match[3]
        return f"{match[1]}({today[match[2]]})" if right else match[0]

    for path in sorted((root / "notebooks").rglob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        if (after := _HEAD.sub(told, text)) != text:
            path.write_text(after, encoding="utf-8")


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
    if path.suffix == ".toml":
        return text
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
    """curriculum.toml: its lists of numbers, its tables [step.NN] and `from`, and its words."""

    def numbers(match):
        values = [Number.parse(each.strip('"')) for each in re.findall(rf'"?{_NAME}"?', match[2])]
        new = moves.roads.in_order(map(moves.number, values))
        if new == values:
            return match[0]
        items = [_written(each) for each in new]
        line = f"{match[1]}[{', '.join(items)}]"
        if len(line) <= COLUMNS:
            return mapped(line)
        rows = [""]
        for item in items:
            if len(rows[-1]) + len(item) > COLUMNS - 5:
                rows.append("")
            rows[-1] += f" {item},"
        return mapped(f"{match[1]}[\n" + "\n".join("   " + row for row in rows) + "\n]")

    def value(match):
        return match[1] + mapped(_written(moves.number(Number.parse(match[2].strip('"')))))

    def mapped(text):
        """The text with a mark in each name of depth, or the words would map it once more."""
        return re.sub(r"(?<=[a-z])(?=\d\d)", "\0", text)

    lists = r'^((?:catalogues|"tinytorch/[\w/]+\.py") = )\[([^\]]*)\]'
    text = re.sub(lists, numbers, text, flags=re.M)
    text = re.sub(rf'^((?:from|beside) = )("?{_NAME}"?)', value, text, flags=re.M)
    text = re.sub(
        rf"^(\[step\.)({_NAME})\b",
        lambda match: match[1] + mapped(moves._one(match[2])),
        text,
        flags=re.M,
    )
    return _with_origins(moves.text(text).replace("\0", ""), moves)


def _written(number):
    """A number as curriculum.toml writes it."""
    return f'"{number}"' if number.part or number.run else str(number.topic)


def _with_origins(text: str, moves: Moves) -> str:
    """The text with `from` in the tables of those steps that need it, and in no other."""
    tables = _tables(text)
    named = {}
    for position, table in enumerate(tables):
        if header := re.search(rf"^\[step\.({_NAME})\]\n", table, re.M):
            number = Number.parse(header[1])
            named[number] = position
            kept = re.sub(r"^from = .*\n", "", table, flags=re.M)
            origin = moves.origins.get(number)
            line = f"from = {_written(origin)}\n" if origin else ""
            if not line and kept != table and kept.strip() == header[0].strip():
                kept = ""  # it said nothing else
                if position == len(tables) - 1:
                    tables[position - 1] = tables[position - 1].rstrip("\n") + "\n"
            elif line in table and line:
                kept = table
            else:
                end = re.search(rf"^\[step\.{number}\]\n", kept, re.M).end()
                kept = kept[:end] + line + kept[end:]
            tables[position] = kept
    order = {number: n for n, number in enumerate(moves.roads.later())}
    for number in sorted(moves.origins.keys() - named.keys(), key=order.get, reverse=True):
        after = [at for each, at in named.items() if order.get(each, 0) > order[number]]
        new = f"[step.{number}]\nfrom = {_written(moves.origins[number])}\n"
        if after:
            tables[min(after)] = f"{new}\n{tables[min(after)]}"
        else:
            tables[-1] += f"\n{new}"
    return "".join(tables)


def _rename(root: Path, moves: Moves) -> dict[str, str]:
    """Rename the files named after a step, by way of other names: a move may be a permutation."""
    found = {}
    for old, new in moves.map.items():
        found[root / "steps" / old.file] = root / "steps" / new.file
        for path in (root / "docs").glob(f"{Path(old.file).stem}.*"):
            found[path] = path.with_name(Path(new.file).stem + path.suffix)
    tracked = _tracked(root, found)
    for path in found:
        path.rename(path.with_name(f"moving-{path.name}"))
    for path, new in found.items():
        new.parent.mkdir(exist_ok=True)
        path.with_name(f"moving-{path.name}").rename(new)
    if tracked:  # git sees by itself that a file was renamed
        _git(root, "rm", "-q", "--cached", "--", *map(str, tracked))
        _git(root, "add", "--", *(str(found[path]) for path in tracked))
    return {
        old.relative_to(root).as_posix(): new.relative_to(root).as_posix()
        for old, new in found.items()
    }


def _tracked(root, paths):
    """Those of some files that git knows; none where there is no git."""
    names = _git(root, "ls-files", "-z", "--", *map(str, paths)).split("\0")
    return [path for path in paths if path.relative_to(root).as_posix() in names]


def _git(root, *arguments):
    """What git prints; nothing where it fails or is not there."""
    try:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True).stdout
    except FileNotFoundError:
        return ""
