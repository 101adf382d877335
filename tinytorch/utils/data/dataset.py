"""Datasets: something with a length and items, or something to iterate over."""

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.random import Generator, randperm
from tinytorch.utils.data.collate import default_collate


def collated(dataset: "Dataset", indices: list[int]) -> Any:
    """These items as one batch, in the dataset's own way if it has one."""
    if hasattr(dataset, "batch"):
        return dataset.batch(indices)
    return default_collate([dataset[i] for i in indices])


class Dataset:
    """Items by number. A subclass writes `__getitem__`, and `__len__` if there is an end.

    It may also write `batch(indices)`: what default_collate would make of these items, at once.
    """

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __add__(self, other: "Dataset") -> "ConcatDataset":
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Items one after the other, from a stream that has no numbers. A subclass writes `__iter__`.

    Each worker of a DataLoader has a copy: without get_worker_info, each item comes several times.
    """

    def __iter__(self) -> Iterator:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")

    def __add__(self, other: Dataset) -> "ChainDataset":
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Item i is (t[i] for each tensor). AssertionError where the first dimensions differ."""

    def __init__(self, *tensors: Tensor):
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def batch(self, indices: list[int]) -> list[Tensor]:
        """One index operation for each tensor, where items one by one would need thousands."""
        return [t[tensor(indices, device=t.device)] for t in self.tensors]


class Subset(Dataset):
    """The items of `dataset` with the numbers `indices`."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, indices: list[int]) -> Any:
        return collated(self.dataset, [self.indices[i] for i in indices])


class ConcatDataset(Dataset):
    """Datasets one behind the other. AssertionError for none, or one that has no numbers."""

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
    """Streams one behind the other."""

    def __init__(self, datasets: Iterable[IterableDataset]):
        self.datasets = datasets

    def __iter__(self) -> Iterator:
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)


def random_split(
    dataset: Dataset, lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset]:
    """Divides a dataset at random: into `lengths` items each, or into fractions that add up to 1.

    ValueError where the lengths do not add up to len(dataset).
    """
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if any(not 0 <= fraction <= 1 for fraction in lengths):
            raise ValueError(f"Fractions should be between 0 and 1, but got {list(lengths)}")
        lengths = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - sum(lengths)):  # what rounding down has left over
            lengths[i % len(lengths)] += 1
    if sum(lengths) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(lengths)
    return [Subset(dataset, order[b - n : b]) for n, b in zip(lengths, ends, strict=True)]
