"""The examples run: on a small MNIST that is made here."""

import re
import signal
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


def test_train_digits_reads_them():
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples/train_digits.py"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"([\d.]+)% of the 360 test digits", done.stdout)[1]) > 85


def test_train_mnist_says_at_its_start_what_is_missing(tmp_path):
    text = run(tmp_path / "none", fails=True)
    assert f"there is no folder {tmp_path / 'none'}: --download makes it" in text
    text = run(tmp_path, fails=True)
    assert text == f"train-images-idx3-ubyte is not in {tmp_path}: --download fetches it\n"
    for flag in ("--plot", "--checkpoint"):
        text = run(tmp_path, flag, tmp_path / "sub" / "file", fails=True)
        assert f"there is no folder {tmp_path / 'sub'} for file" in text
    without = "import sys; sys.modules['matplotlib'] = None; sys.argv[0] = 'train_mnist.py'; "
    without += f"import runpy; runpy.run_path({str(ROOT / 'examples/train_mnist.py')!r}, "
    without += "run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", without, "--data", tmp_path, "--plot", tmp_path / "losses.png"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert "--plot needs matplotlib" in done.stderr and "Traceback" not in done.stderr
    for name in NAMES:
        (tmp_path / name).write_bytes(b"not an IDX file")
    assert "Traceback" not in run(tmp_path, fails=True)


def test_train_mnist_says_how_to_go_on_after_ctrl_c(tmp_path):
    small_mnist(tmp_path)
    script = ROOT / "examples/train_mnist.py"
    command = [sys.executable, "-u", script, "--data", tmp_path, "--epochs", "100000"]
    for flags, text in (
        (["--checkpoint", tmp_path / "run"], "the same command with --resume goes on after epoch"),
        ([], "nothing is saved: --checkpoint FILE"),
    ):
        process = subprocess.Popen(
            [*command, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
            # A job in the background ignores Ctrl-C, and would hand that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        for _ in range(3):
            assert process.stdout.readline().startswith("epoch")
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
        assert text in complaint and "Traceback" not in complaint and process.returncode == 1


def example(name, *flags, fails=False):
    """What an example prints; what it complains of, where it should."""
    command = [sys.executable, "-W", "error", ROOT / "examples" / name, *flags]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def test_train_cnn_reads_digits_that_it_has_not_seen(tmp_path):
    text = example("train_cnn.py", "--epochs", "5")
    right = float(re.findall(r"test ([\d.]+)%", text)[-1])
    assert right > 90 and text.count("epoch") == 5
    wrong = int(re.search(r"(\d+) of 360 images are read wrong", text)[1])
    assert wrong == round(360 * (1 - right / 100))
    assert len(re.findall(r"\d for \d", text)) == min(wrong, 5)
    missing = example("train_cnn.py", "--mnist", tmp_path, fails=True)
    assert "is not in" in missing and f"MNIST('{tmp_path}', download=True)" in missing


def test_train_cnn_stops_at_ctrl_c():
    process = subprocess.Popen(
        [sys.executable, "-u", ROOT / "examples/train_cnn.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        # A job in the background ignores Ctrl-C, and would hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert any("parameters" in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert complaint.strip() == "stopped; nothing is saved" and process.returncode == 1


def test_train_cnn_takes_mnist_and_cifar(tmp_path):
    small_mnist(tmp_path)
    text = example("train_cnn.py", "--mnist", tmp_path, "--epochs", "3")
    # The images are moved at random, as far as the bright rows are apart: 100 % is impossible.
    assert float(re.findall(r"test ([\d.]+)%", text)[-1]) > 50

    # Images of one colour; which one it is tells the class.
    for i in range(1, 7):
        records = np.zeros((20, 3073), np.uint8)
        records[:, 0] = np.arange(20) % 3
        for record in records:
            start = 1 + 1024 * int(record[0])
            record[start : start + 1024] = 200
        records.tofile(tmp_path / ("test_batch.bin" if i == 6 else f"data_batch_{i}.bin"))
    text = example("train_cnn.py", "--cifar", tmp_path, "--epochs", "4", "--batch-size", "20")
    assert float(re.findall(r"test ([\d.]+)%", text)[-1]) > 90


def test_vae_draws_digits():
    text = example("vae.py", "--epochs", "20")
    assert float(re.search(r"-log p < ([\d.]+)", text)[1]) < 26
    assert text.count("\n") == 1 + 8 * 8 and "@@" in text


SMALL_GPT = (
    "--layers 1 --width 32 --block-size 24 --batch-size 4 --pieces 100 --steps 30 --warmup 5 "
    "--every 10"
).split()


def test_gpt_goes_on_where_it_was_and_pytorch_reads_its_file(tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat. " * 400, encoding="utf-8")
    whole, middle = tmp_path / "whole.pt", tmp_path / "middle.pt"
    small = [*SMALL_GPT, "--data", book]
    text = example("gpt.py", *small, "--checkpoint", whole)
    losses = [float(each) for each in re.findall(r"loss ([\d.]+) ", text)]
    assert losses[-1] < 0.8 * losses[0]

    example("gpt.py", *small, "--checkpoint", middle, "--stop-after", "20")
    other = example("gpt.py", *small, "--lr", "1", "--checkpoint", middle, "--resume", fails=True)
    assert other == "the run began with --lr 0.003, not 1.0\n"
    example("gpt.py", *small, "--checkpoint", middle, "--resume")
    ends = [tinytorch.load(path) for path in (whole, middle)]
    assert ends[0]["step"] == ends[1]["step"] == 30
    for name, value in ends[0]["model"].items():
        assert tinytorch.equal(value, ends[1]["model"][name]), name

    written = example("gpt.py", "--checkpoint", whole, "--write", "20", "--start", "the ")
    assert written.startswith("the ") and len(written) > 20


def test_gpt_shows_what_it_learns_and_says_what_it_cannot_do(tmp_path):
    small = [*SMALL_GPT, "--checkpoint", tmp_path / "gpt.pt"]
    text = example("gpt.py", *small, "--sample", "1")
    assert text.count("\nStep 99: ") == 3 and " s left\n" in text  # two samples, and the last
    compiled = example("gpt.py", *small, "--compile", "--sample", "0")
    losses = [re.findall(r"loss ([\d.]+)", each) for each in (text, compiled)]
    assert np.allclose(*np.float64(losses), atol=0.01)
    example("gpt.py", *small, "--amp", "--steps", "6")
    refused = example("gpt.py", "--heads", "5", fails=True).splitlines()[-1]
    assert refused.endswith("--width 96 cannot be divided among --heads 5; try --width 95")
    assert "--steps has to be positive" in example("gpt.py", "--steps", "0", fails=True)
    assert "there is no file" in example("gpt.py", "--data", tmp_path / "no", fails=True)


def test_gpt_keeps_its_run_at_ctrl_c(tmp_path):
    checkpoint = tmp_path / "gpt.pt"
    flags = [*SMALL_GPT, "--steps", "100000", "--checkpoint", checkpoint]
    process = subprocess.Popen(
        [sys.executable, "-u", ROOT / "examples/gpt.py", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        # A job in the background ignores Ctrl-C, and would hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert any("step    10 " in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    step = int(re.search(r"with --resume goes on after step (\d+)", complaint)[1])
    assert "Traceback" not in complaint and process.returncode == 1 and step >= 10
    assert tinytorch.load(checkpoint)["step"] == step
    text = example("gpt.py", *flags, "--resume", "--stop-after", str(step + 1))
    assert f"goes on after step {step} of" in text
