"""Step dataset09: Streams: IterableDataset and ChainDataset

Some data has no indices: lines from a network, or a file that is too large for a table of contents.
Its items come one after the other, and their number is not known. A Dataset with __getitem__ cannot
say that.

    IterableDataset  a dataset with __iter__ instead of __getitem__
    ChainDataset     the items of one stream, then those of the next; stream + stream makes one

A subclass without __iter__ cannot be created: IterableDataset inherits from the abstract class
Iterable. ChainDataset opens a stream only when the one before is finished.

The trap: a stream cannot be shuffled, split or joined with datasets that have indices.
ConcatDataset refuses it in its constructor, not at its first item.

(torch.utils.data has the same classes.)

Changed: ConcatDataset. New: IterableDataset, ChainDataset. All of dataset.py is there now.
Try: print in __iter__ of Lines, and print each item in a loop over hamlet. When is the second
stream opened?
"""

import bisect
import importlib
import itertools
import math
import operator
import types
import warnings
from collections.abc import Iterable, Iterator, Sequence
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


class IterableDataset(Dataset, Iterable):
    """Items one after the other, from a stream that has no numbers. A subclass writes `__iter__`.

    Each worker of a DataLoader has a copy: without get_worker_info, each item comes several times.
    Raises:
        TypeError: for a class without `__iter__`.
    """

    def __add__(self, other: Dataset) -> "ChainDataset":
        return ChainDataset([self, other])


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
        AssertionError: for an empty list, and for an IterableDataset, which has no numbers.
    """

    def __init__(self, datasets: Iterable[Dataset]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
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


class ChainDataset(IterableDataset):
    """Streams one after the other.

    Raises:
        AssertionError: for what is not an IterableDataset.
    """

    def __init__(self, datasets: Iterable[IterableDataset]):
        self.datasets = datasets

    def streams(self) -> Iterator[IterableDataset]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator:
        return itertools.chain.from_iterable(self.streams())

    def __len__(self) -> int:
        return sum(map(len, self.streams()))


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

    # A stream: its items have no numbers.
    class Lines(IterableDataset):
        def __init__(self, text):
            self.text = text

        def __iter__(self):
            return iter(self.text.split(", "))

        def __len__(self):  # a stream need not know it
            return self.text.count(", ") + 1

    hamlet = Lines("to be, or not") + Lines("to be, that is, the question")
    print(list(hamlet), len(hamlet))
    # -> ['to be', 'or not', 'to be', 'that is', 'the question'] 5

    # What is refused.
    data = TensorDataset(arange(10))

    class Half(IterableDataset):
        pass

    for wrong in (
        lambda: ConcatDataset([data, hamlet]),
        lambda: list(ChainDataset([hamlet, data])),
        Half,
    ):
        try:
            wrong()
        except (AssertionError, TypeError) as error:
            print(str(error).split(" without")[0])
    # -> ConcatDataset does not support IterableDataset
    # -> ChainDataset only supports IterableDataset
    # -> Can't instantiate abstract class Half ...
