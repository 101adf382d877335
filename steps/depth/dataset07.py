"""Step dataset07: Fetching a whole batch at once

One item at a time, a batch costs 64 index operations and a stack, even if all items lie in one
tensor anyway. NumPy takes 64 rows in one operation: t[[5, 2, 9, ...]]. In the demo this is many
times as fast.

So a dataset may have two more methods:

    __getitem__(i)           an item
    __getitems__(indices)    a list of items at once, such as from one query of a database
    __getbatch__(indices)    the batch itself: what default_collate would make of these items

`items` and `collated` take the fastest one that the dataset has. A Subset has no items of its own,
so it translates the numbers and asks its dataset. For a list of numbers, subset[[1, 2]], it asks
with a list as well: a dataset of tensors can take one.

The trap is inheritance. A subclass of TensorDataset whose __getitem__ rotates the image inherits
__getbatch__, which knows nothing of the rotation. `collated` must not take it. So it walks through
the classes in Python's own order (the MRO), from the subclass to the base, and takes the shortcut
only if it comes no later than the first class that says what an item is.

(`__getitems__` is PyTorch's too; `__getbatch__` is ours. PyTorch makes batches item by item.)

Changed: TensorDataset, Subset. New: items, collated.
Try: write `continue` for the `break` in `collated`. Which line of the demo gives it away?
"""

import importlib
import itertools
import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor, as_tensor
from tinytorch.ops.random import Generator, randperm
from tinytorch.utils.data.collate import default_collate

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def items(dataset: "Dataset", indices: Sequence) -> list:
    """The items with these numbers: all at once from a dataset that has `__getitems__`."""
    at_once = getattr(dataset, "__getitems__", None)
    return at_once(indices) if callable(at_once) else [dataset[i] for i in indices]


def collated(dataset: "Dataset", indices: Sequence) -> Any:
    """default_collate of these items; by the dataset's `__getbatch__`, unless a class derived from
    it says anew what an item is."""
    for kind in type(dataset).__mro__:
        if "__getbatch__" in vars(kind):
            return dataset.__getbatch__(indices)
        if "__getitem__" in vars(kind) or "__getitems__" in vars(kind):
            break
    return default_collate(items(dataset, indices))


class Dataset:
    """Items by number. A subclass writes `__getitem__`, and `__len__` if there is an end.

    It may also write `__getitems__(indices)`, a list of items at once, and
    `__getbatch__(indices)`: what default_collate would make of these items.
    """

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

    def __getbatch__(self, indices: Sequence) -> list[Tensor]:
        """One index operation for each tensor, where items one by one would need thousands."""
        chosen = as_tensor(np.fromiter(map(operator.index, indices), np.int64))
        return [t[chosen] for t in self.tensors]


class Subset(Dataset):
    """The items of `dataset` with the numbers `indices`."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence) -> list:
        return items(self.dataset, [self.indices[i] for i in indices])

    def __getbatch__(self, indices: Sequence) -> Any:
        return collated(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset, lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset]:
    """Divides a dataset at random: into `lengths` items each, or into fractions that add up to 1.

    Raises:
        ValueError: where the lengths do not add up to len(dataset).
    """
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for place, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {place} is not between 0 and 1")
        lengths = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - sum(lengths)):  # what rounding down has left over
            lengths[i % len(lengths)] += 1
        for place in (place for place, length in enumerate(lengths) if length == 0):
            warnings.warn(f"Length of split at index {place} is 0.", stacklevel=2)
    if sum(lengths) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(lengths)
    return [Subset(dataset, order[b - n : b]) for n, b in zip(lengths, ends, strict=True)]


if __name__ == "__main__":
    import time

    from tinytorch.datasets.digits import load_digits
    from tinytorch.ops.creation import arange

    # All digits in batches of 64: item by item as in step dataset03, and at once.
    digits = TensorDataset(*load_digits())

    def milliseconds(make):
        start = time.perf_counter()
        shapes = [list(make(range(i, min(i + 64, 1797)))[0].shape) for i in range(0, 1797, 64)]
        return (time.perf_counter() - start) * 1e3, len(shapes), shapes[-1]

    slow, *batches = milliseconds(lambda numbers: default_collate([digits[i] for i in numbers]))
    fast, *same = milliseconds(lambda numbers: collated(digits, numbers))
    print(f"item by item {slow:.1f} ms, at once {fast:.1f} ms")  # -> ...
    print(batches == same, "and 5 times as fast:", fast < slow / 5)
    # -> True and 5 times as fast: True
    print(batches)  # -> [29, [5, 8, 8]]

    # The shortcut gives what the long way gives, and steps aside for a class that says otherwise.
    data = TensorDataset(arange(10), arange(10) * 10)

    class Negative(TensorDataset):
        def __getitem__(self, index):
            return tuple(-t for t in super().__getitem__(index))

    for dataset in (data, Subset(data, range(10)), Negative(*data.tensors)):
        short, long = collated(dataset, [3, 1]), default_collate([dataset[3], dataset[1]])
        print(short[0].tolist(), short[1].tolist(), short[1].tolist() == long[1].tolist())
    # -> [3, 1] [30, 10] True
    # -> [3, 1] [30, 10] True
    # -> [-3, -1] [-30, -10] True

    # Several items at once, from a dataset that answers a query; and a part of it.
    class Table(Dataset):
        def __getitems__(self, indices):
            print("one query for", indices)
            return [i * i for i in indices]

    print(collated(Subset(Table(), [9, 5, 7]), [2, 0]).tolist())
    # -> one query for [7, 9]
    # -> [49, 81]
    print([t.tolist() for t in Subset(data, [4, 2, 0])[[1, 2]]])  # -> [[2, 0], [20, 0]]
    print([[t.item() for t in item] for item in items(Subset(data, [4, 2, 0]), [0, 2])])
    # -> [[4, 40], [0, 0]]
