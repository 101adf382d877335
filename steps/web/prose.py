"""The text of a step as nodes of a document: paragraphs, lists, indented blocks, and the box."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from docutils import nodes

from ..companion.number import Number
from ..companion.references import ITEM, WORD, WORDS
from .project import addresses, definitions, link

LABELS = "Changed|New|Moved|Gone|Finished|Removed|Renamed|Try|In depth"
_BOX = re.compile(rf"^(?:{LABELS}): ", re.MULTILINE)
_LABEL = re.compile(rf"(?:(?<=^)|(?<=[.)] ))({LABELS}): ", re.MULTILINE)
_ITEM = re.compile(r"(?:-|(\d+)\.) +")
_CODE = re.compile(r"`([^`]+)`")
_STRESSED = re.compile(r"(?<![\w*])\*([A-Za-z][\w -]*?)\*(?![\w*])")
_STEPS = re.compile(f"{WORDS.pattern}|{WORD.pattern}")
_ITEMS = re.compile(ITEM)
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.\w+)*")


def body(text: str, docname: str) -> list[nodes.Node]:
    """The nodes of a text that stands below its title."""
    found: list[nodes.Node] = []
    for lines in _blocks(text):
        first = lines[0]
        if first.startswith(" "):
            code = textwrap.dedent("\n".join(lines))
            found.append(nodes.literal_block(code, code, language="none"))
        elif _ITEM.match(first):
            found.append(_list(lines, docname))
        elif _BOX.match(first):
            found += _box("\n".join(lines), docname)
        else:
            found.append(nodes.paragraph("", "", *inline(" ".join(lines), docname)))
    return found


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines of each paragraph, list and indented block; blank lines inside a block stay."""
    lines: list[str] = []
    kind = ""
    for line in text.splitlines():
        if not line.strip():
            if kind == "code":
                lines.append("")
            elif lines:
                yield lines
                lines, kind = [], ""
            continue
        here = "item" if _ITEM.match(line) else "text"
        if line.startswith(" "):
            here = "item" if kind == "item" else "code"
        elif kind == "text" and here == "text" and _BOX.match(line):
            here = "box"
        elif kind == "box" and here == "text":
            here = "box"
        if kind and here != kind:
            yield _without_end(lines)
            lines = []
        lines.append(line)
        kind = "box" if here == "text" and _BOX.match(line) else here
    if lines:
        yield _without_end(lines)


def _without_end(lines):
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def _list(lines, docname):
    items: list[list[str]] = []
    for line in lines:
        if match := _ITEM.match(line):
            items.append([line[match.end() :]])
        else:
            items[-1].append(line.strip())
    found = nodes.enumerated_list(enumtype="arabic", prefix="", suffix=".")
    if lines[0].startswith("-"):
        found = nodes.bullet_list()
    for item in items:
        words = inline(" ".join(item), docname)
        found += nodes.list_item("", nodes.paragraph("", "", *words))
    return found


def _box(text, docname):
    """Changed, New and Try, a row each."""
    parts = _LABEL.split(text)
    found = nodes.container(classes=["box"])
    for label, words in zip(parts[1::2], parts[2::2], strict=True):
        row = nodes.paragraph(classes=[label.lower().replace(" ", "-")])
        row += nodes.strong("", label)
        row += nodes.Text(" ")
        row += inline(" ".join(words.split()), docname, names=label != "Try")
        found += row
    return [found]


def inline(text: str, docname: str, names: bool = False) -> list[nodes.Node]:
    """Words, `code`, and links to steps and definitions; with `names`, to those without quotes."""
    found: list[nodes.Node] = []
    for position, part in enumerate(_CODE.split(text)):
        if position % 2:
            found.append(_defined(part, docname))
        else:
            found += _with_steps(part, docname, names)
    return found


def _with_steps(text, docname, names):
    at = 0
    for match in _STEPS.finditer(text):
        yield from _with_names(text[at : match.start()], docname, names)
        at = match.start()
        word = match[1] or match[3]
        for item in _ITEMS.finditer(text, at + len(word), match.end()):
            # "step 14" is a link; of "steps 40 to 42" each number is one
            begin = item.start() if match[1] else at
            yield nodes.Text(text[at:begin])
            target = address_of(item[0])
            words = nodes.Text(text[begin : item.end()])
            yield _reference(words, target and link(docname, target), target)
            at = item.end()
        yield nodes.Text(text[at : match.end()])
        at = match.end()
    yield from _with_names(text[at:], docname, names)


def _with_names(text, docname, names):
    parts = _STRESSED.split(text)
    for position, part in enumerate(parts):
        if position % 2:
            yield nodes.emphasis(part, part)
        else:
            yield from _names_in(part, docname, names)


def _names_in(text, docname, names):
    at = 0
    for match in _NAME.finditer(text) if names else ():
        if match[0] in definitions():
            yield nodes.Text(text[at : match.start()])
            yield _defined(match[0], docname)
            at = match.end()
    yield nodes.Text(text[at:])


def _defined(name, docname):
    page = definitions().get(name.removesuffix("()"))
    return _reference(nodes.literal(name, name), link(docname, f"definitions/{page}.html"), page)


def _reference(inside, target, known):
    if not known:
        return inside
    return nodes.reference("", "", inside, refuri=target, internal=True)


def address_of(name: str) -> str:
    """Where a step stands that a text names, and of a topic its first part: 31 is 31a."""
    number = Number.parse(name)
    parts = [n for n in addresses() if not n.run and not number.part and n.topic == number.topic]
    near = [number] if number.run or number in addresses() else parts
    return next((addresses()[n] for n in near if n in addresses()), "")
