"""Step dataset08: ConcatDataset: several datasets as one

Data often comes in several files, and each is a dataset. Two lists are joined by a `+`, but our
datasets are not lists. ConcatDataset joins any number of them, without copying an item:

    item 12 of 10 + 5 + 7 items is item 2 of the second dataset

              lengths             10    5    7
              running sums        10   15   22         the first sum above 12 is the second

The right dataset is found by bisection among the running sums, so a thousand files cost ten
comparisons. A negative index counts from the end, as in a list.

The trap: the lengths are read once. A dataset that grows later has items that are never found.

(torch.utils.data.ConcatDataset is the same. `Dataset[int]` is for type hints.)

Changed: Dataset. New: ConcatDataset.
Try: bisect_left in place of bisect_right. Which item is not found, and why that one?
"""

import bisect
import importlib
import itertools
import math
import operator
import types
import warnings
from collections.abc import Iterable, Sequence
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

    __class_getitem__ = classmethod(types.GenericAlias)  # Dataset[int], for those who write types

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __add__(self, other: "Dataset") -> "ConcatDataset":
        return ConcatDataset([self, other])


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


class ConcatDataset(Dataset):
    """Datasets one after the other.

    Raises:
        AssertionError: for an empty list.
    """

    def __init__(self, datasets: Iterable[Dataset]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        number = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[number - 1] if number else 0
        return self.datasets[number][index - before]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


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
    from tinytorch.ops.creation import arange

    # Two lists can be added, and so can two datasets.
    data = TensorDataset(arange(10), arange(10) * 10)
    both = Subset(data, [4, 2]) + data
    print(len(both), [both[i][0].item() for i in (0, 1, 2, 11, -1)])  # -> 12 [4, 2, 0, 9, 9]
    print(ConcatDataset[int], both.cumulative_sizes)  # -> __main__.ConcatDataset[int] [2, 12]

    three = ConcatDataset([both, data, [(arange(1), arange(1))]])
    print(len(three), three.cumulative_sizes, three[22][0].item())  # -> 23 [12, 22, 23] 0
    for wrong in (lambda: both[-13], lambda: ConcatDataset([])):
        try:
            wrong()
        except (ValueError, AssertionError) as error:
            print(error)
    # -> absolute value of index should not exceed dataset length
    # -> datasets should not be an empty iterable
