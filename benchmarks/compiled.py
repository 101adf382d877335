"""`python -m benchmarks.compiled [--rounds N] [--inductor]`: what compile() makes of programs.

Each line: our compiled time, and its ratio to PyTorch eager, to our eager, and with --inductor to
torch.compile; then the seconds of compiling.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import interleaved, one_thread, row

one_thread()

import tinytorch  # noqa: E402
from benchmarks import programs  # noqa: E402

PROGRAMS: dict[str, tuple[Callable, dict, int]] = {
    "chain of 999 ops": (programs.chain, {}, 3),
    "nn + Adam, batch 64": (programs.nn_mlp, {"batch": 64}, 20),
    "nn + Adam, batch 512": (programs.nn_mlp, {"batch": 512}, 5),
    "CNN, batch 64": (programs.cnn, {"batch": 64}, 1),
    "GPT, 12 texts of 64": (programs.gpt, {"block": 64}, 2),
    "GELU of a million": (programs.gelu, {}, 10),
    "Adam, 1 M in 20": (programs.adam, {}, 10),
    "blocks, one .item()": (programs.peeking, {}, 5),
    "the same without": (programs.peeking, {"peek": False}, 5),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds, of which the median counts")
    parser.add_argument("--inductor", action="store_true", help="measure torch.compile as well")
    parser.add_argument("--only", default="", help="part of a line's title")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        torch = None
        print("PyTorch is not installed: pip install torch==2.13.0")
    else:
        torch.set_num_threads(1)
    for title, (program, arguments, calls) in PROGRAMS.items():
        if options.only not in title:
            continue
        steps: dict[str, Any] = {}
        seconds: dict[str, float] = {}
        compilers = {"compiled": (tinytorch, tinytorch.compile)}
        if options.inductor and torch is not None:
            compilers["inductor"] = (torch, torch.compile)
        for name, (library, compile) in compilers.items():
            steps[name] = program(library, compiled=compile, **arguments)
            start = time.perf_counter()
            steps[name]()
            seconds[name] = time.perf_counter() - start
        steps["eager"] = program(tinytorch, **arguments)
        if torch is not None:
            steps["torch"] = program(torch, **arguments)
        spent = "  ".join(f"{name} in {value:.2f} s" for name, value in seconds.items())
        print(row(title, interleaved(steps, options.rounds, calls), "compiled"), " ", spent)


if __name__ == "__main__":
    main()
