"""What the notebooks share: loading, showing, drawing and checking."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from steps.companion.curriculum import CurriculumError
from steps.companion.notebook import (
    OPEN,
    check,
    describe,
    draw,
    functions_behind,
    load,
    play,
    show,
    stack,
    tensor_graph,
    variable_graph,
)


def opened(shown):
    """What a reader sees before unfolding anything."""
    return re.sub(r"<details>.*?</details>", "", shown._repr_html_(), flags=re.S)


def test_load_gives_the_framework_and_leaves_the_demo_out(capsys):
    s = load(14)
    x = s.Variable(np.array(3.0))
    s.add(x, x).backward()
    assert x.grad == 2.0
    assert capsys.readouterr().out == ""
    assert s.Variable is not load("14").Variable


def test_there_is_no_such_step():
    for function in (load, show):
        with pytest.raises(CurriculumError, match="no step 1000"):
            function(1000)


def test_a_short_difference_is_open():
    assert "x.grad + gx" in opened(show(14))


def test_a_long_difference_is_folded_and_the_key_definition_is_open():
    shown, plain = show("27a", "Mul"), show("27a")
    assert sum(map(len, plain.difference.framework)) > OPEN
    assert "<pre" not in opened(plain)
    assert "gy * x1, gy * x0" in opened(shown)
    assert "np.cos" not in opened(shown) and "np.cos" in shown._repr_html_()


def test_a_new_definition_is_shown_whole_without_marks():
    assert ">class GradMode" in opened(show(18, "GradMode"))
    assert "+ " not in opened(show(18, "GradMode")).split("<pre")[1]


def test_a_definition_that_is_not_there():
    with pytest.raises(CurriculumError, match="there is no nothing"):
        show(14, "nothing")


def test_text_of_a_step_is_escaped():
    assert "<module>" not in show(3)._repr_html_()
    assert "&quot;&quot;&quot;" in show(3)._repr_html_()


@pytest.mark.parametrize("step", [7, 8, 10])
def test_the_path_of_a_chain(step):
    s = load(step)
    x = s.Variable(np.array(0.5))
    y = s.Square()(s.Exp()(x))
    assert [type(f).__name__ for f in functions_behind(y)] == ["Exp", "Square"]
    dot = variable_graph(y, {"x": x})
    assert dot.count("->") == 4 and '"x\\n0.5"' in dot


@pytest.mark.parametrize("step", [13, 16, 17, 24, 27, 30])
def test_the_graph_of_a_variable_used_twice(step):
    s = load(step)
    x = s.Variable(np.array(3.0))
    a = s.square(x)
    y = s.add(a, s.exp(a))
    y.backward()
    dot = variable_graph(y, fill=lambda thing: "red" if thing is x else None)
    assert dot.count("shape=box") == 3 and dot.count("shape=ellipse") == 4
    assert dot.count("->") == 7 and dot.count('"red"') == 1
    assert describe(x)[0] == "3" and describe(x)[1].startswith("grad ")
    assert "<img" in draw(y)._repr_html_()


def test_the_recorded_graph_of_a_tensor():
    import tinytorch as torch

    w, b = torch.tensor(2.0, requires_grad=True), torch.ones(3, requires_grad=True)
    y = (w * w + b * 5.0).sum()
    y.backward()
    dot = tensor_graph(y, {"w": w, "y": y}, fill=lambda each: "red" if each is b else None)
    assert dot.count("shape=box") == 4 and dot.count("shape=ellipse") == 3  # 5.0 needs no gradient
    assert (
        '"w\\n2\\ngrad 12"' in dot and '"(3,)\\ngrad (3,)", shape=ellipse, fillcolor="red"' in dot
    )
    assert dot.count("->") == 7 and "<img" in draw(y, {"w": w})._repr_html_()
    assert tensor_graph(w.detach()).count("->") == 0


def test_pictures_below_one_another():
    shown = stack({"one < two": draw("digraph {\na -> b\n}"), "two": draw("digraph {\na\n}")})
    assert shown._repr_html_().count("<img") == 2 and "one &lt; two" in shown._repr_html_()


def test_pictures_that_play():
    """Each is visible for its part of the time, and the last one where nothing plays."""
    drawings = {"a < b": draw("digraph {a -> b}"), "two": draw("digraph {a -> b; b -> c}")}
    found = ElementTree.fromstring(play(drawings, 1.5).svg)
    name = "{http://www.w3.org/2000/svg}"
    groups = [each for each in found if each.tag == name + "g"]
    moves = [group.find(name + "animate").attrib for group in groups]
    assert [each["values"] for each in moves] == ["visible;hidden", "hidden;visible"]
    assert {each["dur"] for each in moves} == {"3s"}
    assert [group.attrib["visibility"] for group in groups] == ["hidden", "visible"]
    assert [group.find(name + "text").text for group in groups] == ["1. a < b", "2. two"]
    widths = [int(group.find(name + "svg").attrib["width"]) for group in groups]
    assert int(found.attrib["width"]) == max(widths) and widths[0] < widths[1]


def test_check_names_the_first_part_that_fails(capsys):
    def test():
        yield "the value", True
        yield "the gradient", np.False_
        yield "never asked", 1 / 0

    check(1, test)
    assert capsys.readouterr().out == "exercise 1: not yet; look at the gradient\n"


def test_check_reports_an_error_and_what_was_right(capsys):
    def test():
        yield "the value", True
        yield "the gradient", int("x")

    check(2, test)
    printed = capsys.readouterr().out
    assert printed.startswith("exercise 2: not yet; ValueError: invalid literal")
    assert printed.endswith("(the value was right)\n")


def test_check_says_right_when_all_parts_are(capsys):
    check(3, lambda: iter([("a", True), ("b", np.True_)]))
    assert capsys.readouterr().out == "exercise 3: right\n"
