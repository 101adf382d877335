"""The exercise of a step: which of its definitions the reader writes, the file it starts from, and
the hints."""

from __future__ import annotations

import ast
import keyword
import re
import textwrap
from dataclasses import dataclass

from .curriculum import Curriculum, CurriculumError, Step
from .difference import Difference
from .focus import former_form
from .hunks import hunks
from .names import with_renames

MOST, LINES = 3, 20  # definitions of one exercise, and the lines of code to write in all of them
HOLE = "your turn: "

# A body that is one call of what another definition does: nothing to think about.
_WRAPPER = re.compile(r"return (?:\w+\([^()]*\)|\w+\.apply)\(.*\)")
_DULL = {"__init__", "__len__", "__repr__", "extra_repr"}
_LIST = re.compile("Changed|New|Gone|Moved")  # the last lines of a text
_ASIDE = {"PyTorch", "error", "fails", "mistake", "overwrites", "trap", "traps", "wrong"}
_SENTENCE = re.compile(r"(?:(?<=[.!?])|(?<=[.!?]\)))\s+")


@dataclass(frozen=True)
class Task:
    """One function or method that the reader writes, or changes from what it was."""

    name: str
    new: bool
    start: str  # the lines that stand in its place at first
    lines: tuple[str, ...]  # the lines of code to write
    goes: bool = False  # whether they are lines to take away: no others change

    @property
    def verb(self) -> str:
        return "write" if self.new else "change"


@dataclass(frozen=True)
class Exercise:
    """A step, and the definitions of it that are left to the reader."""

    step: Step
    tasks: tuple[Task, ...]

    @property
    def names(self) -> str:
        """ "Variable.backward and Variable.cleargrad"."""
        *most, last = [task.name for task in self.tasks]
        return f"{', '.join(most)} and {last}" if most else last

    def start(self, undone: tuple[Task, ...] | None = None) -> str:
        """The file of the step without the solution of its tasks, or of some of them."""
        source, lines = self.step.source, list(self.step.source.lines)
        tasks = self.tasks if undone is None else undone
        spans = {task: source.definitions[task.name].span for task in tasks}
        for task in sorted(tasks, key=lambda task: -spans[task].start):
            lines[spans[task].start - 1 : spans[task].stop - 1] = task.start.splitlines()
        return "\n".join(lines) + "\n"

    def hints(self) -> list[list[str]]:
        """What helps, from little to much: the sentence of the text, the number of lines, and the
        first line, of each definition."""
        sentences = [f"{task.name}: {self._sentence(task)}" for task in self.tasks]
        counts = [f"{task.name}: {_counted(task)}" for task in self.tasks]
        firsts = [f"{task.name}: {_first_line(task)}" for task in self.tasks]
        return [sentences, counts, firsts]

    def _sentence(self, task):
        """The sentence of the step's text that has most of the words of the lines to write. Of two
        it is the later one, since a text goes from what is wrong to what is right."""
        words = set(_words(" ".join(task.lines)))
        names = task.name.partition(" ")[0].rpartition(".")

        def score(sentence):
            found = set(_words(sentence))
            listed = bool(_LIST.match(sentence))
            aside = sentence.startswith("(") or not found.isdisjoint(_ASIDE)
            rank = 2 * (names[2] in found) + (names[0] in found) + len(words & found)
            return rank - 4 * listed - 2 * aside

        sentences = _sentences(self.step.source.docstring)
        return max(reversed(sentences), key=score, default="The text says nothing about it.")


def exercise_of(curriculum: Curriculum, step: Step) -> Exercise | None:
    """The exercise of a step; None where nothing is left to write.

    Raises:
        CurriculumError: `practice` in curriculum.toml names what the step does not write, or more
            than an exercise may have.
    """
    tasks = _tasks(Difference(curriculum, step))
    chosen = _central(tasks, step) if step.practice is None else _named(tasks, step)
    return Exercise(step, tuple(chosen)) if chosen else None


def _tasks(difference) -> list[Task]:
    """All functions and methods that the step writes or changes, in order, but for those that the
    demo cannot run."""
    found = []
    for name, definition in difference.new.definitions.items():
        if definition.kind == "function" and name not in difference.step.unrun:
            if task := _task(difference, name):
                found.append(task)
    return found


def _task(difference, name):
    node = _node(difference.new.tree, difference.new.definitions[name])
    if all(_idle(each) for each in _body(node)):
        return None  # an abstract method
    old, former = former_form(difference, name)
    if old is None or old.definitions[former].kind != "function":
        return _new_task(difference.new, name, node)
    renames = difference.renames
    was = list(enumerate((with_renames(line, renames) for line in old.code_of(former)), 1))
    now = list(enumerate(difference.new.code_of(name), 1))
    changed = [line for hunk in hunks(was, now) for line in hunk if line.mark != " "]
    if not changed:
        return None
    added = [line.text for line in changed if line.mark == "+"]
    text = with_renames(old.definitions[former].text, renames)
    indent = " " * 4 if difference.new.definitions[name].owner else ""
    earlier = difference.resumed.get(name.partition(".")[0], difference.before)
    note = f"# {HOLE}as it was in {earlier.label}, to be changed"
    start = textwrap.indent(f"{note}\n{textwrap.dedent(text)}", indent)
    lines = tuple(added or [line.text for line in changed])
    return Task(name, False, start, lines, goes=not added)


def _new_task(source, name, node):
    """Signature and docstring, and a hole below."""
    definition, body = source.definitions[name], _body(node)
    first = min([body[0].lineno, *(each.lineno for each in getattr(body[0], "decorator_list", []))])
    column = body[0].col_offset
    head = source.lines[definition.first - 1 : first - 1]
    lines = [source.code[n] for n in range(first, definition.last + 1) if n in source.code]
    if own := source.lines[first - 1][:column].strip():  # `def f(x): return x`
        head, lines[0] = [*head, " " * node.col_offset + own], lines[0][column:]
        column = node.col_offset + 4
    while head[-1].strip() == "" or head[-1].lstrip().startswith("#"):
        head.pop()
    hole = " " * column + f'raise NotImplementedError("{HOLE}{name}")'
    return Task(name, True, "\n".join([*head, hole]), tuple(lines))


def _node(tree, definition):
    """The syntax of a function; its definition begins with the comments above it."""
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
    functions = [*tree.body, *(inner for each in classes for inner in each.body)]
    return next(
        each
        for each in functions
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
        and definition.first <= each.lineno
        and each.end_lineno == definition.last
    )


def _body(node):
    """The statements of a function, without its docstring."""
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


def _idle(statement):
    """`pass`, `...`, or `raise NotImplementedError`: what stands where subclasses write."""
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Raise(exc=error):
            return error is not None and ast.unparse(error).startswith("NotImplementedError")
    return False


def _named(tasks, step):
    """The tasks that `practice` names."""
    known = {task.name: task for task in tasks}
    where = f"steps/curriculum.toml: [step.{step.number}] practice"
    for name in step.practice:
        if name not in known:
            raise CurriculumError(f"{where}: the step does not write or change {name!r}")
    chosen = [task for task in tasks if task.name in step.practice]
    size = sum(len(task.lines) for task in chosen)
    if len(chosen) > MOST or size > LINES:
        raise CurriculumError(
            f"{where}: {len(chosen)} definitions with {size} lines; at most {MOST} with {LINES}"
        )
    return chosen


def _central(tasks, step):
    """The tasks that matter most, as many as an exercise may have, in the order of the file."""
    ranks = {task: _rank(task, step) for task in tasks if len(task.lines) <= LINES}
    chosen, room = [], LINES
    for task in sorted(ranks, key=ranks.get, reverse=True):
        dull = chosen and ranks[task] <= 0
        if len(chosen) < MOST and len(task.lines) <= room and not dull:
            chosen.append(task)
            room -= len(task.lines)
    return [task for task in tasks if task in chosen]


def _rank(task, step):
    """How central a task is: what the text speaks of, and what takes some thought."""
    owner, _, last = task.name.partition(" ")[0].rpartition(".")
    title, _, text = step.source.docstring.partition("\n")
    words = _words(text.partition("\nTry:")[0])
    rank = min(len(task.lines), 8) + 2 * min(words.count(last), 3)
    rank += min(words.count(owner), 2) + 3 * (last.lower() in _words(title.lower()))
    if last in _DULL:
        rank -= 8
    if len(task.lines) == 1 and _WRAPPER.fullmatch(task.lines[0].strip()):
        rank -= 12
    return rank


def _words(text):
    """The names in a text, without Python's own words: `x.grad` is x and grad."""
    return [each for each in re.findall(r"[A-Za-z_]\w*", text) if not keyword.iskeyword(each)]


def _sentences(docstring):
    """The sentences of a step's text, without figures, then the lines Changed and New."""
    body, _, _ = docstring.partition("\n")[2].partition("\nTry:")
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n|\n- ", body):
        if not paragraph.strip() or paragraph.strip("\n").startswith("    "):
            continue
        found += _SENTENCE.split(" ".join(paragraph.split()))
    return found


def _counted(task):
    count = len(task.lines)
    lines = f"{count} line{'s' if count != 1 else ''}"
    if task.new:
        return f"{lines} to write"
    return f"{lines} to take away" if task.goes else f"{lines} new or changed"


def _first_line(task):
    word = "it begins with" if task.new else "this goes:" if task.goes else "the first is"
    return f"{word} {task.lines[0].strip()}"
