"""One definition of a file, found without reading the whole file as Python.

To parse every step takes seconds. A definition begins at the left margin and ends where the next
line begins there, so a search finds its lines, and these alone are parsed.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .model import Module, Step, fault_of
from .source import Definition, Source, SourceError

# These begin with a newline, and not with ^: Python searches for a fixed character quickly.
_DEMO = re.compile(r"\nif __name__ == [\"']__main__[\"']:")
_MARGIN = re.compile(r"\n[^\s#)\]}]")
# The name that a line at the margin defines, or the target that it assigns to.
_HEAD = re.compile(r"\n(?:(?:async )?(?:def|class)\s+(\w+)|\(?([\w.]+)(?=\s*[=:,\[]))")
_NAMES = re.compile(r"^( {4})?(?:(?:async )?(?:def|(class))\s+(\w+)|(\w+)(?::[^=\n]+)? =)", re.M)


def holder(each: Step | Module, name: str) -> Source | None:
    """A source that holds the definition of a step or a module at its own lines.

    None where the file does not define the name, or cannot be read there.
    """
    if "source" in vars(each):  # it is parsed already
        source = each.source
    else:
        text = text_of(each)
        begin, end = extent(text, name)
        if begin == end:
            return None
        try:
            source = _parsed(each.path, "\n" * text.count("\n", 0, begin) + text[begin:end])
        except SourceError:  # the lines end inside a string, or are wrong
            if fault := fault_of(each):
                vars(each)["fault"] = fault
                return None
            source = each.source
    return source if name in source.definitions else None


@lru_cache(maxsize=128)  # the histories of a class and of its members ask for the same lines
def _parsed(path, text):
    return Source(path, text)


def find(each: Step | Module, name: str) -> Definition | None:
    """The definition that a step or a module holds."""
    source = holder(each, name)
    return source and source.definitions[name]


def passage(each: Step | Module, name: str) -> str:
    """The text in which the definition stands: where it is the same, so is the definition."""
    text = text_of(each)
    begin, end = extent(text, name)
    return text[begin:end]


def fault_met(each: Step | Module) -> str:
    """Why a search could not read a file at the name it looked for; nothing where it could."""
    return vars(each).get("fault", "")


def extent(text: str, name: str) -> tuple[int, int]:
    """Where the lines of a definition begin and end in a text; the same number where it has none.

    They may hold more than the definition: the class of a member, or all lines from the first to
    the last that could be meant.
    """
    heads, (*keys, member) = _heads(text), _keys(name)
    starts = [start for key in keys if key in heads for start in heads[key]]
    if not starts:
        return 0, 0
    begin, stop = min(starts), demo_of(text)
    while begin:  # up over the comments and decorators directly above
        line = text.rfind("\n", 0, begin - 1) + 1
        if text.startswith(")\n", line):  # the end of a decorator of several lines
            while line and text[line] in ") ":
                line = text.rfind("\n", 0, line - 1) + 1
        if text[line] not in "#@":
            break
        begin = line
    line_end = text.find("\n", max(starts), stop)
    after = _MARGIN.search(text, line_end, stop) if line_end >= 0 else None
    end = after.start() + 1 if after else stop
    return (begin, end) if text.find(member, begin, end) >= 0 else (0, 0)


@lru_cache(maxsize=2048)  # all steps: a history asks for one name after the other
def _heads(text):
    """Where the lines at the margin begin that define something: {key: places}."""
    found: dict[str, list[int]] = {}
    for match in _HEAD.finditer("\n" + text, 0, demo_of(text) + 1):
        found.setdefault(match[1] or f"{match[2]} =", []).append(match.start())
    return found


@lru_cache(maxsize=2048)
def _keys(name):
    """The keys of the lines that may define a name: its class or function, its assignment. And the
    word that a class holds which has the member."""
    first = re.match(r"[\w.]*", name)[0]
    return first.partition(".")[0], f"{first} =", first.rpartition(".")[2]


def names_of(each: Step | Module) -> list[str]:
    """The names that a file seems to define, found line by line."""
    text, owner = text_of(each), ""
    found: dict[str, None] = {}
    for match in _NAMES.finditer(text, 0, demo_of(text)):
        inside, is_class, defined, assigned = match.groups()
        name = defined or assigned
        if not inside:
            owner = name if is_class else ""
        if not inside or owner:
            found[f"{owner}.{name}" if inside else name] = None
    return list(found)


@lru_cache(maxsize=2048)  # all steps: a history asks again for each of its names
def demo_of(text: str) -> int:
    """Where the demo of a step begins; the end of the text where it has none."""
    demo = _DEMO.search("\n" + text)
    return demo.start() if demo else len(text)


def text_of(each: Step | Module) -> str:
    """The text of a file; empty where it cannot be read."""
    if "source" in vars(each):
        return each.source.text
    if "text" not in vars(each):
        try:
            vars(each)["text"] = each.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            vars(each)["fault"] = fault_of(each)
            return ""
    return vars(each)["text"]
