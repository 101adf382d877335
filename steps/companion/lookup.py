"""One definition of a file, found without reading the whole file as Python.

To parse every step takes seconds. A definition begins at the left margin and ends where the next
line begins there, so a search finds its lines, and these alone are parsed.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .model import Module, Step, fault_of
from .source import Definition, Source, SourceError

_DEMO = re.compile(r"^if __name__ == [\"']__main__[\"']:", re.MULTILINE)
_MARGIN = re.compile(r"^[^\s#)\]}]", re.MULTILINE)
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
            source = Source(each.path, "\n" * text.count("\n", 0, begin) + text[begin:end])
        except SourceError:  # the lines end inside a string, or are wrong
            if fault := fault_of(each):
                vars(each)["fault"] = fault
                return None
            source = each.source
    return source if name in source.definitions else None


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
    if re.match(r"\w*", name)[0] not in text:
        return 0, 0
    stop = demo_of(text)
    starts = [match.start() for match in _header(name).finditer(text, 0, stop)]
    if not starts:
        return 0, 0
    begin = starts[0]
    while begin:  # up over the comments and decorators directly above
        line = text.rfind("\n", 0, begin - 1) + 1
        if text.startswith(")\n", line):  # the end of a decorator of several lines
            while line and text[line] in ") ":
                line = text.rfind("\n", 0, line - 1) + 1
        if text[line] not in "#@":
            break
        begin = line
    line_end = text.find("\n", starts[-1], stop)
    after = _MARGIN.search(text, line_end + 1, stop) if line_end >= 0 else None
    return begin, after.start() if after else stop


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
    demo = _DEMO.search(text)
    return demo.start() if demo else len(text)


def _header(name):
    """What the first line of a definition looks like; that of its class for a member."""
    first = re.match(r"[\w.]*", name)[0]
    patterns = [rf"(?:async )?(?:def|class)\s+{re.escape(first.partition('.')[0])}\b"]
    patterns += [rf"\(?{re.escape(first)}\b(?=\s*[=:,\[])"]
    return re.compile(rf"^(?:{'|'.join(patterns)})", re.MULTILINE)


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
