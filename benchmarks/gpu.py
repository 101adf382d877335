"""`python -m benchmarks --device cuda`: tinytorch against PyTorch eager and the GPU's limits."""

import gc
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import tinytorch

# Float units of one multiprocessor, by the GPU's generation; each does 2 operations a clock.
UNITS = {(7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 9): 128, (9, 0): 128}
MIB = 2**20


def measure(
    programs: dict[str, Callable[[], Any]], waits: dict[str, Callable], rounds: int
) -> dict:
    """Seconds per call, median over rounds in which all programs take their turn.

    A call returns before the GPU has done it. So we order calls for a tenth of a second, wait for
    the last, and divide.
    """
    calls = {}
    for name, program in programs.items():
        program()  # compiles kernels and fills the pool
        waits[name]()
        start = time.perf_counter()
        program()
        waits[name]()
        calls[name] = max(3, min(1000, int(0.1 / (time.perf_counter() - start))))
    gc.collect()
    gc.freeze()
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                program()
            waits[name]()
            seconds[name].append((time.perf_counter() - start) / calls[name])
    gc.unfreeze()
    return {name: statistics.median(times) for name, times in seconds.items()}


def copy_bandwidth(rounds: int) -> float:
    """Bytes in a second that the GPU reads and writes when it copies 256 MiB within its memory."""
    x = tinytorch.zeros(64 * MIB, device="cuda")
    found = measure({"copy": x.clone}, {"copy": tinytorch.cuda.synchronize}, rounds)
    return 2 * x.nbytes / found["copy"]


def peak_flops() -> float | None:
    """float32 operations in a second, from what the GPU says of itself; None where we know too
    little of its generation."""
    units = UNITS.get(tinytorch.cuda.get_device_capability())
    properties = tinytorch.cuda.backend.cupy.cuda.runtime.getDeviceProperties(0)
    clock = properties.get("clockRate")  # in kHz; CUDA 13 does not say it any more
    if units is None or clock is None:
        return None
    return 2.0 * units * properties["multiProcessorCount"] * clock * 1000


def random(library: ModuleType, *shape: int, **options: Any) -> Any:
    """The same numbers for each library, on the GPU."""
    numbers = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return library.tensor(numbers, device="cuda", **options)


def mlp(library: ModuleType, batch: int, sizes: tuple[int, ...] = (784, 256, 128, 10)) -> Callable:
    """One training step of an MLP on the GPU: forward, backward, SGD. No transfer in it."""
    weights = [
        random(library, n, m, requires_grad=True) for n, m in zip(sizes, sizes[1:], strict=False)
    ]
    biases = [library.zeros(m, device="cuda", requires_grad=True) for m in sizes[1:]]
    x, rows = random(library, batch, sizes[0]), library.arange(batch, device="cuda")
    target = library.tensor(np.random.default_rng(0).integers(0, 10, batch), device="cuda")

    def step() -> None:
        h = x
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            h = (h @ weight + bias).relu()
        logits = h @ weights[-1] + biases[-1]
        loss = -logits.log_softmax(1)[rows, target].mean()
        loss.backward()
        with library.no_grad():
            for p in [*weights, *biases]:
                p.sub_(p.grad, alpha=1e-6)
                p.grad = None

    return step


def rows_of_the_table() -> dict[str, tuple[Callable, float, str]]:
    """Title -> (library -> program, work of one call, its unit: bytes moved or operations)."""

    def unary(call: Callable, *shape: int) -> Callable:
        def make(library: ModuleType) -> Callable:
            x = random(library, *shape)
            return lambda: call(x)

        return make

    def binary(call: Callable, *shape: int) -> Callable:
        def make(library: ModuleType) -> Callable:
            x, y = random(library, *shape), random(library, *shape)
            return lambda: call(x, y)

        return make

    table: dict[str, tuple[Callable, float, str]] = {}
    for size in (64, 256):
        rows = size * MIB // 4 // 1024
        table[f"a + b, {size} MiB each"] = (
            binary(lambda x, y: x + y, rows, 1024),
            3.0 * size * MIB,
            "bytes",
        )
        table[f"exp, {size} MiB"] = unary(lambda x: x.exp(), rows, 1024), 2.0 * size * MIB, "bytes"
        table[f"sum, {size} MiB"] = unary(lambda x: x.sum(), rows, 1024), 1.0 * size * MIB, "bytes"
        table[f"softmax of rows, {size} MiB"] = (
            unary(lambda x: x.softmax(1), rows, 1024),
            2.0 * size * MIB,
            "bytes",
        )
    table["matmul 4096, float32"] = (
        binary(lambda x, y: x @ y, 4096, 4096),
        2.0 * 4096**3,
        "operations",
    )
    for batch in (64, 512):
        table[f"MLP training step, batch {batch}"] = (
            lambda library, batch=batch: mlp(library, batch),
            0.0,
            "",
        )
    return table


def report(rounds: int) -> int:
    """Prints the table; returns the exit status."""
    if not tinytorch.cuda.is_available():
        print("There is no GPU here that tinytorch can use: see tinytorch.cuda.is_available().")
        return 1
    libraries: dict[str, ModuleType] = {"tinytorch": tinytorch}
    waits = {"tinytorch": tinytorch.cuda.synchronize}
    try:
        import torch

        if torch.cuda.is_available():
            torch.backends.cuda.matmul.allow_tf32 = False  # the same arithmetic for both
            libraries["torch"], waits["torch"] = torch, torch.cuda.synchronize
        else:
            print("This PyTorch has no CUDA: its column is left out.")
    except ImportError:
        print("PyTorch is not installed: pip install torch==2.13.0")
    bandwidth, flops = copy_bandwidth(rounds), peak_flops()
    print(f"{tinytorch.cuda.get_device_name()}: copies {bandwidth / 1e9:.0f} GB/s", end="")
    print(f", at most {flops / 1e12:.1f} float32 TFLOP/s" if flops else "")
    print(f"{'':<32}{'tinytorch':>12}{'/ PyTorch':>12}{'of the limit':>14}")
    for title, (make, work, unit) in rows_of_the_table().items():
        programs = {name: make(library) for name, library in libraries.items()}
        seconds = measure(programs, waits, rounds)
        ours = seconds["tinytorch"]
        ratio = f"{ours / seconds['torch']:.2f}x" if "torch" in seconds else "-"
        limit = {"bytes": bandwidth, "operations": flops}.get(unit)
        share = f"{work / ours / limit:.0%}" if limit else "-"
        print(f"{title:<32}{ours * 1e6:>9.1f} us{ratio:>12}{share:>14}")
        del programs
        tinytorch.cuda.empty_cache()
    return 0
