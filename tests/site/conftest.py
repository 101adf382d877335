"""A part of the web edition, built once for all tests: a stage, and a run in depth."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PART = "11-18,layers"


def build(folder):
    """Build the part into a folder, in a process of its own, with no cache to begin with."""
    missing = [
        name for name in ("sphinx", "furo", "myst_nb", "latex2mathml") if not find_spec(name)
    ]
    if missing:
        pytest.skip(f"{missing[0]} is not installed: pip install '.[site]'")
    (folder / "html" / "steps").mkdir(parents=True)
    (folder / "html" / "steps" / "old.html").write_text("a page that an earlier build has left")
    done = subprocess.run(
        [sys.executable, "-m", "steps.web", "--only", PART, "--to", str(folder)],
        cwd=ROOT,
        env=os.environ | {"STEP_SECONDS": "60"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (folder / "html" / "steps" / "old.html").exists()
    return folder / "html"


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    return build(tmp_path_factory.mktemp("site"))
