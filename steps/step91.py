"""Step 91: Where batches come from

The loops so far held all data in one tensor and cut it up by hand. Real data is a folder of
pictures, a stream, a table too large for memory; and the cutting hides three questions that have
nothing to do with each other. Each gets an answer of its own:

    Dataset       what is item number i, and how many are there?
    Sampler       in which order do the numbers come?
    collate       how do 64 items become one batch?

A Dataset is two methods, __getitem__ and __len__; even a list will do. What has no numbers, such
as lines from a network, is an IterableDataset with __iter__. Subset and ConcatDataset are datasets
made of datasets, and random_split makes two that share no item: one to learn from, one to test.

A Sampler is anything that gives numbers. RandomSampler shuffles, anew for each epoch: each item
comes once. With replacement each draw is from all items, so of n draws about 1/e, 37 %, of the
items are missed. Numbers are drawn when they are asked for, so num_samples may be 10^10.
WeightedRandomSampler makes rare things frequent. Its trap: there is one weight for each sample,
not for each class. With the weights of two classes it draws nothing but samples 0 and 1, and says
nothing. BatchSampler makes lists of numbers from numbers.

default_collate puts items together: tensors are stacked with a new first dimension, numbers become
a tensor (ints int64, floats float64: as exact as Python's), tuples and dicts go part by part.

One item at a time costs 64 index operations and a stack for a batch, when all items lie in one
tensor anyway. So a dataset may have a third method, `batch`: TensorDataset takes all with one
index. (torch.utils.data has the same classes; `batch` is ours. plain_loader, below, is what step
95 is about.)

New: the datasets, random_split; the samplers; default_collate; plain_loader, to look at.
Try: a sampler of your own that gives each number twice.
"""

import bisect
import importlib
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, as_tensor, tensor
from tinytorch.datasets.digits import load_digits
from tinytorch.ops.creation import arange
from tinytorch.ops.joining import stack
from tinytorch.ops.random import Generator, manual_seed, randint, randperm
from tinytorch.ops.sampling import multinomial

# Importing the modules of the operations brings their methods to Tensor.
operations = "arithmetic comparison elementwise indexing reduction sampling shape sorting"
for name in operations.split():
    importlib.import_module(f"tinytorch.ops.{name}")


def default_collate(batch: list[Any]) -> Any:
    """Samples of one kind as a batch: tensors, arrays and numbers become one tensor with a new
    first dimension, texts a list; dicts, tuples and lists go item by item.

    TypeError for other kinds, RuntimeError where the lengths or shapes differ.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch)
    if isinstance(first, (np.ndarray, np.generic)) and first.dtype.kind not in "SUO":
        return as_tensor(np.stack(batch))
    if isinstance(first, float):
        return tensor(batch, dtype=float64)
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(list(column)) for column in zip(*batch, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first)}"
    )


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


def new_seed(generator: Generator | None) -> int:
    """A seed from `generator`, or from the default one."""
    return int(randint(1 << 62, (), generator=generator).item())


class Sampler:
    """Base of all samplers: a subclass writes `__iter__`, which gives numbers of items."""

    def __iter__(self) -> Iterator:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """A shuffled dataset; with replacement, each number is drawn from all of them.

    num_samples, the length of the dataset if not given, may be larger than any memory: the numbers
    are drawn while they are asked for. TypeError, ValueError for options that are none.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ):
        self.data_source, self.replacement = data_source, replacement
        self._num_samples, self.generator = num_samples, generator
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(
                "num_samples should be a positive integer value, but got "
                f"num_samples={self.num_samples}"
            )

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        generator = self.generator or Generator().manual_seed(new_seed(None))
        return itertools.islice(self.endless(len(self.data_source), generator), self.num_samples)

    def endless(self, n: int, generator: Generator) -> Iterator[int]:
        while True:
            if self.replacement:
                yield from randint(n, (1024,), generator=generator).tolist()
            else:
                yield from randperm(n, generator=generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The numbers `indices`, shuffled."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        order = randperm(len(self.indices), generator=self.generator)
        return (self.indices[i] for i in order.tolist())

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Item i is drawn with a probability in proportion to weights[i]: one weight for each sample,
    not for each class. ValueError for options that are none."""

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ):
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={num_samples}"
            )
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        self.weights = as_tensor(weights, dtype=float64)
        if self.weights.dim() != 1:
            raise ValueError(
                "weights should be a 1d sequence but given weights have shape "
                f"{tuple(self.weights.shape)}"
            )
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of batch_size numbers from another sampler; drop_last leaves out a shorter last one."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


def plain_loader(dataset, batch_size, shuffle=False):
    """The three parts together, in three lines. Step 95 has it whole."""
    sampler = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
    for numbers in BatchSampler(sampler, batch_size, drop_last=False):
        yield collated(dataset, numbers)


if __name__ == "__main__":

    class Squares(Dataset):
        """Item i is i, its square, and its name."""

        def __len__(self):
            return 5

        def __getitem__(self, index):
            return {"pair": (index, float(index**2)), "name": f"number {index}"}

    print(Squares()[3])  # -> {'pair': (3, 9.0), 'name': 'number 3'}
    batch = default_collate([Squares()[3], Squares()[4]])
    for part in batch["pair"]:
        print(part.tolist(), part.dtype.name)
    # -> [3, 4] int64
    # -> [9.0, 16.0] float64
    print(batch["name"])  # -> ['number 3', 'number 4']
    for batch in plain_loader(Squares(), 2):
        print(batch["pair"][0].tolist(), batch["name"][-1])
    # -> [0, 1] number 1
    # -> [2, 3] number 3
    # -> [4] number 4

    # Datasets made of datasets.
    manual_seed(0)
    data = TensorDataset(arange(10), arange(10) * 10)
    print(len(data), [t.item() for t in data[7]])  # -> 10 [7, 70]
    learn, test = random_split(data, [0.8, 0.2])
    seen = {learn[i][0].item() for i in range(8)} | {test[i][0].item() for i in range(2)}
    print(len(learn), "and", len(test), "items, none twice:", seen == set(range(10)))
    # -> 8 and 2 items, none twice: True
    both = Subset(data, [4, 2]) + data
    print(len(both), both[1][0].item(), both[2][0].item(), both[-1][0].item())  # -> 12 2 0 9

    # Samplers, and how often each number comes.
    print(list(SequentialSampler(range(4))))  # -> [0, 1, 2, 3]
    shuffler = RandomSampler(range(100))
    first, second = list(shuffler), list(shuffler)
    print("each once:", sorted(first) == sorted(second) == list(range(100)))  # -> each once: True
    print("each epoch its own order:", first != second)  # -> each epoch its own order: True
    drawn = set(RandomSampler(range(10_000), replacement=True))
    print(f"missed with replacement: {1 - len(drawn) / 10_000:.2f}")
    # -> missed with replacement: 0.37
    endless = RandomSampler(range(3), num_samples=10**10)
    print(len(endless), sorted(itertools.islice(endless, 3)))  # -> 10000000000 [0, 1, 2]

    labels = [0] * 90 + [1] * 10  # one class is rare
    weights = [1 / 90 if label == 0 else 1 / 10 for label in labels]
    counts = Counter(labels[i] for i in WeightedRandomSampler(weights, 10_000))
    print(f"share of the rare class: {counts[1] / 10_000:.1f}")  # -> share of the rare class: 0.5
    wrong = set(WeightedRandomSampler([1 / 90, 1 / 10], 10_000))  # a weight for each class
    print("samples that ever come:", sorted(wrong))  # -> samples that ever come: [0, 1]
    print(list(BatchSampler(range(5), 2, drop_last=True)))  # -> [[0, 1], [2, 3]]

    # The digits: one by one, and with one index operation for a batch.
    class OneByOne(Dataset):
        def __init__(self, data):
            self.data = data

        def __len__(self):
            return len(self.data)

        def __getitem__(self, index):
            return self.data[index]

    digits = TensorDataset(*load_digits())
    for name, dataset in (("one by one", OneByOne(digits)), ("batch", digits)):
        start = time.perf_counter()
        shapes = [list(x.shape) for x, _ in plain_loader(dataset, 64, shuffle=True)]
        print(f"{name:10} {(time.perf_counter() - start) * 1e3:.1f} ms")  # -> ...
    print(len(shapes), "batches, the last of", shapes[-1])  # -> 29 batches, the last of [5, 8, 8]
