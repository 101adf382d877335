"""The number of threads that products take: tinytorch.set_num_threads, and DataLoader's workers."""

import subprocess
import sys
from pathlib import Path

import pytest

import tinytorch
from tinytorch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).resolve().parent.parent


class Threads(Dataset):
    """Each item is the number of threads of the process that makes it."""

    def __getitem__(self, index):
        return tinytorch.get_num_threads()

    def __len__(self):
        return 4


@pytest.fixture
def restored():
    pytest.importorskip("threadpoolctl")
    before = tinytorch.get_num_threads()
    yield
    tinytorch.set_num_threads(before)


def test_the_number_is_set(restored):
    for number in (2, 1):
        tinytorch.set_num_threads(number)
        assert tinytorch.get_num_threads() == number


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", None])
def test_only_positive_integers(restored, wrong):
    before = tinytorch.get_num_threads()
    with pytest.raises(RuntimeError, match="set_num_threads expects a"):
        tinytorch.set_num_threads(wrong)
    assert tinytorch.get_num_threads() == before


def test_workers_take_one_thread(restored):
    tinytorch.set_num_threads(2)
    seen = [number for batch in DataLoader(Threads(), num_workers=2) for number in batch.tolist()]
    assert seen == [1, 1, 1, 1] and tinytorch.get_num_threads() == 2


def test_without_threadpoolctl():
    program = """
import sys
sys.modules["threadpoolctl"] = None
import tinytorch
from tinytorch.utils.data import DataLoader
print([batch.tolist() for batch in DataLoader(range(2), num_workers=1)])
for call in (tinytorch.get_num_threads, lambda: tinytorch.set_num_threads(1)):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "[[0], [1]]", done.stderr
    assert len(lines) == 3 and all("pip install threadpoolctl" in line for line in lines[1:])
