"""Code as HTML: a difference with its marks, a demo, what a program prints.

Line numbers and marks are written by the style sheet, so that neither is copied with the code.
"""

from __future__ import annotations

import html
from functools import lru_cache

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from ..companion.curriculum import Step
from ..companion.difference import Difference
from ..companion.hunks import Line, hunks
from ..companion.lookup import text_of
from ..companion.names import with_renames
from .project import cached, curriculum, definitions, link, tools_digest

_TAGS = {"+": "ins", "-": "del", " ": "span"}


@lru_cache(maxsize=64)
def coloured(text: str) -> list[str]:
    """The lines of a Python file in colour. It is read whole: a line alone does not show that it
    stands inside a string."""
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    return highlight(text, lexer, HtmlFormatter(nowrap=True)).split("\n")


class Painter:
    """Colours the lines of a difference, each as it stands in its own text.

    A text is given with the number of its first line.
    """

    def __init__(self, old: tuple[int, str], new: tuple[int, str]):
        self.texts = {"-": old, "+": new, " ": new}

    def __call__(self, line: Line) -> str:
        first, text = self.texts[line.mark]
        lines, at = text.split("\n"), line.number - first
        if 0 <= at < len(lines) and lines[at] == line.text:
            return coloured(text)[at]
        return coloured(line.text)[0]  # taken up from an earlier step


def kept_difference(step: Step, docname: str) -> str:
    """The difference of a step, made once for the content of all files that it depends on."""
    before = curriculum().before(step)
    texts = [docname, tools_digest(), text_of(step), text_of(before) if before else ""]
    for module in curriculum().built_by(step):  # what it takes up again may be from any of these
        texts += map(text_of, curriculum().builders(module))
    make = lambda: difference_html(Difference(curriculum(), step), docname)  # noqa: E731
    return cached("differences", tuple(texts), make)


def difference_html(difference: Difference, docname: str) -> str:
    """What changes by name, the changed lines, and the demo."""
    old = "\n".join(with_renames(line, difference.renames) for line in difference.old.lines)
    painter = Painter((1, old), (1, "\n".join(difference.new.lines)))
    lesson, demo = difference.lesson, difference.new.demo
    parts = [_changes(difference, docname)]
    if lesson or difference.imports:
        parts.append(f'<p class="file">{html.escape(difference.files)}</p>')
    if difference.imports:
        parts.append(folded(html.escape(difference.imports), block(_imports(difference), painter)))
    if lesson:
        parts.append(block(lesson, painter))
    if demo:
        lines = [Line(" ", n, text) for n, text in enumerate(demo, difference.new.demo_first)]
        size = f"the demo: {len(lines) - 1} lines"
        parts.append(folded(size, block([lines], painter), is_open=not lesson))
    return "".join(parts)


def _imports(difference):
    old, new = (
        [(n, source.lines[n - 1]) for n in sorted(source.import_lines)]
        for source in (difference.old, difference.new)
    )
    return hunks([] if difference.begins_anew else old, new)


def _changes(difference, docname):
    rows = [
        (change.kind, defined(change.name, docname), change.size, html.escape(change.note))
        for change in difference.changes
        if change not in difference.dropped
    ]
    # Where a file begins anew, nothing that it lacks is news.
    moved = {} if difference.begins_anew else difference.moved_to
    for module, names in moved.items():
        joined = ", ".join(defined(name, docname) for name in names)
        rows.append(("moved", joined, "", f"to {html.escape(module)}"))
    if difference.dropped:
        joined = ", ".join(defined(change.name, docname) for change in difference.dropped)
        rows.append(("removed", joined, difference.dropped_size, ""))
    if not rows:
        return ""
    cells = "".join(
        f'<tr class="{kind}"><th scope="row">{kind}</th><td>{names}</td><td>{_sizes(size)}</td>'
        f"<td>{note}</td></tr>"
        for kind, names, size, note in rows
    )
    return f'<div class="wide"><table class="changes">{cells}</table></div>'


def _sizes(text):
    return html.escape(text).replace("-", "\N{MINUS SIGN}")


def defined(name: str, docname: str) -> str:
    """A name as code, with a link to its page where it has one."""
    code = f"<code>{html.escape(name)}</code>"
    page = definitions().get(name)
    target = page and link(docname, f"definitions/{page}.html")
    return f'<a href="{target}">{code}</a>' if target else code


def folded(title: str, inside: str, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}><summary>{title}</summary>{inside}</details>"


def block(places: list[list[Line]], painter: Painter) -> str:
    """Changed places, one below the other. Only added lines and context can be selected."""
    rows = []
    for position, place in enumerate(places):
        if position:
            rows.append('<span class="gap" aria-hidden="true"></span>')
        for line in place:
            tag, text = _TAGS[line.mark], painter(line)
            rows.append(f'<{tag} data-n="{line.number}">{text}\n</{tag}>')
    marks = {line.mark for place in places for line in place}
    kind = "diff" if marks - {" "} else "plain"
    return _scrolling(f"lines {kind}", "Python code", f"<code>{''.join(rows)}</code>")


def printed(text: str, command: str) -> str:
    """What a program prints, below the command that runs it."""
    inside = f"<code>{html.escape(text.rstrip())}</code>"
    return f'<p class="file">{html.escape(command)}</p>' + _scrolling("printed", "Output", inside)


def _scrolling(kind, label, inside):
    """A block that scrolls by itself where it is wide; so the keyboard can reach it."""
    return (
        f'<div class="highlight {kind}"><pre tabindex="0" role="region" aria-label="{label}">'
        f"{inside}</pre></div>"
    )
