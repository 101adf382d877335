"""The built pages: every step is there, every link resolves, and a second build is the same."""

import html
import re
import shutil

import pytest

from steps.companion.curriculum import Curriculum
from steps.companion.difference import Difference
from steps.web.links import dead_links

from .conftest import PART, ROOT, build

CURRICULUM = Curriculum(ROOT)
STEPS = [step for part in PART.split(",") for step in CURRICULUM.select(part)]


def section(site, step):
    """The part of a page that is about a step."""
    anchor = str(step.number) if step.run else f"step{step.number}"
    pages = [*site.glob("steps/*.html"), *site.glob("depth/*.html")]
    holding = [text for page in pages if f'id="{anchor}"' in (text := page.read_text())]
    assert len(holding) == 1
    return re.split(r'<section class="step"', holding[0].split(f'id="{anchor}"')[1])[0]


def plain(text):
    return html.unescape(re.sub(r"<[^>]*>", "", text))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: str(step.number))
def test_a_step_has_its_title_its_words_its_added_lines_and_its_box(site, step):
    page = section(site, step)
    text = " ".join(plain(page).split())
    assert f"Step {step.number}: {step.title}" in text
    first = step.source.docstring.split("\n\n")[1].replace("`", "")
    assert " ".join(first.split()) in text
    assert "<strong>Try</strong>" in page
    added = [plain(each) for each in re.findall(r"<ins data-n[^>]*>(.*?)\n</ins>", page)]
    lesson = [line for place in Difference(CURRICULUM, step).lesson for line in place]
    assert set(added) >= {line.text for line in lesson if line.mark == "+"}


def test_a_main_step_shows_what_it_prints_and_one_in_depth_what_it_promises(site):
    step14, depth = CURRICULUM.step(14), CURRICULUM.step("layers01")
    assert "d(x + x)/dx = 2.0\n" in section(site, step14)
    assert "promises to print" not in section(site, step14)
    assert "promises to print" in section(site, depth)


def test_every_link_leads_somewhere(site, tmp_path):
    assert dead_links(site) == []
    (tmp_path / "page.html").write_text('<a href="#there"></a><p id="here"><a href="gone.html">')
    assert len(dead_links(tmp_path)) == 2


def test_definitions_and_labs_have_pages(site):
    history = (site / "definitions" / "tensor_backward.html").read_text()
    assert "once Variable.backward" in history
    assert "#step14" in history and "tinytorch/autograd/backward.py" in history
    lab = (site / "labs" / "stage02.html").read_text()
    assert "<math" in lab and "$" not in re.sub(r"<(script|pre).*?</\1>", "", lab, flags=re.S)
    assert "<img" in lab or "<svg" in lab


def test_no_page_asks_for_anything_from_the_net(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link)[^>]*(?:src|href)="(https?:[^"]*)"', page.read_text()
        )
        assert not loaded, page


def test_a_second_build_makes_the_same_pages(site, tmp_path):
    again = build(tmp_path / "again")
    names = {path.relative_to(site) for path in site.rglob("*") if path.is_file()}
    assert names == {path.relative_to(again) for path in again.rglob("*") if path.is_file()}
    differing = [
        name for name in names if (site / name).read_bytes() != (again / name).read_bytes()
    ]
    assert differing == []
    shutil.rmtree(again.parent)
