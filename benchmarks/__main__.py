"""`python -m benchmarks [--rounds N] [--device cuda]`: a table of ratios, ours over the peers'."""

import argparse
import importlib
import sys
import types

from benchmarks.harness import interleaved, one_thread, row

one_thread()

import numpy as np  # noqa: E402

import tinytorch  # noqa: E402
from benchmarks import gpu, loading, memory, programs  # noqa: E402


def peer(module: str, title: str, package: str) -> types.ModuleType | None:
    """A peer, or None and a line that says what is missing: it, or something that it needs."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            print(f"{title} is not installed: pip install {package}")
        else:
            print(f"{title} is left out: it needs {error.name} (pip install {error.name})")
    except ImportError as error:
        print(f"{title} is left out: {error}")
    return None


def peers() -> dict[str, types.ModuleType]:
    """The peers that can be imported here; the others are named and left out."""
    np.int = int  # noqa: NPY001  (DeZero 0.0.13 was written for an older NumPy)
    found = {
        "torch": peer("torch", "PyTorch", "torch==2.13.0"),
        "dezero": peer("dezero", "DeZero", "dezero==0.0.13"),
        "hips": peer("autograd", "HIPS autograd", "autograd"),
    }
    if found["torch"] is not None:
        found["torch"].set_num_threads(1)
    return {name: module for name, module in found.items() if module is not None}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds, of which the median counts")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to measure")
    options = parser.parse_args()
    if options.device == "cuda":
        return gpu.report(options.rounds)
    found = peers()
    libraries = {"tinytorch": tinytorch}
    if "torch" in found:
        libraries["torch"] = found["torch"]

    chains = {name: programs.chain(library) for name, library in libraries.items()}
    if "dezero" in found:
        chains["dezero"] = programs.dezero_chain()
    if "hips" in found:
        chains["hips"] = programs.hips_chain()
    print(row("chain of 999 ops, 10 elements", interleaved(chains, options.rounds, 3)))

    for batch in (64, 512):
        steps = {name: programs.mlp(library, batch) for name, library in libraries.items()}
        if "dezero" in found:
            steps["dezero"] = programs.dezero_mlp(batch)
        if "hips" in found:
            steps["hips"] = programs.hips_mlp(batch)
        calls = 20 if batch == 64 else 5
        print(row(f"MLP training step, batch {batch}", interleaved(steps, options.rounds, calls)))
    for batch in (64, 512):
        steps = {name: programs.nn_mlp(library, batch) for name, library in libraries.items()}
        if "dezero" in found:
            steps["dezero"] = programs.dezero_mlp(batch, optimizer="Adam")
        calls = 20 if batch == 64 else 5
        print(row(f"nn + Adam, MLP, batch {batch}", interleaved(steps, options.rounds, calls)))
    steps = {name: programs.lstm(library) for name, library in libraries.items()}
    print(row("LSTM step, batch 32, 64 steps", interleaved(steps, options.rounds, 3)))
    for title, program in (
        ("CNN training step", programs.cnn),
        ("DCGAN generator", programs.transposed),
    ):
        steps = {name: program(library, 64) for name, library in libraries.items()}
        print(row(f"{title}, batch 64", interleaved(steps, options.rounds, 1)))
    for block in (64, 128):
        steps = {name: programs.gpt(library, block) for name, library in libraries.items()}
        print(row(f"GPT, 12 texts of {block}", interleaved(steps, options.rounds, 2)))
    steps = {name: programs.adam(library) for name, library in libraries.items()}
    print(row("Adam, 1 M parameters in 20", interleaved(steps, options.rounds, 10)))
    tables = {name: programs.operations(library) for name, library in libraries.items()}
    for title in tables["tinytorch"]:
        calls = {name: table[title] for name, table in tables.items()}
        print(row(title, interleaved(calls, options.rounds, 50)))
    tables = {name: programs.normalisations(library) for name, library in libraries.items()}
    for title in tables["tinytorch"]:
        calls = {name: table[title] for name, table in tables.items()}
        print(row(title, interleaved(calls, options.rounds, 5)))
    loading.report(libraries, options.rounds)
    memory.report(with_torch="torch" in found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
