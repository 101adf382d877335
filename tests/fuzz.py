"""`python -m tests.fuzz`: damaged files, killed saves, stuck workers, wrong arguments.

Everything is drawn from one seed. A file must load or raise the documented error. A save that is
killed must leave the old file or the new one, and nothing beside it. A worker that stands still
must not hold up its loader. A call with a wrong argument must not end in a wrong number: where
PyTorch is installed, both are called, and what only tinytorch accepts is listed.
"""

import argparse
import gzip
import io
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import tinytorch
from tinytorch.datasets.mnist import read_idx
from tinytorch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).resolve().parents[1]


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with one to four changes: bytes replaced, put in, taken out, or cut off."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        near = rng.random() < 0.5  # the headers of a zip are at its ends
        place = rng.choice([rng.randrange(100), -1 - rng.randrange(100)]) if near else None
        place = rng.randrange(len(data)) if place is None else place % len(data)
        data[place : place + rng.choice([0, 1, 1, 4, 64])] = rng.randbytes(rng.choice([0, 1, 1, 4]))
        if rng.random() < 0.05 or not data:
            return bytes(data[:place])
    return bytes(data)


def files(rng: random.Random, count: int) -> Counter:
    """Mutated files: a state_dict of tinytorch's, and an IDX file, compressed and not."""
    net = tinytorch.nn.Linear(3, 2)
    saved, results = io.BytesIO(), Counter()
    tinytorch.save({"net": net.state_dict(), "other": [1, 2.5, "text", {3}, (None, b"x")]}, saved)
    idx = b"\0\0\x08\x03\0\0\0\x05\0\0\0\x02\0\0\0\x03" + bytes(range(30))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            kind = ("pt", "idx", "gz")[number % 3]
            content = {"pt": saved.getvalue(), "idx": idx, "gz": gzip.compress(idx, mtime=0)}[kind]
            path = Path(folder, f"file.{kind}")
            path.write_bytes(mutated(content, rng))
            try:
                tinytorch.load(path) if kind == "pt" else read_idx(path)
                results[f"{kind} read"] += 1
            except (pickle.UnpicklingError, ValueError) as error:
                documented = pickle.UnpicklingError if kind == "pt" else ValueError
                assert type(error) is documented and str(path) in str(error), repr(error)
                results[f"{kind} refused"] += 1
            except RuntimeError as error:  # "cpu" has become the name of another device
                assert kind == "pt" and "map_location" in str(error), repr(error)
                results["pt refused"] += 1
    return results


SAVES = """
import sys, tinytorch
value, number = tinytorch.ones(1 << 18), 0
while True:
    tinytorch.save({"number": number, "value": value.fill_(number)}, sys.argv[1])
    print(number, flush=True)
    number += 1
"""


def saves(rng: random.Random, count: int) -> Counter:
    """Processes that save again and again, and are killed."""
    results = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        for _ in range(count):
            command = [sys.executable, "-c", SAVES, str(path)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
                process.stdout.readline()
                time.sleep(rng.uniform(0, 0.02))
                process.kill()
            loaded = tinytorch.load(path)
            assert (loaded["value"] == loaded["number"]).all().item()
            results["whole files"] += 1
        results["files left beside"] = len(os.listdir(folder)) - 1
    return results


class Numbers(Dataset):
    """Item i is an array of i; item `at` stops its process, kills it, or ignores all and sleeps."""

    def __init__(self, at: int = -1, how: str = ""):
        self.at, self.how = at, how

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> np.ndarray:
        if index == self.at:
            import signal

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if self.how != "asleep":
                os.kill(
                    os.getpid(), {"stopped": signal.SIGSTOP, "killed": signal.SIGKILL}[self.how]
                )
            time.sleep(1000)
        return np.full(500, index)


def workers(rng: random.Random, count: int) -> Counter:
    """Loaders whose workers are stopped, killed or asleep; and the next epoch after that."""
    results = Counter()
    for number in range(count):
        how = ("stopped", "killed", "asleep")[number % 3]
        loader = DataLoader(
            Numbers(rng.randrange(40), how),
            4,
            num_workers=2,
            timeout=0.5,
            persistent_workers=rng.random() < 0.5,
        )
        start = time.monotonic()
        try:
            list(loader)
            raise AssertionError("it was not noticed")
        except RuntimeError as error:
            assert "timed out" in str(error) or "exited unexpectedly" in str(error), error
        assert time.monotonic() - start < 60  # far from the 1000 that it sleeps
        loader.dataset.at, loader.timeout = -1, 60
        assert [int(x) for batch in loader for x in batch[:, 0].tolist()] == [*range(40)]
        results[how] += 1
    return results


def wrong_values(library: object) -> dict[str, object]:
    values = {"None": None, "str": "2", "list": [1.0], "tuple": (1, 2), "dict": {}, "float": 1.5}
    values |= {"bool": True, "int": 2, "nan": float("nan"), "huge": 10**30, "negative": -7}
    values |= {"array": np.ones(2), "0-d": np.array(1), "numpy": np.int64(1), "object": object()}
    values |= {"vector": library.ones(3), "empty": library.ones(0, 2)}
    return values | {"integers": library.tensor([2, 1])}


# Functions with right arguments, of which each in turn is replaced by a wrong one.
CALLS = {
    name: args
    for names, args in {
        "exp log sqrt tanh sigmoid relu abs neg sum mean prod max min argmax all any": ("X",),
        "sort argsort flatten squeeze t trace tril triu diag isnan clone numel unique": ("X",),
        "sum mean softmax log_softmax cumsum argmax amax logsumexp squeeze unsqueeze": ("X", 1),
        "sort unbind flip roll chunk topk repeat_interleave tile": ("X", 1),
        "add sub mul div maximum matmul mm eq lt pow fmod outer": ("X", "X"),
        "transpose narrow select": ("X", 0, 1),
        "gather index_select": ("X", 0, "I"),
        "where masked_fill": ("M", "X", "X"),
        "zeros ones rand randn eye randperm arange": (3,),
        "full linspace randint": (0, 3, 4),
        "reshape": ("X", (4,)),
        "cat stack": (["X", "X"], 0),
    }.items()
    for name in [(name, len(args)) for name in names.split()]
}


def arguments(rng: random.Random, count: int) -> tuple[Counter, list[str]]:
    """Calls with one wrong argument. Returns how they end, and what PyTorch alone refuses."""
    try:
        import torch
    except ImportError:
        torch = None
    libraries = [tinytorch] + [torch] * (torch is not None)
    results, accepted = Counter(), []
    calls = [
        (name, args, place, wrong)
        for (name, _), args in CALLS.items()
        for place in range(len(args))
        for wrong in wrong_values(tinytorch)
    ]
    for name, args, place, wrong in rng.sample(calls, min(count, len(calls))):
        ends = []
        for library in libraries:
            known = {"X": library.ones(2, 2), "I": library.tensor([[0, 1]])}
            known["M"] = known["X"] > 0
            given = [known.get(arg, arg) if isinstance(arg, str) else arg for arg in args]
            given = [[known[x] for x in a] if isinstance(a, list) else a for a in given]
            given[place] = wrong_values(library)[wrong]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    getattr(library, name)(*given)
                    ends.append("a result")
                except Exception as error:
                    ends.append(type(error).__name__)
        results[ends[0]] += 1
        if ends[0] == "a result" and ends[-1] != "a result":
            accepted.append(f"{name}, argument {place + 1}: {wrong} ({ends[-1]} in PyTorch)")
    return results, accepted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="2 does twice as much")
    options = parser.parse_args()
    for function, count in ((files, 6000), (saves, 20), (workers, 9), (arguments, 2000)):
        rng, start = random.Random(options.seed), time.perf_counter()
        result = function(rng, int(count * options.scale))
        counts, accepted = result if isinstance(result, tuple) else (result, [])
        facts = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
        print(f"{function.__name__:10} {facts} ({time.perf_counter() - start:.0f} s)", flush=True)
        if accepted:
            print(f"           accepted, though PyTorch refuses it: {len(accepted)}")
            print(*(f"             {line}" for line in sorted(accepted)), sep="\n")


if __name__ == "__main__":
    main()
