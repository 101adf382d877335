"""`python -m tests.fuzz`: damaged files, killed saves, stuck workers, wrong arguments.

Everything is drawn from one seed. A file must load or raise the documented error. A save that is
killed must leave the old file or the new one, and nothing beside it. A worker that stands still
must not hold up its loader. A call with a wrong argument must not end in a wrong number: where
PyTorch is installed, both are called, and what only tinytorch accepts is listed.
"""

import argparse
import functools
import gzip
import inspect
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


# Right values of parameters, by their names. A letter stands for one of `known_values`. A parameter
# without a default that is not here gets the matrix X.
RIGHT = {
    "dim dim0 axis source start low diagonal offset": 0,
    "dim1 destination step shifts length num_samples split_size_or_sections num_groups": 1,
    "q": 0.5,
    "t": "float32",
    "k n m repeats chunks exponent": 2,
    "steps end high minlength row col": 3,
    "dims": (0,),
    "size sizes": (2, 2),
    "normalized_shape": (2,),
    "index": "J",
    "mask condition": "M",
    "tensors": ["X", "X"],
    "value fill_value min max p": 0.5,
}
# Right arguments of the functions for which those are not right.
ARGUMENTS = {
    "arange": (0, 3, 1),
    "as_strided": ("X", (2,), (1,)),
    "bincount bitwise_not bitwise_not_ one_hot": ("I",),
    "bitwise_and bitwise_or bitwise_xor bitwise_and_ bitwise_or_ bitwise_xor_": ("I", "I"),
    "bitwise_left_shift bitwise_left_shift_ bitwise_right_shift bitwise_right_shift_": ("I", "I"),
    "baddbmm baddbmm_": ("B", "B", "B"),
    "bmm": ("B", "B"),
    "bucketize": ("X", "V"),
    "broadcast_shapes": ((2, 2), (2, 1)),
    "broadcast_tensors result_type": ("X", "X"),
    "can_cast promote_types": ("float32", "float32"),
    "cholesky inverse inv": ("S",),
    "clamp clip clamp_ clip_": ("X", 0.5),
    "conv1d conv_transpose1d": ("C3", "W3"),
    "conv2d conv_transpose2d": ("C4", "W4"),
    "conv3d conv_transpose3d": ("C5", "W5"),
    "cross": ("T", "T"),
    "dot vdot outer ger cartesian_prod": ("V", "V"),
    "einsum": ("ij,jk->ik", "X", "X"),
    "expand broadcast_to sum_to_size repeat reshape view tile": ("X", (2, 2)),
    "flip permute": ("X", (0, 1)),
    "from_numpy": ("array",),
    "get_autocast_dtype is_autocast_enabled": ("cpu",),
    "index_add index_add_ index_copy index_copy_": ("X", 0, "I", "S"),
    "index_fill index_fill_": ("X", 0, "I", 0.5),
    "index_select": ("X", 0, "I"),
    "item": ("one",),
    "lerp lerp_": ("X", "X", 0.5),
    "masked_fill_ fill_diagonal_": ("X", "M", 0.5),
    "masked_scatter masked_scatter_": ("X", "M", "X"),
    "meshgrid": ("V", "V"),
    "movedim moveaxis": ("X", 0, 1),
    "mv": ("X", "V"),
    "new_empty new_ones new_zeros": ("X", (2, 2)),
    "new_full": ("X", (2, 2), 0.5),
    "pixel_shuffle pixel_unshuffle": ("C4", 2),
    "prelu": ("X", "one"),
    "rand randn zeros ones empty": (3,),
    "rand_like randn_like zeros_like ones_like empty_like": ("X",),
    "full_like": ("X", 0.5),
    "randint": (0, 3, (2,)),
    "randint_like random_": ("X", 3),
    "searchsorted": ("V", "X"),
    "scatter scatter_": ("X", 0, "J", 0.5),
    "scatter_add scatter_add_": ("X", 0, "J", "S"),
    "select": ("X", 0, 1),
    "solve": ("S", "V"),
    "sparse_coo_tensor": ("J", "V"),
    "split": ("X", 1, 0),
    "take_along_dim": ("X", "J"),
    "unflatten": ("X", 0, (1, 2)),
    "use_deterministic_algorithms": (False,),
    "Tensor.cross": ("T", "T"),
    "Tensor.resize_": ("X", (2, 2)),
    "Tensor.new": ("X", 2, 2),
    "Tensor.fill_diagonal_": ("X", 0.5),
    "Tensor.unfold": ("X", 0, 1, 1),
    "nn.functional.affine_grid": ("theta", (1, 1, 2, 2)),
    "nn.functional.batch_norm": ("X", "V", "V"),
    "nn.functional.cosine_embedding_loss": ("X", "X", "V"),
    "nn.functional.embedding": ("J", "X"),
    "nn.functional.embedding_bag": ("J", "X"),
    "nn.functional.fold": ("C3", (2, 2), (1, 1)),
    "nn.functional.grid_sample": ("C4", "grid"),
    "nn.functional.instance_norm": ("C4",),
    "nn.functional.interpolate": ("C4", (2, 2)),
    "nn.functional.local_response_norm": ("C4", 1),
    "nn.functional.nll_loss": ("X", "I"),
    "nn.functional.pad": ("X", (1, 1)),
    "nn.functional.scaled_dot_product_attention": ("B", "B", "B"),
    "nn.functional.threshold": ("X", 0.5, 0.5),
    "nn.functional.unfold": ("C4", (2, 2)),
}
RIGHT = {name: value for names, value in RIGHT.items() for name in names.split()}
ARGUMENTS = {name: args for names, args in ARGUMENTS.items() for name in names.split()}
# Not called: they change the state of the process, read files, or need a graph or a device.
LEFT_OUT = set(
    "load save seed manual_seed set_default_dtype set_default_device set_num_threads pin_memory "
    "set_rng_state set_printoptions set_float32_matmul_precision freed_memory_is_kept backward "
    "set_grad_enabled register_hook register_post_accumulate_grad_hook retain_grad cuda "
    "multi_head_attention_forward vmap".split()
)


def known_values(library: object) -> dict[str, object]:
    """What the names in the tables of right arguments stand for."""
    values = {"X": library.ones(2, 2), "V": library.ones(2), "B": library.ones(1, 2, 2)}
    values |= {"I": library.tensor([0, 1]), "J": library.tensor([[0, 1]]), "one": library.ones(1)}
    values |= {f"C{n}": library.ones(1, *[4] * (n - 1)) for n in (3, 4, 5)}
    values |= {f"W{n}": library.ones(4, 4, *[1] * (n - 2)) for n in (3, 4, 5)}
    values |= {
        "T": library.ones(2, 3),
        "theta": library.ones(1, 2, 3),
        "grid": library.zeros(1, 2, 2, 2),
    }
    values |= {"S": library.tensor([[2.0, 1.0], [1.0, 3.0]]), "M": library.ones(2, 2) > 0}
    return values | {"array": np.ones(2), "float32": library.float32}


def given(library: object, args: tuple) -> list:
    """The arguments of a table, for this library."""
    known = known_values(library)
    found = [known.get(arg, arg) if isinstance(arg, str) else arg for arg in args]
    return [[known[name] for name in arg] if isinstance(arg, list) else arg for arg in found]


def find(library: object, name: str) -> object:
    return functools.reduce(
        lambda owner, part: getattr(owner, part, None), name.split("."), library
    )


def right_arguments(name: str) -> tuple:
    """Right arguments of a function, by the tables: its parameters without a default, and `dim`."""
    short, args = name.rpartition(".")[2], []
    if name in ARGUMENTS or short in ARGUMENTS:
        return ARGUMENTS.get(name, ARGUMENTS.get(short))
    for parameter in inspect.signature(find(tinytorch, name)).parameters.values():
        first = name.startswith("Tensor.") and not args
        required = parameter.default is parameter.empty or parameter.name == "dim"
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD) or not required:
            break
        if parameter.name == "old":  # further arguments, in the order of an older PyTorch
            break
        args.append("X" if first else RIGHT.get(parameter.name, "X"))
    return tuple(args)


def public_functions() -> list[str]:
    """What a program may call: "sort", "Tensor.sort", "nn.functional.relu", "linalg.inv", ..."""
    owners = {"": tinytorch, "Tensor.": tinytorch.Tensor, "nn.functional.": tinytorch.nn.functional}
    owners["linalg."] = tinytorch.linalg
    return [
        prefix + name
        for prefix, owner in owners.items()
        for name, function in vars(owner).items()
        if inspect.isfunction(function) and not name.startswith("_") and name not in LEFT_OUT
        if prefix != "linalg." or name in ("inv", "solve", "vector_norm")
    ]


def arguments(rng: random.Random, count: int) -> tuple[Counter, list[str]]:
    """Calls with one wrong argument. Returns how they end, and what PyTorch alone refuses."""
    try:
        import torch
    except ImportError:
        torch = None
    results, accepted = Counter(), {}
    calls = [
        (name, args, place, wrong)
        for name in public_functions()
        for args in [right_arguments(name)]
        for place in range(name.startswith("Tensor."), len(args))
        for wrong in wrong_values(tinytorch)
    ]
    for name, args, place, wrong in rng.sample(calls, min(count, len(calls))):
        ends = []
        for library in (tinytorch, torch):
            if library is None or find(library, name) is None:
                continue
            values = given(library, args)
            values[place] = wrong_values(library)[wrong]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    find(library, name)(*values)
                    ends.append("a result")
                except Exception as error:
                    ends.append(type(error).__name__)
        results[ends[0]] += 1
        if ends[0] == "AttributeError" != ends[-1]:
            results["AttributeError, not PyTorch's"] += 1
        if ends[0] == "a result" != ends[-1]:
            accepted.setdefault((wrong, ends[-1]), []).append(f"{name} {place + 1}")
    lines = [
        f"{wrong} ({error} in PyTorch): {', '.join(sorted(names))}"
        for (wrong, error), names in accepted.items()
    ]
    results["accepted, though PyTorch refuses it"] = sum(map(len, accepted.values()))
    return results, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="2 does twice as much")
    options = parser.parse_args()
    for function, count in ((files, 6000), (saves, 20), (workers, 9), (arguments, 12000)):
        rng, start = random.Random(options.seed), time.perf_counter()
        result = function(rng, int(count * options.scale))
        counts, accepted = result if isinstance(result, tuple) else (result, [])
        facts = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
        print(f"{function.__name__:10} {facts} ({time.perf_counter() - start:.0f} s)", flush=True)
        if accepted:
            print(*(f"             {line}" for line in sorted(accepted)), sep="\n")


if __name__ == "__main__":
    main()
