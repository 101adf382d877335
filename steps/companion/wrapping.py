"""Long lines of comments and texts, divided: the words that are too many go to the next line."""

from __future__ import annotations

import re

from .source import tokens_of

_ITEM = re.compile(r"([-*] |\d+\. |[(]?\w[)] )?")  # how a line of a list begins
_HEAD = re.compile(
    r"(Changed|New|Gone|Moved|Renamed|Try|In depth)\b.*:|>>> |Args:|Raises:|Returns:"
)


def wrapped(text: str, columns: int) -> str:
    """A Python text in which no line of prose is longer than `columns`, where words allow it.

    What looks like a table or a formula is left, and so are the promises of a demo.
    """
    if max(map(len, text.splitlines()), default=0) <= columns:
        return text
    lines, kinds = text.split("\n"), _kinds(text)
    position = 0
    while position < len(lines):
        line, kind = lines[position], kinds.get(position)
        prefix = re.match(r"\s*#\s*" if kind == "comment" else r"\s*", line)[0]
        words = line[len(prefix) :]
        if kind and len(line) > columns and not _is_fixed(words):
            cut = line.rfind(" ", len(prefix), columns + 1)
            if cut > len(prefix):
                lines[position], rest = line[:cut], line[cut + 1 :]
                if words.startswith('"""') or words.startswith('r"""'):
                    indent = prefix
                else:
                    indent = prefix + " " * len(_ITEM.match(words)[0])
                below = lines[position + 1] if position + 1 < len(lines) else ""
                if kinds.get(position + 1) == kind and _goes_on(below, indent):
                    lines[position + 1] = f"{indent}{rest} {below[len(indent) :]}"
                else:
                    lines.insert(position + 1, indent + rest)
                    kinds = {n + (n > position): each for n, each in kinds.items()}
                    kinds[position + 1] = kind
        position += 1
    return "\n".join(lines)


def _kinds(text):
    """Which lines are comments, and which stand in a string of several lines."""
    tokens = tokens_of(text)
    lines = text.splitlines()
    found = {}
    for number, column, comment in tokens.comments:
        if not lines[number - 1][:column].strip() and not comment.startswith("# ->"):
            found[number - 1] = "comment"
    for first, words in tokens.long_strings:
        if lines[first - 1].lstrip().lstrip("rR").startswith('"""'):
            found |= dict.fromkeys(range(first - 1, first + words.count("\n")), "text")
    return found


def _is_fixed(words):
    """Whether a line is laid out by hand: a table, or code in a text."""
    return re.search(r"\S {2,}\S", words) is not None


def _goes_on(line, indent):
    """Whether a line goes on with the paragraph of the line above it."""
    words = line[len(indent) :]
    return (
        line.startswith(indent)
        and bool(words.strip())
        and not words.startswith((" ", '"""', "-> "))
        and not _ITEM.match(words)[0]
        and not _HEAD.match(words)
        and not _is_fixed(words)
    )
