"""Step 79h: Items, and batches of items

So far the loops have held all data in one tensor and cut it up by hand. Real data is a folder of
pictures, a stream, or a table too large for memory. And the cutting mixes three questions that have
nothing to do with each other. Each gets an answer of its own:

    Dataset       what is item number i, and how many are there?      (this step)
    collate       how do 64 items become one batch?                   (this step)
    Sampler       in which order do the numbers come?                 (step 79o)

A Dataset has two methods, __getitem__ and __len__; even a list will do. Data without numbers, such
as lines from a network, is an IterableDataset with __iter__. Subset, ConcatDataset and, for
streams, ChainDataset are datasets made of datasets. random_split makes two that share no item: one
to train on, one to test.

default_collate puts items together: tensors are stacked along a new first dimension, numbers become
a tensor (int64 or float64: as exact as Python's), and containers are collated part by part. So
items (image, label) become a batch [images, labels]. It refuses what it does not know: None is not
a number, and two images of different sizes do not make a batch.

One item at a time, a batch costs 64 index operations and a stack, even if all items lie in one
tensor anyway. So a dataset may have a method that makes a whole batch: TensorDataset does it with
one index. The trap is inheritance. A subclass of TensorDataset whose __getitem__ rotates the image
must get batches of rotated images. So `collated` walks through the classes in Python's own order
(the MRO), and takes the shortcut only if it comes no later than the first class that says what an
item is.

(torch.utils.data has the same classes. `__getitems__`, a list of items at once, is PyTorch's too;
`__getbatch__`, the batch itself, is ours.)

New: default_collate, default_convert, with walk and rebuilt; items, collated; the datasets,
random_split.
Try: leave the `break` out of `collated`. Which line of the demo gives it away?
"""

import bisect
import copy
import importlib
import itertools
import math
import operator
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, as_tensor, tensor
from tinytorch.ops.joining import stack
from tinytorch.ops.random import Generator, randperm

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
    import time

    from tinytorch.datasets.digits import load_digits
    from tinytorch.ops.creation import arange
    from tinytorch.ops.random import manual_seed

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
    images = default_collate([np.ones((8, 8), np.float32), np.zeros((8, 8), np.float32)])
    print(type(images).__name__, images.shape)  # -> Tensor tinytorch.Size([2, 8, 8])
    for wrong in ([None, None], [tensor([1]), tensor([1, 2])]):
        try:
            default_collate(wrong)
        except (TypeError, RuntimeError) as error:
            print(type(error).__name__ + ":", str(error).split("; ")[-1].split(", but ")[-1])
    # -> TypeError: found <class 'NoneType'>
    # -> RuntimeError: got [1] at entry 0 and [2] at entry 1

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

    # The shortcut gives what the long way gives, and steps aside for a class that says otherwise.
    class Negative(TensorDataset):
        def __getitem__(self, index):
            return tuple(-t for t in super().__getitem__(index))

    for dataset in (data, Subset(data, range(10)), Negative(*data.tensors)):
        short, long = collated(dataset, [3, 1]), default_collate([dataset[3], dataset[1]])
        print(short[0].tolist(), short[1].tolist(), short[1].tolist() == long[1].tolist())
    # -> [3, 1] [30, 10] True
    # -> [3, 1] [30, 10] True
    # -> [-3, -1] [-30, -10] True

    # What it saves: all digits in batches of 64.
    digits = TensorDataset(*load_digits())
    for name, make in (
        ("item by item", lambda numbers: default_collate([digits[i] for i in numbers])),
        ("at once", lambda numbers: collated(digits, numbers)),
    ):
        start = time.perf_counter()
        shapes = [list(make(range(i, min(i + 64, 1797)))[0].shape) for i in range(0, 1797, 64)]
        print(f"{name:12} {(time.perf_counter() - start) * 1e3:.1f} ms")  # -> ...
    print(len(shapes), "batches, the last of", shapes[-1])  # -> 29 batches, the last of [5, 8, 8]
