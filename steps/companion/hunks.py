"""Two texts, line by line: what was added, what was taken away, and some lines around."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

CONTEXT = 3  # unchanged lines shown around a change


@dataclass(frozen=True)
class Line:
    """One line of a difference; `mark` is "+", "-" or " "."""

    mark: str
    number: int
    text: str


def count(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines were added and how many taken away."""
    added = removed = 0
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if kind != "equal":
            added, removed = added + j2 - j1, removed + i2 - i1
    return added, removed


def hunks(old: list[tuple[int, str]], new: list[tuple[int, str]]) -> list[list[Line]]:
    """The changed places of two numbered texts, each with CONTEXT lines around."""
    lines = marked(old, new)
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
    for hunk in found:  # blank lines around it add nothing
        for end in (0, -1):
            while hunk[end].mark == " " and not hunk[end].text.strip():
                del hunk[end]
    return found


def marked(old, new):
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


def trimmed(numbered):
    """Without blank lines at both ends, and with at most two blank lines in a row."""
    found, blanks = [], 2
    for number, text in numbered:
        blanks = 0 if text.strip() else blanks + 1
        if blanks <= 2:
            found.append((number, text))
    while found and not found[-1][1].strip():
        found.pop()
    return found
