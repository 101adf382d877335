"""What a step changes against the step before it, by name and line by line: text or HTML."""

from __future__ import annotations

import difflib
import html
import textwrap
from dataclasses import dataclass
from functools import cached_property

from .curriculum import Curriculum, Step, heir, with_renames
from .paint import paint
from .source import Source

CONTEXT = 3  # unchanged lines shown around a change
WIDTH = 79  # columns of a terminal that the heading fills


@dataclass(frozen=True)
class Change:
    """One definition that a step adds, changes or takes away."""

    kind: str  # "new", "changed", "removed", "renamed" or "resumed"
    name: str
    added: int = 0  # lines of code
    removed: int = 0
    note: str = ""  # the new name, or "from step 35" for what is taken up again

    @property
    def size(self) -> str:
        if self.kind == "renamed" or self.kind == "resumed" and not self.added + self.removed:
            return ""
        counts = [f"{sign}{n}" for sign, n in (("+", self.added), ("-", self.removed)) if n]
        return " ".join(counts) or "words only"


@dataclass(frozen=True)
class Line:
    """One line of a difference; `mark` is "+", "-" or " "."""

    mark: str
    number: int
    text: str


class Difference:
    """The step before a step, and the step. For the first step, all is new."""

    def __init__(self, curriculum: Curriculum, step: Step):
        self.curriculum, self.step = curriculum, step
        self.before = curriculum.before(step)
        empty = Source(step.path, text="")
        self.old = self.before.source if self.before else empty
        self.new = step.source

    @property
    def heading(self) -> str:
        return self.new.title

    @property
    def place(self) -> str:
        """ "stage 2, lesson 4 of 8"; "step 4 of 8" in a stage that has catalogues."""
        stage, step = self.step.stage, self.step
        if stage is None:
            return ""
        steps = [each for each in self.curriculum.steps if each.number in stage]
        kind = "lesson" if {each.kind for each in steps} == {"lesson"} else "step"
        position = 1 + sum(each.number < step.number for each in steps)
        return f"stage {stage.number}, {kind} {position} of {len(steps)}"

    @property
    def files(self) -> str:
        new = f"steps/{self.step.path.name}"
        return f"steps/{self.before.path.name} -> {new}" if self.before else new

    @cached_property
    def changes(self) -> list[Change]:
        """Every definition that is not as it was; those that went come last."""
        old, new = self.old.definitions, self.new.definitions
        formers = {new_name: name for name, new_name in self.step.renames.items()}
        found = []
        for name, definition in new.items():
            if definition.owner and name not in old:
                if heir(definition.owner, formers) not in old:
                    continue  # a new class brings its methods along
            former = heir(name, formers)
            if former in old:
                found += self._changed(name, former, renamed=former != name)
            elif name in self._resumed:
                found.append(self._taken_up(name, self._resumed[name]))
            else:
                found.append(Change("new", name, len(self.new.code_of(name))))
        for name, definition in old.items():
            renamed = heir(name, self.step.renames)
            if renamed in new or definition.owner and renamed.partition(".")[0] not in new:
                continue  # a class that goes takes its methods along
            if name not in self.moved:
                found.append(Change("removed", name, removed=len(self.old.code_of(name))))
        return found

    @cached_property
    def moved(self) -> dict[str, str]:
        """What left the file because a module is finished: {definition: module}."""
        found = {}
        for name in self.old.top_level:
            if name not in self.new.top_level:
                if module := self.curriculum.module_of(name, self.step):
                    found[name] = module.name
        return found

    @property
    def moved_to(self) -> dict[str, list[str]]:
        """The same by module: {module: definitions}."""
        found: dict[str, list[str]] = {}
        for name, module in self.moved.items():
            found.setdefault(module, []).append(name)
        return found

    @cached_property
    def _resumed(self) -> dict[str, Step]:
        """What the step takes up again from an earlier step that builds the same module."""
        if self.before is None:
            return {}
        found = {}
        for name in self.new.top_level:
            if name not in self.old.definitions:
                if earlier := self.curriculum.resumed_from(name, self.step):
                    found[name] = earlier
        return found

    @cached_property
    def framework(self) -> list[list[Line]]:
        """The changed places of the framework, each with some lines around.

        What moved into a module is not there, and a line that only follows a renaming is no change.
        """
        left = set()
        for name in self.moved:
            definition = self.old.definitions[name]
            left.update(definition.span)
        above = 0  # a comment between two definitions goes with the one above
        for number, text in enumerate(self.old.framework, self.old.framework_first):
            if text.startswith("#") and above in left:
                left.add(number)
            above = number if text.strip() else above
        old = [
            (number, with_renames(text, self.step.renames))
            for number, text in enumerate(self.old.framework, self.old.framework_first)
            if number not in left
        ]
        for name, earlier in self._resumed.items():
            former = earlier.source.definitions[name]
            old += enumerate(former.text.splitlines(), former.first)
        new = list(enumerate(self.new.framework, self.new.framework_first))
        return hunks(_trimmed(old), _trimmed(new))

    @cached_property
    def demo(self) -> list[list[Line]]:
        """The demo, whole, with its new lines marked. Each step writes its demo anew: what the step
        before showed is gone, and that tells nothing."""
        lines = _marked(
            list(enumerate(self.old.demo, self.old.demo_first)),
            list(enumerate(self.new.demo, self.new.demo_first)),
        )
        kept = [line for line in lines if line.mark != "-"]
        return [kept] if any(line.mark == "+" for line in kept) else []

    @property
    def demo_size(self) -> str:
        """ "9 lines new", blank ones apart."""
        lines = [line for hunk in self.demo for line in hunk]
        new = sum(line.mark == "+" and bool(line.text.strip()) for line in lines)
        return f"{new} line{'s' if new != 1 else ''} new"

    def text(self, demo: bool = False) -> str:
        """The difference for a terminal, with that of the demo where nothing else changes."""
        heading = paint(self.heading, "bold")
        heading += " " * (WIDTH - len(self.heading) - len(self.place) - 2)
        found = [f"{heading}  {paint(self.place, 'faint')}"]
        width = max((len(change.name) for change in self.changes), default=0)
        for change in self.changes:
            note = f"-> {change.note}" if change.kind == "renamed" else change.note
            row = f"  {change.kind:8}  {change.name:{width}}  " + f"{change.size}  {note}".strip()
            found.append(row.rstrip())
        for module, names in self.moved_to.items():
            found.append(f"  moved to {module}")
            found += textwrap.wrap(
                ", ".join(names), 96, initial_indent=" " * 12, subsequent_indent=" " * 12
            )
        found += ["", paint(f"  {self.files}, framework", "bold")]
        found += _shown(self.framework) or ["    (no change)"]
        if demo or not self.framework:  # then the demo is the lesson
            file = f"steps/{self.step.path.name}"
            found += ["", paint(f"  {file}, demo", "bold"), *_shown(self.demo)]
        else:
            found += ["", f"  demo: {self.demo_size} (show them with --demo)"]
        return "\n".join(found)

    def html(self) -> str:
        """The difference for a page: framework open, demo to be unfolded."""
        rows = "".join(
            f"<tr><td>{change.kind}</td><td><code>{html.escape(change.name)}</code></td>"
            f"<td>{change.size}</td><td>{html.escape(change.note)}</td></tr>"
            for change in self.changes
        )
        rows += "".join(
            f"<tr><td>moved</td><td><code>{html.escape(', '.join(names))}</code></td>"
            f"<td></td><td>{html.escape(module)}</td></tr>"
            for module, names in self.moved_to.items()
        )
        return (
            f"<div><b>{html.escape(self.heading)}</b> <small>{self.place}</small>"
            f'<table style="text-align:left">{rows}</table>'
            f"<small>{self.files}</small>{_pre(self.framework)}"
            f"<details{'' if self.framework else ' open'}><summary>demo: {self.demo_size}</summary>"
            f"{_pre(self.demo)}</details></div>"
        )

    _repr_html_ = html

    def __repr__(self) -> str:
        return self.text()

    def _taken_up(self, name, earlier):
        changed = count(earlier.source.code_of(name), self.new.code_of(name))
        return Change("resumed", name, *changed, note=f"from {earlier.label}")

    def _changed(self, name, former, renamed):
        member = self.new.definitions[name].owner  # a class that is renamed takes it along
        if renamed and not (member and name.rpartition(".")[2] == former.rpartition(".")[2]):
            yield Change("renamed", former, note=name)
        old, new = self.old.shell(former), self.new.shell(name)
        texts = [self.new.lines[n - 1] for n in new]
        renames = self.step.renames
        if [with_renames(self.old.lines[n - 1], renames) for n in old] == texts:
            return
        code = [self.new.code[n] for n in new if n in self.new.code]
        former_code = [with_renames(self.old.code[n], renames) for n in old if n in self.old.code]
        yield Change("changed", name, *count(former_code, code))


def count(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines were added and how many taken away."""
    added = removed = 0
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if kind != "equal":
            added, removed = added + j2 - j1, removed + i2 - i1
    return added, removed


def hunks(old: list[tuple[int, str]], new: list[tuple[int, str]]) -> list[list[Line]]:
    """The changed places of two numbered texts, each with CONTEXT lines around."""
    lines = _marked(old, new)
    near = {
        index
        for at, line in enumerate(lines)
        if line.mark != " "
        for index in range(at - CONTEXT, at + CONTEXT + 1)
    }
    found: list[list[Line]] = []
    for index, line in enumerate(lines):
        if index in near:
            if index - 1 not in near or not found:
                found.append([])
            found[-1].append(line)
    for hunk in found:  # blank lines around it tell nothing
        for end in (0, -1):
            while hunk[end].mark == " " and not hunk[end].text.strip():
                del hunk[end]
    return found


def _marked(old, new):
    a, b = [text for _, text in old], [text for _, text in new]
    found: list[Line] = []
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, a, b, False).get_opcodes():
        if kind == "equal":
            found += [Line(" ", *each) for each in new[j1:j2]]
            continue
        found += [Line("-", *each) for each in old[i1:i2]]
        found += [Line("+", *each) for each in new[j1:j2]]
    return _slid(found)


def _slid(lines):
    """Move each block of one mark up to where a definition begins, if the lines allow it."""
    at = 0
    while at < len(lines):
        mark, end = lines[at].mark, at
        while end < len(lines) and lines[end].mark == mark:
            end += 1
        if mark != " ":
            _slide(lines, at, end)
        at = end
    return lines


def _slide(lines, first, last):
    """Shift lines[first:last] upwards as far as its best beginning."""
    best, steps = _indent(lines, first, last), 0
    up = 0
    while first - up > 0 and lines[first - up - 1].mark == " ":
        if lines[first - up - 1].text != lines[last - up - 1].text:
            break
        up += 1
        if (score := _indent(lines, first - up, last - up)) < best:
            best, steps = score, up
    mark = lines[first].mark
    for _ in range(steps):
        first, last = first - 1, last - 1
        lines[first] = Line(mark, lines[first].number, lines[first].text)
        lines[last] = Line(" ", lines[last].number, lines[last].text)


def _indent(lines, first, last):
    """How good a block begins, small is good: little indentation, no blank line."""
    texts = [line.text for line in lines[first:last]]
    full = next((text for text in texts if text.strip()), "")
    return len(full) - len(full.lstrip()), not texts[0].strip()


def _trimmed(numbered):
    """Without blank lines at both ends, and with at most two blank lines in a row."""
    found, blanks = [], 2
    for number, text in numbered:
        blanks = 0 if text.strip() else blanks + 1
        if blanks <= 2:
            found.append((number, text))
    while found and not found[-1][1].strip():
        found.pop()
    return found


_COLOURS = {"+": "green", "-": "red"}


def _shown(found):
    rows = []
    for position, hunk in enumerate(found):
        if position:
            rows.append(paint("         ...", "faint"))
        for line in hunk:
            row = f"  {line.number:5d}  {line.mark} {line.text}".rstrip()
            rows.append(paint(row, _COLOURS[line.mark]) if line.mark in _COLOURS else row)
    return rows


_BACKGROUNDS = {"+": "rgba(46,160,67,0.22)", "-": "rgba(248,81,73,0.22)"}


def _pre(found):
    rows = []
    for position, hunk in enumerate(found):
        if position:
            rows.append('<div style="opacity:0.5">      ...</div>')
        for line in hunk:
            style = ""
            if line.mark in _BACKGROUNDS:
                style = f' style="background:{_BACKGROUNDS[line.mark]}"'
            text = html.escape(f"{line.number:5d} {line.mark} {line.text}")
            rows.append(f"<div{style}>{text}</div>")
    return f'<pre style="line-height:1.3">{"".join(rows)}</pre>'
