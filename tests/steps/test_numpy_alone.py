"""Steps that speak of bfloat16 or autocast also run where the package ml_dtypes is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "steps"
DEMOS = {
    path: path.read_text(encoding="utf-8").partition("\nif __name__ ==")[2]
    for path in sorted([*FOLDER.glob("step*.py"), *FOLDER.glob("depth/*.py")])
}
STEPS = [path for path, demo in DEMOS.items() if "bfloat16" in demo or "autocast(" in demo]
# None in sys.modules makes an import of that name fail, as where it is not installed.
PROGRAM = """
import runpy, sys
sys.modules["ml_dtypes"] = sys.modules["cupy"] = None  # cupy imports ml_dtypes if it can
sys.path[0] = {folder!r}
sys.argv = [{path!r}]
runpy.run_path({path!r}, run_name="__main__")
"""


def test_there_are_such_steps():
    assert any("Type promotion" in path.read_text("utf-8")[:200] for path in STEPS)


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.stem)
def test_a_step_runs_without_ml_dtypes(path):
    program = PROGRAM.format(folder=str(path.parent), path=str(path))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-600:]
