"""What the notebooks share: steps to load and to show, graphs to draw, exercises to check.

A notebook begins with

    import sys

    sys.path += [".", ".."]  # the repository's root, wherever Jupyter was started
    from steps.companion.notebook import check, draw, load, show

In notebooks/depth/ the root is "../..".
"""

from __future__ import annotations

import html
import re
import types
from pathlib import Path
from typing import Any

import numpy as np

from .curriculum import Curriculum, CurriculumError, Step
from .difference import Difference
from .drawing import Picture, picture, quoted
from .history import History
from .hunks import Line, hunks

ROOT = Path(__file__).resolve().parents[2]
OPEN = 40  # lines: a longer difference is folded
PRE = "font-family:monospace;font-size:12px;line-height:1.3;overflow-x:auto;margin:4px 0"
TITLE = 26  # pixels: the height of a title in a picture that plays
ADDED, REMOVED = "rgba(46,160,67,0.22)", "rgba(248,81,73,0.22)"


def find(name: int | str) -> tuple[Curriculum, Step]:
    """A step by its number: 14, "17b"; 17 means the last part of a topic that has parts."""
    curriculum = Curriculum(ROOT)
    return curriculum, curriculum.select(str(name))[-1]


def load(step: int | str) -> types.ModuleType:
    """The framework of a step: all that stands above its demo. Each call makes a fresh one."""
    _, found = find(step)
    source = found.source
    module = types.ModuleType("__main__")  # a step may replace methods of the package: then only
    module.__file__ = str(found.path)
    text = "\n".join(source.lines[: source.demo_first - 1])
    exec(compile(text, found.path, "exec"), vars(module))
    return module


# --- differences -------------------------------------------------------------------------------


class Shown:
    """A step on a page: its title, the definitions that matter, and the rest folded."""

    def __init__(self, difference: Difference, names: tuple[str, ...]):
        unknown = [name for name in names if name not in difference.new.definitions]
        if unknown:
            raise CurriculumError(f"{difference.heading}: there is no {', '.join(unknown)}")
        self.difference, self.names = difference, names

    def __repr__(self) -> str:
        changes = ", ".join(f"{c.kind} {c.name}" for c in self.difference.changes)
        return f"{self.difference.heading}\n{changes or 'nothing changes above the demo'}"

    def _repr_html_(self) -> str:
        difference = self.difference
        whole = difference.framework or difference.demo
        lines = sum(map(len, whole))
        what = "difference" if difference.framework else "demo"
        parts = [
            f"<b>{html.escape(difference.heading)}</b>"
            f" <small>({html.escape(difference.place)})</small>",
            _summary(difference),
        ]
        if self.names:
            parts += [_named(name, self._of(name)) for name in self.names]
        elif lines <= OPEN:
            parts.append(_code(whole))
        if self.names or lines > OPEN:
            parts.append(_folded(f"the whole {what}: {lines} lines", _code(whole)))
        if difference.framework and difference.demo:
            parts.append(_folded(f"its demo: {difference.demo_size}", _code(difference.demo)))
        words = html.escape(difference.new.docstring.partition("\n")[2].strip("\n"))
        parts.append(_folded("what the step says", f'<pre style="{PRE}">{words}</pre>'))
        inside = "\n".join(parts)
        style = "border-left:3px solid #0969da;padding-left:12px;margin:6px 0"
        return f"<div style={quoted(style)}>{inside}</div>"

    def _of(self, name: str) -> list[list[Line]]:
        """One definition against its form in the step before; whole, if it is new or small."""
        old, new = self.difference.old.definitions, self.difference.new.definitions
        numbered = _numbered(new[name])
        if name not in old:
            return [[Line(" ", *each) for each in numbered]]
        return hunks(_numbered(old[name]), numbered)


def show(step: int | str, *names: str) -> Shown:
    """What a step changes. With names, these definitions are open and all else is folded."""
    return Shown(Difference(*find(step)), names)


def _numbered(definition):
    return list(enumerate(definition.text.splitlines(), definition.first))


def _summary(difference):
    rows = []
    for change in difference.changes:
        if change in difference.dropped:
            continue
        size = f" {change.size}" if change.size else ""
        note = f" ({change.note})" if change.note else ""
        rows.append(
            f"{change.kind} <code>{html.escape(change.name)}</code>{html.escape(size + note)}"
        )
    rows += [f"moved to <code>{html.escape(module)}</code>" for module in difference.moved_to]
    if difference.dropped:
        rows.append(f"removed {difference.dropped_size}")
    if len(rows) > 6:
        rows[5:] = [f"and {len(rows) - 5} more"]
    return f"<div><small>{'; '.join(rows) or 'nothing changes above the demo'}</small></div>"


def _named(name, found):
    return f"<div><small><code>{html.escape(name)}</code></small></div>{_code(found)}"


def _folded(title, inside):
    return f"<details><summary><small>{title}</small></summary>{inside}</details>"


def _code(found: list[list[Line]]) -> str:
    rows = []
    for position, hunk in enumerate(found):
        if position:
            rows.append('<div style="opacity:0.5">  ...</div>')
        marks = any(line.mark != " " for line in hunk)
        for line in _without_gaps(hunk):
            color = {"+": ADDED, "-": REMOVED}.get(line.mark)
            style = f' style="background:{color}"' if color else ""
            mark = f"{line.mark} " if marks else ""
            rows.append(f"<div{style}>{html.escape(mark + line.text) or '&nbsp;'}</div>")
    return f'<pre style="{PRE}">{"".join(rows)}</pre>'


def _without_gaps(hunk: list[Line]) -> list[Line]:
    """The lines, with one blank line where there are several, and none at the ends."""
    kept: list[Line] = []
    for line in hunk:
        if line.text.strip() or kept and kept[-1].text.strip():
            kept.append(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    return kept


def history(name: str) -> None:
    """Print every form that a definition had: `python -m steps history NAME`."""
    print(History(Curriculum(ROOT), name).text())


# --- graphs ------------------------------------------------------------------------------------


def draw(graph: Any, names: dict[str, Any] | None = None, box=None, fill=None) -> Picture:
    """Draw a graph: that behind a Variable or a Tensor, or one in Graphviz's language.

    names: what to write at a variable; box(f): what to write into a function's box, by default
    its class; fill(thing): the colour of a variable or function, or None.
    """
    if isinstance(graph, str):
        return picture(graph)
    if hasattr(graph, "creator"):
        return picture(variable_graph(graph, names, box, fill))
    return picture(tensor_graph(graph, names, box, fill))


class Stack:
    """Pictures below one another, each with its title."""

    def __init__(self, pictures: dict[str, Picture]):
        self.pictures = pictures

    def __repr__(self) -> str:
        return "\n".join(f"{title}: {each!r}" for title, each in self.pictures.items())

    def _repr_html_(self) -> str:
        return "\n".join(
            f'<div style="margin:8px 0"><div><small>{html.escape(title)}</small></div>'
            f"{each._repr_html_()}</div>"
            for title, each in self.pictures.items()
        )


def stack(pictures: dict[str, Picture]) -> Stack:
    """Show several drawings in one output: {title: drawing}."""
    return Stack(pictures)


def play(pictures: dict[str, Picture], seconds: float = 2.0) -> Picture:
    """Show drawings one after another, again and again: {title: drawing}, each for some seconds.

    The browser plays the picture by itself. Where it does not, the last drawing is seen.
    """
    whole, count = seconds * len(pictures), len(pictures)
    sizes = [size_of(each.svg) for each in pictures.values()]
    width, height = (max(size) for size in zip(*sizes, strict=True))
    height += TITLE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="14">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (title, each) in enumerate(pictures.items()):
        shown = ["visible" if n == number else "hidden" for n in range(count)]
        first = "visible" if number == count - 1 else "hidden"  # where nothing moves
        parts += [
            f'<g visibility="{first}"><animate attributeName="visibility" '
            f'values="{";".join(shown)}" dur="{whole:g}s" calcMode="discrete" '
            'repeatCount="indefinite"/>',
            f'<text x="8" y="17" fill="#24292f">{number + 1}. {html.escape(title)}</text>',
            each.svg.replace("<svg ", f'<svg y="{TITLE}" ', 1),
            "</g>",
        ]
    return Picture("\n".join([*parts, "</svg>", ""]), f"{count} pictures: {', '.join(pictures)}")


def size_of(svg: str) -> tuple[int, int]:
    """The width and the height of a drawing, in pixels."""
    found = re.search(r'width="(\d+)" height="(\d+)"', svg)
    return int(found[1]), int(found[2])


def variable_graph(y, names=None, box=None, fill=None) -> str:
    """The graph behind a Variable of steps 07 to 30, with values and gradients."""
    names = {id(variable): name for name, variable in (names or {}).items()}
    functions = functions_behind(y)
    variables = list(
        {id(v): v for v in [y, *(x for f in functions for x in inputs_of(f))]}.values()
    )
    ids = {id(v): f"v{i}" for i, v in enumerate(variables)}
    ids |= {id(f): f"f{i}" for i, f in enumerate(functions)}
    lines = ["digraph {"]

    def add(thing, text, shape):
        color = fill(thing) if fill else None
        look = f", fillcolor={quoted(color)}" if color else ""
        lines.append(f"{ids[id(thing)]} [label={quoted(text)}, shape={shape}{look}]")

    for v in variables:
        title = names.get(id(v)) or getattr(v, "name", None)
        add(v, "\n".join([title, *describe(v)] if title else describe(v)), "ellipse")
    for f in functions:
        add(f, box(f) if box else type(f).__name__, "box")
        lines += [f"{ids[id(x)]} -> {ids[id(f)]}" for x in inputs_of(f)]
    lines += [f"{ids[id(v.creator)]} -> {ids[id(v)]}" for v in variables if v.creator is not None]
    return "\n".join([*lines, "}"])


def tensor_graph(y, names=None, box=None, fill=None) -> str:
    """The recorded graph behind a Tensor: its leaves, the calls, and y. Edges are as in step 32c.

    Results between two calls are not drawn: the graph does not hold them.
    """
    titles = {id(tensor): name for name, tensor in (names or {}).items()}
    ids: dict[int, str] = {}
    lines, waiting = ["digraph {"], []

    def add(thing, text, shape):
        ids[id(thing)] = f"n{len(ids)}"
        color = fill(thing) if fill else None
        look = f", fillcolor={quoted(color)}" if color else ""
        lines.append(f"{ids[id(thing)]} [label={quoted(text)}, shape={shape}{look}]")

    def text_of(tensor):
        title = [titles[id(tensor)]] if id(tensor) in titles else []
        return "\n".join(title + describe(tensor))

    def visit(thing):
        if id(thing) not in ids and hasattr(thing, "edges"):
            add(thing, box(thing) if box else type(thing).__name__, "box")
            waiting.append(thing)
        elif id(thing) not in ids:
            add(thing, text_of(thing), "ellipse")
        return ids[id(thing)]

    if y.grad_fn is None:
        visit(y)
    else:
        visit(y.grad_fn)
        add(y, text_of(y), "ellipse")
        lines.append(f"{ids[id(y.grad_fn)]} -> {ids[id(y)]}")
    while waiting:
        node = waiting.pop()
        for edge in node.edges:
            if edge is not None:
                before = edge[0] if isinstance(edge, tuple) else edge
                lines.append(f"{visit(before)} -> {ids[id(node)]}")
    return "\n".join([*lines, "}"])


def functions_behind(y) -> list:
    """All functions that made a Variable; from step 16 on in the order in which they ran."""
    found: dict[int, Any] = {}
    waiting = [y.creator]
    while waiting:
        f = waiting.pop()
        if f is not None and id(f) not in found:
            found[id(f)] = f
            waiting += [x.creator for x in inputs_of(f)]
    return sorted(reversed(found.values()), key=lambda f: getattr(f, "sequence_nr", 0))


def inputs_of(f) -> list:
    return list(f.inputs) if hasattr(f, "inputs") else [f.input]


def describe(v) -> list[str]:
    """What a Variable or a Tensor holds, in one or two lines: numbers, or the shape of an array."""

    def short(value):
        array = getattr(value, "array", value)  # of a Tensor
        array = getattr(array, "data", array) if type(array) is type(v) else array  # of a Variable
        return f"{float(array):.4g}" if np.ndim(array) == 0 else f"{np.shape(array)}"

    return [short(v)] + ([] if v.grad is None else [f"grad {short(v.grad)}"])


# --- exercises ---------------------------------------------------------------------------------


def check(number: int, test) -> None:
    """Print whether an answer is right, and if it is not, which part of it fails first.

    `test` is a generator function: it yields pairs, what a part is about and whether it is right.
    """
    part = ""
    try:
        for part, right in test():
            if not right:
                print(f"exercise {number}: not yet; look at {part}")
                return
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        after = f" ({part} was right)" if part else ""
        print(f"exercise {number}: not yet; {reason}{after}")
        return
    print(f"exercise {number}: right")
