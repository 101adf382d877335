"""Step dataset05: Collating NumPy arrays

Most programs read files into NumPy arrays: np.load, a decoder of pictures, a column of a table. And
a number taken from an array is a NumPy number, np.float32(0.5), which keeps its type. Step
dataset04 refuses both.

Such items become tensors. Arrays of one shape and type are put together by NumPy in one go; arrays
that differ are made into tensors first, and `stack` finds the common type, or says what is wrong
with the shapes.

The kind of the array's type decides. NumPy also has arrays of texts (S, U) and of objects (O), and
there are no tensors of those.

Sometimes items should stay single, and only the arrays in them become tensors: `default_convert`.
It goes down into containers as default_collate does. `walk` does this, and calls a function for
each value that is not a container. (Step loader15 calls another function in the same way.)

The trap: np.float64 is a subclass of Python's float. So NumPy's types have to be tested first.

(torch.utils.data.default_convert is the same.)

Changed: default_collate. New: is_numeric, walk, default_convert. All of collate.py is there now.
Try: leave out the two lines below `kinds`. How much slower is the demo's batch?
"""

import copy
import importlib
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, as_tensor, tensor
from tinytorch.ops.joining import stack

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def rebuilt(original: Any, parts: Any) -> Any:
    """`parts`, a list or a dict, as a container of the kind of `original`.

    As in PyTorch a tuple becomes a list, and so does what cannot be made anew, such as a range.
    """
    if isinstance(original, tuple):
        return type(original)(*parts) if hasattr(original, "_fields") else parts
    try:
        if not isinstance(original, (MutableMapping, MutableSequence)):
            return type(original)(parts)
        clone = copy.copy(original)  # there may be more to it: a defaultdict has its default
        for place, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
            clone[place] = part
        return clone
    except TypeError:
        return parts


def walk(function: Any, data: Any) -> Any:
    """A copy of nested containers, with function(x) in the place of each other value x."""
    if isinstance(data, Mapping):
        return rebuilt(data, {key: walk(function, part) for key, part in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return rebuilt(data, [walk(function, part) for part in data])
    return function(data)


def is_numeric(value: Any) -> bool:
    """Whether this is an array, or a number of NumPy's, that can be a tensor."""
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "SUO"


def default_convert(data: Any) -> Any:
    """Nested data with tensors in the place of arrays, and all else as it is."""
    return walk(lambda value: as_tensor(value) if is_numeric(value) else value, data)


def default_collate(batch: Sequence) -> Any:
    """Samples of one kind as a batch: tensors, arrays and numbers become one tensor with a new
    first dimension, texts stay a list; dicts, tuples and lists go part by part.

    Raises:
        TypeError: for other kinds.
        RuntimeError: where the lengths or shapes differ.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch)
    if is_numeric(first):
        kinds = {(getattr(x, "shape", None), getattr(x, "dtype", None)) for x in batch}
        if len(kinds) == 1:  # NumPy does it in one go
            return as_tensor(np.array(batch))
        return stack([as_tensor(x) for x in batch])
    if isinstance(first, (int, float)):
        return tensor(batch, dtype=float64 if isinstance(first, float) else None)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        parts = {key: default_collate([sample[key] for sample in batch]) for key in first}
        return rebuilt(first, parts)
    if isinstance(first, Sequence):
        if len(set(map(len, batch))) != 1:
            raise RuntimeError("each element in list of batch should be of equal size")
        return rebuilt(first, [default_collate(column) for column in zip(*batch, strict=True)])
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {first.dtype if isinstance(first, np.ndarray) else type(first)}"
    )


class Dataset:
    """Items by number. A subclass writes `__getitem__`, and `__len__` if there is an end."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")


class TensorDataset(Dataset):
    """Item i is (t[i] for each tensor).

    Raises:
        AssertionError: where the first dimensions differ.
    """

    def __init__(self, *tensors: Tensor):
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


if __name__ == "__main__":
    import time

    # A sample of NumPy's, as from a file.
    sample = {"picture": np.ones((8, 8), np.float32), "size": np.float32(0.5), "path": "a.png"}
    batch = default_collate([sample, sample])
    print(
        batch["picture"].shape, batch["picture"].dtype.name
    )  # -> tinytorch.Size([2, 8, 8]) float32
    print(batch["size"].tolist(), batch["size"].dtype.name, batch["path"])
    # -> [0.5, 0.5] float32 ['a.png', 'a.png']
    print(default_collate([np.float64(1), np.float64(2)]).dtype.name)  # -> float64
    print("is a float:", isinstance(np.float64(1), float))  # -> is a float: True

    # Arrays of different types, and of different shapes.
    print(default_collate([np.ones(2, np.int64), np.ones(2, np.float32)]).dtype.name)  # -> float32
    for wrong in ([np.ones(1), np.ones(2)], [np.array(["a"])]):
        try:
            default_collate(wrong)
        except (RuntimeError, TypeError) as error:
            print(type(error).__name__ + ":", str(error).split("; ")[-1].split(", but ")[-1])
    # -> RuntimeError: got [1] and [2]
    # -> TypeError: found <U1

    # In one go, and tensor by tensor.
    pictures = [np.ones((8, 8), np.float32)] * 64

    def milliseconds(function):
        start = time.perf_counter()
        for _ in range(50):
            function()
        return (time.perf_counter() - start) * 20

    one_by_one = milliseconds(lambda: stack([as_tensor(picture) for picture in pictures]))
    at_once = milliseconds(lambda: default_collate(pictures))
    print(f"tensor by tensor {one_by_one:.3f} ms, in one go {at_once:.3f} ms")  # -> ...

    # A single item: what is numeric becomes a tensor, all else stays.
    item = default_convert((sample["picture"], {"size": sample["size"], "path": "a.png", "n": 3}))
    print(
        type(item[0]).__name__, item[1]["size"].item(), item[1]["path"], item[1]["n"]
    )  # -> Tensor 0.5 a.png 3
