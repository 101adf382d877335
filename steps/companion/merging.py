"""The three-way merge of a definition: by lines where git can, else statement by statement.

`git merge-file` calls two changes a conflict where their lines are neighbours. But a change of one
statement and a change of the next are two things. A statement here is a logical line with its
comment (a header `def f(x):` is one, its body others), a line of comment, or a blank line.

Where it cannot be shown that two changes are apart, there is no merge: where both change one
statement, put something at the same place, or one lies between two changes of the other.
"""

from __future__ import annotations

import ast
import difflib
import io
import subprocess
import tempfile
import textwrap
import tokenize
from itertools import pairwise
from pathlib import Path


class Conflict(Exception):
    """A place that a change and a later lesson both rewrite, with the forms that it has."""

    def __init__(self, name: str, forms: str = ""):
        super().__init__(name)
        self.name, self.forms = name, forms


OURS = "ours (the later file)"
_MARKS = {
    "<" * 7: OURS,
    "|" * 7: "base (before the change)",
    "=" * 7: "theirs (the change)",
    ">" * 7: "",
}


def merge(base: str, ours: str, theirs: str, name: str, guess: bool = False) -> str:
    """The text with both changes. A `guess` marks the lines of ours that are in conflict.

    Raises:
        Conflict: the changes are not apart.
    """
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    status, text = _by_lines(base, ours, theirs)
    if not status:
        return text
    if (found := by_statements(base, ours, theirs)) is not None:
        return found
    if guess:
        return _marked(text)
    raise Conflict(name, _forms(text))


def _in_parts(text):
    """A merge in parts: lines that are no conflict, or a dictionary of the three forms of one."""
    found, forms, form = [[]], {}, ""
    for line in text.splitlines():
        if line[:8].rstrip() in _MARKS:
            form = _MARKS[line[:8].rstrip()]
            if form == OURS:
                forms = {}
                found += [forms, []]
            if form:
                forms[form] = []
        else:
            (forms[form] if form else found[-1]).append(line)
    return found


def _forms(text):
    """The places in conflict, each with its three forms."""
    found = []
    for part in _in_parts(text)[1::2]:
        for form, lines in part.items():
            found += [f"  {form}:", *(f"    {line}".rstrip() for line in lines)]
    return "\n".join(found)


def _marked(text):
    """Ours, as if somebody had written the change into it: each line that it changes is another."""
    found = []
    for part in _in_parts(text):
        if isinstance(part, list):
            found += part
            continue
        ours, base, theirs = part.values()
        alike = len(ours) == len(base) == len(theirs)
        for n, line in enumerate(ours or [""]):
            same = alike and base[n] == theirs[n]
            found.append(line if same else f"{line}  # changed")
    return "\n".join(found)


def _by_lines(base, ours, theirs):
    """What `git merge-file` says: its exit status and the text."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("ours", "base", "theirs")]
        for path, text in zip(paths, (ours, base, theirs), strict=True):
            path.write_text(text + "\n", encoding="utf-8")
        command = ["git", "merge-file", "-p", "-q", "--diff3", *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout.removesuffix("\n")


def by_statements(base: str, ours: str, theirs: str) -> str | None:
    """The merge by statements; None where two changes are not apart."""
    try:
        old, *new = [statements_of(text) for text in (base, ours, theirs)]
    except (tokenize.TokenError, IndentationError):
        return None
    mine, yours = [_edits(old, each) for each in new]
    if any(not _apart(one, other) for one in mine for other in yours):
        return None
    if _between(mine, yours) or _between(yours, mine):
        return None
    found = list(old)
    for first, last, units in sorted({*mine, *yours}, reverse=True):
        found[first:last] = units
    text = "\n".join(found)
    try:
        ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return None
    return text


def statements_of(text: str) -> list[str]:
    """The statements of a text, comments and blank lines; joined by line ends they are the text."""
    lines, found, first = text.split("\n"), [], 0
    for token in tokenize.generate_tokens(io.StringIO(text + "\n").readline):
        if token.type == tokenize.NEWLINE:
            found.append("\n".join(lines[first - 1 : token.end[0]]))
            first = 0
        elif not first and token.type in (tokenize.NL, tokenize.COMMENT):
            if token.type == tokenize.NL:
                found.append(lines[token.start[0] - 1])
        elif not first and token.type not in (tokenize.INDENT, tokenize.DEDENT):
            first = token.start[0]
    return found


def _edits(old, new):
    """The changes from one list to another: (first, last, what stands there then)."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        (i1, i2, tuple(new[j1:j2]))
        for kind, i1, i2, j1, j2 in matcher.get_opcodes()
        if kind != "equal"
    ]


def _apart(one, other):
    """Whether two changes are apart, or the same."""
    if one == other:
        return True
    (first, last, units), (begin, end, others) = sorted([one, other], key=lambda each: each[:2])
    if last != begin:
        return last < begin
    # Neighbours. What is put in beside a place that grows or shrinks could come before it or after.
    if first == last:
        return begin < end == begin + len(others)
    return begin < end or last == first + len(units)


def _between(edits, others):
    """Whether one of the others lies between two of the edits and touches both."""
    ends = {(last, first) for (_, last, _), (first, _, _) in pairwise(edits)}
    return any(each[:2] in ends for each in others if each not in edits)
