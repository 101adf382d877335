"""Drawings of numbers in boxes: the right number of boxes, in the right places."""

import re

import numpy as np
import pytest

from steps.companion.drawing import PAGE
from steps.companion.drawing_boxes import calls, grid, number, positions, strip, tables, timeline


def boxes(picture):
    """Each box of a drawing: x, y, width, and whether its border is dashed."""
    found = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"([^>]*)>', picture.svg)
    return [(float(x), float(y), float(w), "dasharray" in rest) for x, y, w, rest in found]


def texts(picture):
    return re.findall(r">([^<]+)</text>", picture.svg)


def test_a_stretched_array_has_full_boxes_for_its_own_numbers_only():
    picture = tables({"row": (np.array([1.0, 2.5]), (3, 2)), "one": np.array(7)})
    assert [dashed for *_, dashed in boxes(picture)] == [False] * 2 + [True] * 4 + [False]
    assert texts(picture) == ["row", "1", "2.5", "1", "2.5", "1", "2.5", "one", "7"]


def test_a_wide_row_of_tables_is_broken_at_the_page():
    picture = tables({f"table {i}": np.zeros((2, 6)) for i in range(6)})
    found = boxes(picture)
    assert max(x + width for x, _, width, _ in found) <= PAGE
    assert len({y for _, y, _, _ in found}) > 2
    assert len({(x, y) for x, y, _, _ in found}) == 6 * 12, "no two boxes at one place"


def test_positions_of_a_view():
    memory = np.arange(6)
    assert positions(memory.reshape(2, 3).T, memory)[:3] == [(0, (0, 0)), (3, (0, 1)), (1, (1, 0))]
    assert positions(memory[4::-2], memory) == [(4, (0,)), (2, (1,)), (0, (2,))]
    with pytest.raises(ValueError, match="not in this memory"):
        positions(np.arange(6), memory[:2])


def test_a_strip_shows_where_the_elements_of_a_view_are():
    memory = np.arange(4)
    picture = strip(memory, {"middle": memory[1:3], "twice": np.broadcast_to(memory[3:], (2, 1))})
    base, middle, twice = [
        [box for box in boxes(picture) if box[1] == y]
        for y in sorted({y for _, y, _, _ in boxes(picture)})
    ]
    assert len(base) == 4
    assert [x for x, *_ in middle] == [x for x, *_ in base[1:3]]
    assert [x for x, *_ in twice] == [base[3][0]]
    assert texts(picture)[-4:] == ["[0]", "[1]", "twice", "2 times"]


def test_a_timeline_tells_whether_the_version_is_still_that_of_the_save():
    events = [("y = 2 * x", 0, ""), ("z = y * y", 0, "save"), ("z.backward()", 0, "check")]
    assert texts(timeline(events))[-1] == "the same"
    events[2:2] = [("y.add_(1)", 1, "")]
    events[-1] = ("z.backward()", 1, "check")
    assert texts(timeline(events))[-1] == "differs: an error"
    assert texts(timeline(events))[:2] == ["version 0", "version 1"]


def test_equal_words_of_a_grid_have_equal_colours():
    picture = grid(["a", "b"], ["c", "d"], [["x", "y"], ["y", "x"]])
    fills = re.findall(r'<rect x[^>]*fill="([^"]+)"', picture.svg)
    assert fills[0] == fills[3] != fills[1] == fills[2]


def test_a_call_stands_below_its_caller_and_to_the_right():
    picture = calls([(0, "outer", "f"), (1, "inner", "g"), (0, "outer", "h")])
    f, g, h = boxes(picture)[2:]  # two boxes are the legend
    assert g[0] > f[0] == h[0]
    assert f[1] < g[1] < h[1]


def test_numbers_are_short():
    assert [number(each) for each in (1 / 3, np.float32(2), 5, True)] == ["0.333", "2", "5", "True"]
