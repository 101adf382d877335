"""What the web edition is made of, tried without Sphinx; tests/site builds pages."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from steps.companion.curriculum import Curriculum
from steps.companion.difference import Difference
from steps.web import outputs, project
from steps.web.sources import lab_text

ROOT = Path(__file__).resolve().parents[2]
CURRICULUM = Curriculum(ROOT)


@pytest.fixture
def only(monkeypatch):
    """Choose the steps of the site, and forget them at the end."""
    remembered = (project.chosen, project.pages, project.addresses)
    remembered += (project.last_names, project.definitions)

    def choose(text):
        monkeypatch.setenv(project.ONLY, text)
        for each in remembered:
            each.cache_clear()

    yield choose
    for each in remembered:
        each.cache_clear()


def test_every_step_is_on_one_page():
    shown = [step.number for page in project.pages() for step in page.steps]
    assert shown == [step.number for step in CURRICULUM.steps]
    names = [page.name for page in project.pages()]
    assert len(set(names)) == len(names)


def test_a_page_of_the_main_road_has_3_to_9_steps_and_whole_topics():
    pages = [page for page in project.pages() if not page.steps[0].run]
    for page in pages:
        assert 3 <= len(page.steps) <= 9, page.name
    for before, after in zip(pages, pages[1:], strict=False):
        assert before.steps[-1].number.topic < after.steps[0].number.topic


def test_a_page_in_depth_has_at_most_9_steps_and_one_only_where_its_run_is_short():
    for page in project.pages():
        run = [step for step in CURRICULUM.steps if step.run == page.steps[0].run]
        assert len(page.steps) <= 9
        assert len(page.steps) >= min(3, len(run)), page.name


def test_the_addresses_of_repository_and_site_are_settings():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["tinytorch"]
    assert table.keys() == {"repository", "site"}
    assert all(value == "" or value.startswith("https://") for value in table.values())


def test_no_two_definitions_share_a_page_on_a_disk_that_ignores_case(only):
    only("01-60c")
    pages = set(project.definitions().values())
    assert {page.lower() for page in pages} == pages
    assert len(pages) == len(set(project.last_names().values()))
    assert project.definitions()["Variable.backward"] == "tensor_backward"
    assert project.definitions()["Relu"] != project.definitions()["relu"]


def test_what_is_made_is_kept_by_the_content_that_it_depends_on(tmp_path, monkeypatch):
    monkeypatch.setenv(project.FOLDER, str(tmp_path))
    made = []

    def make():
        made.append(1)
        return f"made {len(made)}"

    assert project.cached("kind", ("a", "b"), make) == "made 1"
    assert project.cached("kind", ("a", "b"), make) == "made 1"
    assert project.cached("kind", ("ab",), make) == "made 2"


def test_a_promised_output_is_the_promises_in_order():
    text = outputs.promised(CURRICULUM.step(14))
    assert text.splitlines()[:2] == ["d(x + x)/dx = 2.0", "dy/dy is still 1.0"]


def test_a_printed_graph_is_drawn():
    text = 'before\ndigraph g {\na [label="x"]\nb [label="Add", shape=box]\na -> b\n}\nafter'
    (picture,) = outputs.pictures(text)
    assert picture.startswith("<img")
    assert outputs.pictures("digraph that does not end") == []


def test_a_difference_as_html_marks_each_line_and_copies_none_of_the_marks():
    pytest.importorskip("pygments")
    from steps.web.code import difference_html

    difference = Difference(CURRICULUM, CURRICULUM.step(14))
    page = difference_html(difference, "steps/11-14")
    lines = [line for place in difference.lesson for line in place]
    for tag, mark in (("ins", "+"), ("del", "-")):
        numbers = [int(n) for n in re.findall(rf'<{tag} data-n="(\d+)"', page)]
        assert numbers == [line.number for line in lines if line.mark == mark] != []
    text = re.sub(r"<[^>]*>", "", page)
    assert "x.grad = gx if x.grad is None else x.grad + gx  # not +=" in text
    assert "+ " not in [line[:2] for line in text.splitlines()]
    assert "<summary>the demo: " in page  # folded: there is a lesson above it


def test_a_line_inside_a_long_string_is_coloured_as_string():
    pytest.importorskip("pygments")
    from steps.companion.hunks import Line
    from steps.web.code import Painter

    text = '"""First.\n\nreturn 1\n"""\nreturn 1'
    painter = Painter((1, ""), (1, text))
    assert painter(Line("+", 3, "return 1")) != painter(Line("+", 5, "return 1"))


def test_the_text_of_a_step_becomes_paragraphs_lists_blocks_and_a_box():
    nodes = pytest.importorskip("docutils.nodes")
    from steps.web.prose import body

    found = body(
        "\nOne *line* and\n`Tensor` of step 14, k * k:\n\n    y = 2 x\n\n    z = 3\n"
        "Then:\n- a\n- b\n  c\n\n"
        "Changed: square, steps 11 and 12. New: exp.\nTry: this\nand that.\n\nThe end.\n",
        "steps/11-14",
    )
    kinds = [type(each).__name__ for each in found]
    assert kinds == [
        "paragraph", "literal_block", "paragraph", "bullet_list", "container", "paragraph",
    ]  # fmt: skip
    assert found[0].astext() == "One line and Tensor of step 14, k * k:"
    assert found[1].astext() == "y = 2 x\n\nz = 3"
    assert [item.astext() for item in found[3]] == ["a", "b c"]
    rows = [row.astext() for row in found[4]]
    assert rows == ["Changed square, steps 11 and 12.", "New exp.", "Try this and that."]
    targets = [each["refuri"] for part in found for each in part.findall(nodes.reference)]
    assert "11-14.html#step14" in targets and "11-14.html#step12" in targets
    assert "../definitions/exp_.html" in targets


def test_a_step_links_to_the_runs_beside_it_as_far_as_they_are_shown(only):
    pytest.importorskip("sphinx")
    pytest.importorskip("latex2mathml")
    from steps.web.extension import beside_html

    step = CURRICULUM.step("75d")
    only("75d,layers")
    assert '<a href="../depth/layers01-' in beside_html(step, "steps/75d")
    only("75d")
    assert beside_html(step, "steps/75d") == ""


def test_a_lab_has_a_button_where_the_repository_is_at_github():
    path = ROOT / "notebooks" / "depth" / "gpu.ipynb"
    assert lab_text(path, "") == lab_text(path, "https://example.org/a/b") == path.read_text()
    cells = json.loads(lab_text(path, "https://github.com/somebody/tiny"))["cells"]
    words = "".join(cells[1]["source"])
    place = "https://colab.research.google.com/github/somebody/tiny/blob/main"
    assert f"({place}/notebooks/depth/gpu.ipynb)" in words
    assert "`!git clone https://github.com/somebody/tiny` and `%cd tiny`" in words
    assert cells[:1] + cells[2:] == json.loads(path.read_text())["cells"]
