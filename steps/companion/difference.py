"""What a step changes against the step before it, by name and line by line: text or HTML."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from functools import cached_property

from .curriculum import Curriculum, Step
from .hunks import Line, count, hunks, marked, trimmed
from .names import heir, with_renames
from .paint import paint
from .source import Definition, Source

WIDTH = 79  # columns of a terminal that the heading fills
IMPORTS = 3  # lines: where more imports change, they are only counted
FOLDED = 30  # lines: definitions that go whole are only named, where together they have more


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


class Difference:
    """The step before a step, and the step. For the first step, all is new."""

    def __init__(self, curriculum: Curriculum, step: Step, against: Step | None = None):
        self.curriculum, self.step = curriculum, step
        self.before = against or curriculum.before(step)
        # What the step declares is said of the step before, not of another one.
        self.declared = against is None
        self.renames = step.renames if self.declared else {}
        empty = Source(step.path, text="")
        self.old = self.before.source if self.before else empty
        self.new = step.source

    @property
    def heading(self) -> str:
        return self.new.title

    @property
    def place(self) -> str:
        """ "stage 2, lesson 4 of 8"; "stage 9, step 4 of 8, catalogue" where the kinds differ."""
        stage, step = self.step.stage, self.step
        if not self.declared:
            return f"against {self.before.label}"
        if stage is None:
            return ""
        steps = [each for each in self.curriculum.steps if each.stage == stage and not each.run]
        if step.run:
            steps = [each for each in self.curriculum.steps if each.run == step.run]
        position = 1 + steps.index(step)
        if step.run:
            kind = "" if step.kind == "lesson" else f", {step.kind}"
            return f"in depth, {step.run.name} {position} of {len(steps)}{kind}"
        if all(each.kind == "lesson" for each in steps):
            return f"stage {stage.number}, lesson {position} of {len(steps)}"
        return f"stage {stage.number}, step {position} of {len(steps)}, {step.kind}"

    @property
    def files(self) -> str:
        new = self.step.file
        return f"{self.old_file} -> {new}" if self.before and not self.begins_anew else new

    @property
    def old_file(self) -> str:
        return self.before.file if self.before else ""

    @cached_property
    def changes(self) -> list[Change]:
        """Every definition that is not as it was; those that went come last."""
        old, new = self.old_definitions, self.new.definitions
        formers = {new_name: name for name, new_name in self.renames.items()}
        found = []
        for name, definition in new.items():
            if definition.owner and name not in old:
                if heir(definition.owner, formers) not in old:
                    continue  # a new class brings its methods along
            former = heir(name, formers)
            if former in old:
                found += self._changed(name, former, renamed=former != name)
            elif name in self.resumed:
                found.append(self._taken_up(name, self.resumed[name]))
            else:
                found.append(Change("new", name, len(self.new.code_of(name))))
        for name, definition in old.items():
            renamed = heir(name, self.renames)
            if renamed in new or definition.owner and renamed.partition(".")[0] not in new:
                continue  # a class that goes takes its methods along
            if name not in self.moved:
                found.append(Change("removed", name, removed=len(self.old.code_of(name))))
        return found

    @cached_property
    def moved(self) -> dict[str, str]:
        """What left the file because a module is finished: {definition: module}."""
        found = {}
        for name in self.old.top_level if self.declared else ():
            if name not in self.new.top_level or name in self._replaced:
                if module := self.curriculum.module_of(name, self.step):
                    found[name] = module.name
        return found

    @cached_property
    def dropped(self) -> list[Change]:
        """Definitions that go whole, where they are so long that they are only named."""
        found = [
            change
            for change in self.changes
            if change.kind == "removed" and not self.old.definitions[change.name].owner
        ]
        return found if sum(change.removed for change in found) > FOLDED else []

    @property
    def dropped_size(self) -> str:
        """ "46 definitions, -199"."""
        count = len(self.dropped)
        lines = sum(change.removed for change in self.dropped)
        return f"{count} definition{'s' if count != 1 else ''}, -{lines}"

    @cached_property
    def _replaced(self) -> set[str]:
        return self.curriculum.replaced(self.step) if self.declared else set()

    @cached_property
    def old_definitions(self) -> dict[str, Definition]:
        """Those of the step before, without what shares only its name with one of this step."""
        return {
            name: each
            for name, each in self.old.definitions.items()
            if (each.owner or name) not in self._replaced
        }

    @property
    def moved_to(self) -> dict[str, list[str]]:
        """The same by module: {module: definitions}."""
        found: dict[str, list[str]] = {}
        begins_a_run = self.before is not None and self.before.number.run != self.step.number.run
        if begins_a_run and self.begins_anew:  # it carries nothing on, so nothing has moved
            return found
        for name, module in self.moved.items():
            found.setdefault(module, []).append(name)
        return found

    @cached_property
    def resumed(self) -> dict[str, Step]:
        """What the step takes up again from an earlier step that builds the same module."""
        if self.before is None or not self.declared:
            return {}
        found = {}
        for name in self.new.top_level:
            if name not in self.old_definitions:
                if earlier := self.curriculum.resumed_from(name, self.step):
                    found[name] = earlier
        return found

    @cached_property
    def framework(self) -> list[list[Line]]:
        """The changed places of the framework, each with some lines around.

        What moved into a module is not there, nor what is `dropped`. A line that only follows a
        renaming is not a change.
        """
        return self._places(whole=True)

    @cached_property
    def lesson(self) -> list[list[Line]]:
        """The same for reading: without the imports that `imports` counts, and all new where the
        file begins anew."""
        return self._places(whole=False)

    def _places(self, whole):
        left = set()
        for name in [*self.moved, *(change.name for change in self.dropped)]:
            definition = self.old.definitions[name]
            left.update(definition.span)
        above = 0  # a comment between two definitions goes with the one above
        for number, text in enumerate(self.old.framework, self.old.framework_first):
            if text.startswith("#") and above in left:
                left.add(number)
            above = number if text.strip() else above
        old = [
            (number, with_renames(text, self.renames))
            for number, text in enumerate(self.old.framework, self.old.framework_first)
            if number not in left and (whole or not self.begins_anew)
        ]
        for name, earlier in self.resumed.items():
            former = earlier.source.definitions[name]
            old += enumerate(former.text.splitlines(), former.first)
        new = list(enumerate(self.new.framework, self.new.framework_first))
        if self.imports and not whole:
            old = [line for line in old if line[0] not in self.old.import_lines]
            new = [line for line in new if line[0] not in self.new.import_lines]
        return hunks(trimmed(old), trimmed(new))

    @cached_property
    def begins_anew(self) -> bool:
        """Whether the file has none of the definitions of the one before."""
        kept = [
            name
            for name in self.old_definitions
            if heir(name, self.renames) in self.new.definitions
        ]
        return self.before is not None and not kept

    @cached_property
    def imports(self) -> str:
        """ "imports: 7 lines", where so many change that they would hide the rest."""
        old, new = self.old.import_lines, self.new.import_lines
        former = [] if self.begins_anew else [self.old.lines[n - 1] for n in sorted(old)]
        lines = sum(count(former, [self.new.lines[n - 1] for n in sorted(new)]))
        return f"imports: {lines} lines" if lines > IMPORTS else ""

    @cached_property
    def demo(self) -> list[list[Line]]:
        """The demo, whole, with its new lines marked. Each step writes its demo anew: what the step
        before showed is gone, which is not news."""
        lines = marked(
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
        return f"{self.head()}\n{self.body(demo)}"

    def head(self) -> str:
        """The title, and the place in the stage."""
        heading = paint(self.heading, "bold")
        heading += " " * (WIDTH - len(self.heading) - len(self.place) - 2)
        return f"{heading}  {paint(self.place, 'faint')}"

    def body(self, demo: bool = False) -> str:
        """The names that change, and the changed lines."""
        found = []
        single = [change for change in self.changes if change not in self.dropped]
        width = max((len(change.name) for change in single), default=0)
        for change in single:
            note = f"-> {change.note}" if change.kind == "renamed" else change.note
            row = f"  {change.kind:8}  {change.name:{width}}  " + f"{change.size}  {note}".strip()
            found.append(row.rstrip())
        for module, names in self.moved_to.items():
            found += [f"  moved to {module}", *_wrapped(names)]
        if self.dropped:
            found.append(f"  removed   {self.dropped_size} (they are in {self.old_file})")
            if "*" not in self.step.removes:  # a file that begins new needs no list of the old one
                found += _wrapped(change.name for change in self.dropped)
        found += ["", paint(f"  {self.files}, framework", "bold")]
        if self.imports:
            found.append(paint(f"    {self.imports}", "faint"))
        found += shown(self.lesson) or ["    (no change)"]
        if demo or not self.lesson:  # then the demo is the lesson
            found += ["", paint(f"  {self.step.file}, demo", "bold"), *shown(self.demo)]
        else:
            found += ["", f"  demo: {self.demo_size} (show them with --demo)"]
        return "\n".join(found)

    def html(self) -> str:
        """The difference for a page: framework open, demo to be unfolded."""
        rows = "".join(
            f"<tr><td>{change.kind}</td><td><code>{html.escape(change.name)}</code></td>"
            f"<td>{change.size}</td><td>{html.escape(change.note)}</td></tr>"
            for change in self.changes
            if change not in self.dropped
        )
        rows += "".join(
            f"<tr><td>moved</td><td><code>{html.escape(', '.join(names))}</code></td>"
            f"<td></td><td>{html.escape(module)}</td></tr>"
            for module, names in self.moved_to.items()
        )
        if self.dropped:
            names = html.escape(", ".join(change.name for change in self.dropped))
            rows += (
                f"<tr><td>removed</td><td><code>{names}</code></td>"
                f"<td>{self.dropped_size}</td><td></td></tr>"
            )
        return (
            f"<div><b>{html.escape(self.heading)}</b> <small>{self.place}</small>"
            f'<table style="text-align:left">{rows}</table>'
            f"<small>{'<br>'.join(filter(None, [self.files, self.imports]))}</small>"
            f"{_pre(self.lesson)}"
            f"<details{'' if self.lesson else ' open'}><summary>demo: {self.demo_size}</summary>"
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
        renames = self.renames
        if [with_renames(self.old.lines[n - 1], renames) for n in old] == texts:
            return
        code = [self.new.code[n] for n in new if n in self.new.code]
        former_code = [with_renames(self.old.code[n], renames) for n in old if n in self.old.code]
        yield Change("changed", name, *count(former_code, code))


def _wrapped(names):
    """Names for a terminal, in as many rows as they need."""
    indent = " " * 12
    return textwrap.wrap(", ".join(names), 96, initial_indent=indent, subsequent_indent=indent)


_COLOURS = {"+": "green", "-": "red"}


def shown(found: list[list[Line]]) -> list[str]:
    """The rows of some changed places, in colour on a terminal."""
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
