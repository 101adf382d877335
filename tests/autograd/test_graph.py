"""The graph as text, in Graphviz's language, and as a picture: complete, and always the same."""

import shutil

import pytest

import tinytorch
from tinytorch.autograd.graph import draw, graph_functions, graph_text, graph_values, to_dot

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


def leaves(*numbers, device="cpu"):
    return [tinytorch.tensor(x, requires_grad=True, device=device) for x in numbers]


def line():
    w, x, b = leaves(2.0, 0.5, 1.0)
    f = w * x + b
    f.backward()
    return f, {"w": w, "x": x, "b": b, "f": f}


def test_a_line_for_each_leaf_and_each_call():
    f, names = line()
    assert graph_text(f, names).split("\n") == [
        "w = 2.0   gradient 0.5",
        "x = 0.5   gradient 2.0",
        "b = 1.0   gradient 1.0",
        "v3 = Mul(w, x) = shape []",
        "f = Add(v3, b) = 2.0",
    ]


def test_names_are_optional():
    f, _ = line()
    assert graph_text(f).split("\n")[-1] == "v4 = Add(v3, v2) = 2.0"


def test_arguments_without_gradient_are_left_blank():
    (x,) = leaves([[1.0, 2.0]])
    text = graph_text((x * 3.0).expand(4, 2), {"x": x})
    assert text == (
        "x = float32 [1, 2]\nv1 = Mul(x, _) = shape [1, 2]\nv2 = Expand(v1, _) = float32 [4, 2]"
    )


def test_ellipses_and_boxes():
    (x,) = leaves(3.0)
    assert to_dot(x * x, {"x": x}).split("\n") == [
        "digraph {",
        '  v0 [label="x\\n3.0"]',
        '  v1 [label="9.0"]',
        '  f0 [label="Mul", shape=box]',
        "  v0 -> f0",
        "  v0 -> f0",
        "  f0 -> v1",
        "}",
    ]


def test_quotes_in_names_are_escaped():
    (x,) = leaves(3.0)
    assert '[label="a \\"b\\"\\n3.0"]' in to_dot(x, {'a "b"': x})


def test_a_tensor_without_a_graph_is_one_line():
    x = tinytorch.tensor([1.0, 2.0])
    assert graph_text(x, {"x": x}) == "x = float32 [2]"
    assert to_dot(x) == 'digraph {\n  v0 [label="float32 [2]"]\n}'


def test_each_call_once_and_in_order(device):
    (x,) = leaves(1.0, device=device)
    y = x
    for _ in range(30):  # 30 doublings: 2^30 ways back to x
        y = y + y
    assert len(graph_functions(y)) == 30
    assert len(graph_values(y)) == 31
    assert graph_text(y) == graph_text(y)
    assert graph_text(y).split("\n")[-1] == "v30 = Add(v29, v29) = 1073740000.0"


def test_deep_graphs_need_no_deep_stack():
    (x,) = leaves(1.0)
    y = x
    for _ in range(20_000):
        y = -y
    assert len(graph_text(y).split("\n")) == 20_001


def test_several_outputs_have_a_name_each():
    class Both(tinytorch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + 1.0, x * 2.0

        @staticmethod
        def backward(ctx, g, h):
            return g + 2.0 * h

    (x,) = leaves([1.0, 2.0])
    a, b = Both.apply(x)
    text = graph_text(a * b, {"x": x, "a": a, "b": b})
    assert text.split("\n")[1:] == [
        "a, b = Both(x) = float32 [2], float32 [2]",
        "v3 = Mul(a, b) = float32 [2]",
    ]


@needs_dot
def test_draw_writes_what_the_ending_says(tmp_path):
    pytest.importorskip("graphviz")
    f, names = line()
    draw(f, tmp_path / "f.svg", names=names)
    assert "<svg" in (tmp_path / "f.svg").read_text()
    draw(f, tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    draw(f, tmp_path / "picture", format="png")
    assert (tmp_path / "picture").read_bytes().startswith(b"\x89PNG")


@needs_dot
def test_in_jupyter_the_picture_shows_itself():
    pytest.importorskip("graphviz")
    shown = draw(line()[0])._repr_mimebundle_()
    assert "<svg" in shown["image/svg+xml"]


def test_without_graphviz_draw_says_what_to_install(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(RuntimeError, match=r"install Graphviz.*pip install graphviz"):
        draw(line()[0])
