"""The examples run: on a small MNIST that is made here."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import tinytorch
from tinytorch.datasets.mnist import NAMES

ROOT = Path(__file__).resolve().parent.parent


def small_mnist(folder):
    """Images with one bright row; which one it is tells the class."""
    for start, count in ((0, 256), (2, 64)):
        labels = np.arange(count) % 10
        images = np.zeros((count, 28, 28), np.uint8)
        images[np.arange(count), 2 * labels] = 255
        for name, array in zip(NAMES[start:], (images, labels.astype(np.uint8)), strict=False):
            lengths = b"".join(n.to_bytes(4, "big") for n in array.shape)
            (folder / name).write_bytes(bytes([0, 0, 8, array.ndim]) + lengths + array.tobytes())


def run(folder, *flags, fails=False):
    """What the script prints; what it complains of, where it should."""
    command = [sys.executable, "-W", "error", ROOT / "examples/train_mnist.py", "--data", folder]
    done = subprocess.run(
        [*command, *flags], capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def test_train_mnist_learns_and_goes_on_where_it_was(tmp_path):
    small_mnist(tmp_path)
    checkpoint, middle = tmp_path / "end", tmp_path / "middle"
    text = run(tmp_path, "--epochs", "4", "--checkpoint", checkpoint)
    assert float(re.findall(r"test ([\d.]+)%", text)[-1]) == 100.0
    whole = tinytorch.load(checkpoint)
    assert len(whole["losses"]) == 4 * 4

    # Set back to the middle, as after a power cut: the run goes on, and ends where it ended.
    half = run(tmp_path, "--epochs", "4", "--checkpoint", middle, "--stop-after", "2")
    assert "epoch  3" not in half
    other = run(tmp_path, "--epochs", "5", "--checkpoint", middle, "--resume", fails=True)
    assert other == "the run began with --epochs 4, not 5\n"
    missing = run(tmp_path, "--checkpoint", tmp_path / "none", "--resume", fails=True)
    assert "--resume needs --checkpoint FILE" in missing
    text = run(tmp_path, "--epochs", "4", "--checkpoint", middle, "--resume")
    assert "goes on after epoch 2" in text and "epoch  2 " not in text
    again = tinytorch.load(middle)
    assert again["losses"] == whole["losses"]
    for name, value in whole["model"].items():
        assert tinytorch.equal(value, again["model"][name])
