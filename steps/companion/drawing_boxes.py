"""Drawings of numbers in boxes: tables, memory and time. SVG like that of drawing.py.

`tables` shows how broadcasting stretches arrays, `strip` which memory a view covers, `timeline` the
version of a tensor from write to write, `grid` a table in which equal words have equal colours, and
`calls` which function calls which.
"""

from __future__ import annotations

import html
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .drawing import BOX_FILL, FONT, INK, MARGIN, PAGE, SIZE, Picture, text_width

FULL, PALE, GREY = "#9ec5fe", "#f3f7ff", "#8c959f"
GOOD, BAD = "#1a7f37", "#cf222e"
COLORS = [
    *("#dbeafe", "#fde68a", "#bbf7d0", "#fecaca", "#ddd6fe", "#fed7aa", "#a5f3fc"),
    *("#fbcfe8", "#e5e7eb", "#d9f99d"),
]
ROW = 26  # the height of a box, in pixels
GAP = 26  # between two tables


@dataclass
class Canvas:
    """Shapes, and how far they reach."""

    shapes: list[str] = field(default_factory=list)
    right: float = 0.0
    bottom: float = 0.0

    def reach(self, x: float, y: float) -> None:
        self.right, self.bottom = max(self.right, x), max(self.bottom, y)

    def box(self, x, y, width, text="", fill="white", border=INK, ink=INK, dashed=False):
        """A box of the height ROW with a text in its middle."""
        dashes = ' stroke-dasharray="3 3"' if dashed else ""
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{ROW}"'
            f' fill="{fill}" stroke="{border}"{dashes}/>'
        )
        self.reach(x + width, y + ROW)
        self.text(x + width / 2, y + ROW / 2 + SIZE / 3, text, "middle", ink)

    def text(self, x, y, text, anchor="start", color=INK, size=SIZE):
        if text:
            look = f'text-anchor="{anchor}" fill="{color}" font-size="{size}"'
            self.shapes.append(f'<text x="{x:.1f}" y="{y:.1f}" {look}>{html.escape(text)}</text>')
            share = {"start": 1.0, "middle": 0.5, "end": 0.0}[anchor]
            self.reach(x + share * text_width(text) * size / SIZE, y + 4)

    def line(self, points, color=INK, width=1.2, dashed=False):
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{color}"'
            f' stroke-width="{width}"{dashes}/>'
        )
        for x, y in points:
            self.reach(x, y)

    def dot(self, x, y, color=INK):
        self.shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>')

    def picture(self, text: str) -> Picture:
        width, height = self.right + MARGIN, self.bottom + MARGIN
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
            f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}" font-size="{SIZE}">\n'
            '<rect width="100%" height="100%" fill="white"/>'  # a page may be dark
        )
        return Picture("\n".join([head, *self.shapes, "</svg>", ""]), text)


def array_of(x: Any) -> np.ndarray:
    """The array of a Tensor, or x itself; without a copy."""
    return np.asarray(getattr(x, "array", x))


def number(value) -> str:
    return f"{value:.3g}" if isinstance(value, float | np.floating) else str(value)


def tables(shown: dict[str, Any]) -> Picture:
    """Tables of numbers side by side: {title: array}, or {title: (array, shape)}.

    With a shape, the array is stretched to it as broadcasting does. Numbers in memory are in full
    boxes, those that are only repeated in pale ones.
    """
    canvas = Canvas()
    left, top, lowest = float(MARGIN), float(MARGIN), 0.0
    for title, each in shown.items():
        stored = array_of(each[0] if isinstance(each, tuple) else each)
        shape = each[1] if isinstance(each, tuple) else stored.shape
        rows, columns = (1, 1, *shape)[-2:]
        stored = stored.reshape((1,) * (2 - stored.ndim) + stored.shape)
        texts = [[number(value) for value in row] for row in np.broadcast_to(stored, shape2(shape))]
        cell = max(34.0, 14 + max(text_width(text) for row in texts for text in row))
        width = max(columns * cell, text_width(title))
        if left + width > PAGE and left > MARGIN:
            left, top = float(MARGIN), lowest + GAP
        canvas.text(left, top + SIZE, title)
        for i, j in np.ndindex(rows, columns):
            x, y = left + j * cell, top + SIZE + 8 + i * ROW
            if i < stored.shape[0] and j < stored.shape[1]:
                canvas.box(x, y, cell, texts[i][j], FULL)
            else:
                canvas.box(x, y, cell, texts[i][j], PALE, GREY, GREY, dashed=True)
        left += width + GAP
        lowest = max(lowest, top + SIZE + 8 + rows * ROW)
    return canvas.picture("tables: " + ", ".join(shown))


def shape2(shape):
    return (1,) * (2 - len(shape)) + tuple(shape)


def positions(view: np.ndarray, memory: np.ndarray) -> list[tuple[int, tuple[int, ...]]]:
    """For each element of `view`: its place in `memory`, counted in elements, and its index.

    Raises:
        ValueError: an element of the view lies outside of the memory
    """
    start = (view.ctypes.data - memory.ctypes.data) // memory.itemsize
    strides = [stride // memory.itemsize for stride in view.strides]
    found = []
    for index in np.ndindex(view.shape):
        place = start + sum(i * stride for i, stride in zip(index, strides, strict=True))
        if not 0 <= place < memory.size:
            raise ValueError("the view is not in this memory")
        found.append((place, index))
    return found


def marks_of(found: list[tuple[int, tuple[int, ...]]]) -> dict[int, str]:
    """What to write at each place: the index of its element, or how many elements it has."""
    counts = Counter(place for place, _ in found)
    return {
        place: str(list(index)) if counts[place] == 1 else f"{counts[place]} times"
        for place, index in found
    }


def strip(memory: Any, views: dict[str, Any]) -> Picture:
    """One strip of memory with its numbers, and below it the boxes that each view covers.

    A box of a view shows the element's index; where several elements share it, how many they are.
    """
    memory = array_of(memory).reshape(-1)
    seen = {title: positions(array_of(view), memory) for title, view in views.items()}
    canvas = Canvas()
    indent = MARGIN + max(map(text_width, ["memory", *views])) + 12
    texts = [number(value) for value in memory]
    marks = {title: marks_of(found) for title, found in seen.items()}
    written = [*texts, *(text for each in marks.values() for text in each.values())]
    cell = max(40.0, 8 + max(map(text_width, written)))
    canvas.text(MARGIN, MARGIN + 12 + ROW / 2 + SIZE / 3, "memory")
    for place, text in enumerate(texts):
        x = indent + place * cell
        canvas.text(x + cell / 2, MARGIN + 8, str(place), "middle", GREY, SIZE - 3)
        canvas.box(x, MARGIN + 12, cell, text, FULL)
    for row, (title, covered) in enumerate(marks.items(), 1):
        y = MARGIN + 12 + row * (ROW + 10)
        canvas.text(MARGIN, y + ROW / 2 + SIZE / 3, title)
        for place in range(memory.size):
            x = indent + place * cell
            if place in covered:
                canvas.box(x, y, cell, covered[place], COLORS[row % len(COLORS)])
            else:
                canvas.line([(x, y + ROW / 2), (x + cell, y + ROW / 2)], "#d0d7de", 1, dashed=True)
    return canvas.picture("a strip of memory with the views " + ", ".join(views))


def timeline(events: list[tuple[str, int, str]]) -> Picture:
    """The version of a tensor over time: (the line that runs, the version after it, a kind).

    kind: "save" for a call that notes the version, "check" for one that compares it with that of
    all saves before, and "" for others. A comparison is drawn in green if the versions are the
    same, and in red if they differ.
    """
    canvas = Canvas()
    height, head = 34, 3 * SIZE
    top = max(version for _, version, _ in events)
    widths = [max(text_width(text) + 24, 70) for text, _, _ in events]
    starts = [80 + sum(widths[:i]) for i in range(len(events))]

    def level(version):
        return MARGIN + head + (top - version) * height

    for version in range(top + 1):
        canvas.text(MARGIN, level(version) + SIZE / 3, f"version {version}", color=GREY)
        canvas.line([(76, level(version)), (sum(widths) + 80, level(version))], "#eaeef2", 1)
    stairs = []
    for start, width, (_, version, _) in zip(starts, widths, events, strict=True):
        stairs += [(start, level(version)), (start + width, level(version))]
    canvas.line(stairs, "#0969da", 3)
    saved: list[tuple[float, int]] = []
    for start, (text, version, kind) in zip(starts, events, strict=True):
        canvas.text(start, MARGIN + SIZE, text)
        canvas.line([(start, MARGIN + SIZE + 5), (start, level(version))], "#d0d7de", 1, True)
        if kind == "save":
            saved.append((start, version))
        canvas.dot(start, level(version), "#0969da")
        for begin, before in saved if kind == "check" else []:
            color = GOOD if before == version else BAD
            y = level(before) + 5 * (before == version)  # beside the stairs, not on them
            canvas.line([(begin, y), (start, y)], color, 1.6, dashed=True)
            canvas.dot(begin, level(before), color)
            canvas.dot(start, level(version), color)
            if before != version:
                canvas.line([(start, level(version)), (start, y)], color, 1.6)
            word = "the same" if before == version else "differs: an error"
            canvas.text(
                start + 8, y + (SIZE + 2 if before == version else SIZE / 3), word, color=color
            )
    return canvas.picture(f"a timeline of {len(events)} events up to version {top}")


def grid(rows: list[str], columns: list[str], words: Any) -> Picture:
    """A table of words with titles. Equal words have equal colours; a field may be empty."""
    canvas = Canvas()
    unlike = dict.fromkeys(word for row in words for word in row if word)
    found = dict(zip(unlike, itertools.cycle(COLORS), strict=False))
    cell = 14 + max(text_width(text) for text in [*columns, *found])
    indent = MARGIN + max(map(text_width, rows)) + 10
    for j, title in enumerate(columns):
        x = indent + (j + 0.5) * cell
        canvas.text(x, MARGIN + SIZE, title, "middle", GREY)
    for i, title in enumerate(rows):
        y = MARGIN + SIZE + 8 + i * ROW
        canvas.text(indent - 8, y + ROW / 2 + SIZE / 3, title, "end", GREY)
        for j, word in enumerate(words[i]):
            canvas.box(indent + j * cell, y, cell, word, found.get(word, PALE), "white")
    return canvas.picture(f"a table of {len(rows)} by {len(columns)} words")


def calls(found: list[tuple[int, str, str]]) -> Picture:
    """Calls as steps that lead down: (depth, layer, name), in the order in which they began."""
    canvas = Canvas()
    layers = list(dict.fromkeys(layer for _, layer, _ in found))
    x = float(MARGIN)
    for layer, color in zip(layers, itertools.cycle(COLORS), strict=False):
        canvas.box(x, MARGIN, text_width(layer) + 20, layer, color, color)
        x += text_width(layer) + 30
    colors = dict(zip(layers, itertools.cycle(COLORS), strict=False))
    open_at: dict[int, float] = {}
    for row, (depth, layer, name) in enumerate(found, 1):
        x, y = MARGIN + 26.0 * depth, MARGIN + 8 + row * (ROW + 5)
        if depth - 1 in open_at:
            joint = x - 13
            canvas.line([(joint, open_at[depth - 1]), (joint, y + ROW / 2), (x, y + ROW / 2)], GREY)
        canvas.box(x, y, text_width(name) + 20, name, colors.get(layer, BOX_FILL))
        open_at[depth] = y + ROW
    return canvas.picture(f"{len(found)} calls in {len(layers)} layers")
