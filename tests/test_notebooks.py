"""The notebooks run from the first cell to the last, and are committed with their outputs."""

import re
import tomllib
from pathlib import Path

import matplotlib.font_manager  # noqa: F401  makes its cache here, not with a message in a notebook
import nbformat
import pytest
from nbclient import NotebookClient

from steps.companion.notebook import OPEN, show

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb")) + sorted(FOLDER.glob("depth/*.ipynb"))
STEPS = (ROOT / "steps").glob("step*.py")
STAGES = tomllib.loads((ROOT / "steps" / "curriculum.toml").read_text())["stage"]

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    """The cells with code, in order. Empty ones, which a reader may leave, do not count."""
    notebook = nbformat.read(path, as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def solved(notebook):
    """New cells: the solution of each exercise, and the exercise's own check."""
    checks = {}
    for cell in notebook.cells:
        if found := re.search(r"^check\((\d+), test\)", cell.source, re.M):
            checks[found[1]] = cell.source
    answers = re.split(r"^\*\*(\d+)\.\*\*", notebook.cells[-1].source, flags=re.M)[1:]
    for number, text in zip(answers[::2], answers[1::2], strict=True):
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
        yield nbformat.v4.new_code_cell(f"{code}\n\n{checks.pop(number)}")
    assert not checks, "exercises without a solution"


def test_each_stage_that_has_steps_has_a_notebook():
    topics = {int(path.stem[4:].rstrip("abcdefghijklmnopqrstuvwxyz")) for path in STEPS}
    begun = [s for s in STAGES if topics & set(range(s["first"], s["last"] + 1))]
    assert {f"stage{s['number']:02d}" for s in begun} <= {path.stem for path in NOTEBOOKS}


@each_notebook
def test_notebook_is_committed_as_it_ran(path):
    cells = code_cells(path)
    assert cells
    ran = [cell.execution_count for cell in cells]
    assert ran == list(range(1, len(cells) + 1)), "run it from the first cell to the last, and save"
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds and "error" not in kinds
    # A path of the machine where it ran helps nobody.
    assert not re.search(r"/(home|root|Users|work|tmp)/\w", path.read_text())


def opened(page):
    """What a reader sees of a page before unfolding anything."""
    return re.sub(r"<details>.*?</details>", "", page, flags=re.S)


@each_notebook
def test_differences_are_those_of_today_and_long_ones_are_folded(path):
    """A difference that stands alone in its cell is made again, without running the notebook."""
    for cell in code_cells(path):
        if not re.fullmatch(r"show\(.*\)", cell.source):
            continue
        today = eval(cell.source, {"show": show})._repr_html_()
        (output,) = cell.outputs
        assert opened("".join(output.data["text/html"])) == opened(today), "make notebooks-refresh"
        assert opened(today).count("\n") + opened(today).count("<div") <= 2 * OPEN, cell.source


@each_notebook
def test_an_untrusted_notebook_shows_its_drawings(path):
    """Jupyter leaves SVG and scripts of a notebook out until the reader trusts it; images stay."""
    for cell in code_cells(path):
        for output in cell.outputs:
            data = output.get("data", {})
            assert "image/svg+xml" not in data and "application/javascript" not in data
            page = "".join(data.get("text/html", ""))
            assert "<svg" not in page and "<script" not in page
            for image in re.findall(r"<img[^>]*>", page):
                assert 'src="data:image/' in image and "max-width:100%" in image


@pytest.mark.slow
@each_notebook
# Jupyter's own code warns now and then; the warnings of ours would appear in the notebook's output.
@pytest.mark.filterwarnings("default")
def test_notebook_runs_from_the_first_cell_to_the_last(path):
    notebook = nbformat.read(path, as_version=4)
    before = [len(cell.get("outputs", ())) for cell in notebook.cells]
    notebook.cells += solved(notebook)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    streams = [o for cell in notebook.cells for o in cell.get("outputs", ()) if o.get("name")]
    assert not [o.text for o in streams if o.name == "stderr"], "a cell wrote to stderr"
    for cell in notebook.cells[len(before) :]:
        assert "".join(output.text for output in cell.outputs).endswith(": right\n"), cell.source
    after = [len(cell.get("outputs", ())) for cell in notebook.cells[: len(before)]]
    assert [n > 0 for n in after] == [n > 0 for n in before], "outputs are not those of today"
