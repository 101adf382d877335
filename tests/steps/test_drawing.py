"""Drawings of graphs: what is read, where nodes stand, and that an image is safe to show."""

import base64
import re
import xml.etree.ElementTree as ET

import pytest

from steps.companion.drawing import PAGE, arrange, parse, picture, text_width

DIAMOND = """digraph {
  v0 [label="x\\n3.0"]
  v1 [label="a"]
  v2 [label="b"]
  v3 [label="y"]
  f0 [label="Square", shape=box]
  f1 [label="Exp", shape=box]
  f2 [label="Add", shape=box]
  v0 -> f0 -> v1
  v1 -> f1 -> v2
  v1 -> f2
  v2 -> f2 -> v3
}"""


def laid_out(dot, direction="LR"):
    nodes, edges, _ = parse(dot)
    layers = arrange(nodes, edges, direction)
    return {node.lines[0]: node for node in nodes}, edges, layers


def test_reads_what_the_steps_write():
    nodes, edges, options = parse('digraph {rankdir=LR; "a b" [label="two\\nlines", color=red]\n}')
    assert options == {"rankdir": "LR"}
    assert [(n.lines, n.look["color"]) for n in nodes] == [(["two", "lines"], "red")]
    assert not edges


@pytest.mark.parametrize("quoted", ['"\\"quoted\\" ünd"', '"[1, 2] -> x"'])
def test_reads_labels_with_signs_of_the_language(quoted):
    (node,), edges, _ = parse(f"digraph {{\n  v0 [label={quoted}]\n}}")
    assert node.lines == [quoted[1:-1].replace('\\"', '"')]
    assert not edges


def test_edges_lead_forward():
    nodes, edges, _ = laid_out(DIAMOND)
    assert [nodes[n].layer for n in ("x", "Square", "a", "Exp", "b", "Add", "y")] == [*range(7)]
    assert all(edge.start.x < edge.end.x for edge in edges)
    nodes, edges, _ = laid_out(DIAMOND, "TB")
    assert all(edge.start.y < edge.end.y for edge in edges)


def test_a_long_edge_bends_around_the_nodes_between():
    nodes, edges, _ = laid_out(DIAMOND)
    (long,) = [e for e in edges if e.start is nodes["a"] and e.end is nodes["Add"]]
    assert [bend.layer for bend in long.bends] == [3, 4]
    for bend, node in zip(long.bends, (nodes["Exp"], nodes["b"]), strict=True):
        assert abs(bend.y - node.y) >= node.height / 2


@pytest.mark.parametrize("direction", ["LR", "TB"])
def test_nodes_do_not_overlap(direction):
    dot = "digraph {" + "\n".join(f"a{i} -> b{i % 3} -> c -> d{i}" for i in range(7)) + "}"
    _, _, layers = laid_out(dot, direction)
    for layer in layers:
        for a, b in zip(layer, layer[1:], strict=False):
            apart, size = (b.y - a.y, a.height + b.height)
            if direction == "TB":
                apart, size = (b.x - a.x, a.width + b.width)
            assert apart >= size / 2


def test_edges_cross_only_where_they_must():
    nodes, _, _ = laid_out("digraph {\na -> p\nb -> q\nc -> r\np -> x\nr -> z\nq -> y\n}")
    columns = (("a", "b", "c"), ("p", "q", "r"), ("x", "y", "z"))
    orders = [sorted(range(3), key=lambda i, c=c: nodes[c[i]].y) for c in columns]
    assert orders[0] == orders[1] == orders[2]


def test_a_circle_is_drawn_and_ends():
    nodes, edges, _ = laid_out("digraph {\nx -> f\nf -> y\ny -> f\n}")
    assert [edge.turned for edge in edges] == [False, False, True]
    assert nodes["x"].layer < nodes["f"].layer < nodes["y"].layer


def test_a_wide_graph_is_drawn_downwards():
    chain = "digraph {" + " -> ".join(f"a_long_name_{i}" for i in range(30)) + "}"
    assert width_of(picture(chain)) < PAGE < width_of(picture(chain, "LR"))


def width_of(drawn):
    return float(ET.fromstring(drawn.svg).get("width"))


def test_an_image_with_its_data_no_wider_than_the_page():
    shown = picture("digraph {" + " -> ".join(f"node{i}" for i in range(15)) + "}")._repr_html_()
    assert "max-width:100%" in shown and int(re.search(r'width="(\d+)"', shown)[1]) <= PAGE
    data = re.search(r'src="data:image/svg\+xml;base64,([\w+/=]+)"', shown)[1]
    root = ET.fromstring(base64.b64decode(data))
    assert root.tag.endswith("svg")


def test_texts_are_escaped_and_lie_inside():
    drawn = picture('digraph {\nv [label="a < b & c"]\n}')
    (text,) = [e for e in ET.fromstring(drawn.svg).iter() if e.tag.endswith("text")]
    assert text.text == "a < b & c"
    assert text_width(text.text) < width_of(drawn)


def test_an_empty_graph():
    assert ET.fromstring(picture("digraph {\n}").svg).tag.endswith("svg")
