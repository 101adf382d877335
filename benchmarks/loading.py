"""How fast a DataLoader makes batches: of MNIST's size in one process, of slow items in four."""

import importlib
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.harness import interleaved, row

IMAGES, BATCH = 6400, 64


class Own:
    """A dataset of one's own: an image and a label."""

    def __init__(self, images: Any, labels: Any):
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.images[index], self.labels[index]


class Sleepy:
    """Items that take a millisecond each, though no computing."""

    def __init__(self, length: int):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        time.sleep(0.001)
        return index


def epoch(loader: Any) -> None:
    for _ in loader:
        pass


def batches(library: ModuleType, kind: str) -> Callable[[], None]:
    """An epoch of shuffled batches of images: of a TensorDataset, or item by item from a dataset of
    one's own that holds arrays, or tensors ("items")."""
    rng = np.random.default_rng(0)
    images = rng.random((IMAGES, 28, 28), dtype=np.float32)
    labels = rng.integers(0, 10, IMAGES)
    if kind != "arrays":
        images, labels = library.from_numpy(images), library.from_numpy(labels)
    make = library.utils.data.TensorDataset if kind == "tensors" else Own
    dataset = make(images, labels)
    loader = library.utils.data.DataLoader(dataset, BATCH, shuffle=True)
    return lambda: epoch(loader)


def speedup(library: ModuleType, length: int, rounds: int) -> tuple[float, float]:
    """One process over four workers, over an epoch of `length` items in batches of 8: with workers
    that are started for it, and with such as stay."""
    ways = ({}, {"num_workers": 4}, {"num_workers": 4, "persistent_workers": True})
    importlib.import_module(f"{library.__name__}.utils.data")
    loaders = [library.utils.data.DataLoader(Sleepy(length), 8, **way) for way in ways]
    seconds: list[list[float]] = [[] for _ in ways]
    for number in range(rounds + 1):
        for loader, times in zip(loaders, seconds, strict=True):
            start = time.perf_counter()
            epoch(loader)
            if number:  # the first round starts those that stay
                times.append(time.perf_counter() - start)
    alone, started, kept = map(statistics.median, seconds)
    return alone / started, alone / kept


def report(libraries: dict[str, ModuleType], rounds: int) -> None:
    for kind in ("tensors", "arrays", "items"):
        programs = {name: batches(library, kind) for name, library in libraries.items()}
        seconds = interleaved(programs, rounds, 1)
        calls = IMAGES // BATCH
        print(row(f"batch of 64 images, {kind}", {name: s / calls for name, s in seconds.items()}))
    # Each library alone in a process: to fork one with all of them loaded costs more.
    for length in (400, 2000):
        for name in libraries:
            command = [sys.executable, "-m", "benchmarks.loading", name, str(length)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"4 workers, {length} items of 1 ms    {name:<10} {done.stdout.strip()}")


def main() -> None:
    """python -m benchmarks.loading LIBRARY LENGTH: how many times as fast four workers are."""
    warnings.simplefilter("ignore")  # PyTorch's, where there are more workers than cores
    library = importlib.import_module(sys.argv[1])
    started, kept = speedup(library, int(sys.argv[2]), 5)
    print(f"{started:5.2f}x one process, {kept:5.2f}x with workers that stay")


if __name__ == "__main__":
    main()
