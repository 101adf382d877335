"""How the benchmarks measure: interleaved, one thread, the median of several rounds, as ratios."""

import gc
import os
import statistics
import time
from collections.abc import Callable

THREADS = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


def one_thread() -> None:
    """Keeps the libraries to one thread. Must run before NumPy or PyTorch is imported."""
    os.environ.update(THREADS)


def interleaved(programs: dict[str, Callable[[], object]], rounds: int, calls: int) -> dict:
    """Seconds per call of each program: the median over rounds in which all take their turn.

    What disturbs the machine for a while disturbs all of them alike. gc.freeze() takes the
    libraries' own objects out of the collector's sight, so that it does not walk them each time.
    """
    for program in programs.values():
        program()
    gc.collect()
    gc.freeze()
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            start = time.perf_counter()
            for _ in range(calls):
                program()
            seconds[name].append((time.perf_counter() - start) / calls)
    gc.unfreeze()
    return {name: statistics.median(times) for name, times in seconds.items()}


def row(title: str, seconds: dict[str, float], base: str = "tinytorch") -> str:
    """One line of the table: our time, and our time divided by each peer's."""
    ours = seconds[base]
    ratios = "  ".join(
        f"{ours / value:5.2f}x {name}" for name, value in seconds.items() if name != base
    )
    return f"{title:<28} {ours * 1e6:10.1f} us   {ratios}"
