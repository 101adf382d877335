"""Step loader02: BatchSampler in the package's dress: the last batch

Step 77c built BatchSampler, a sampler whose numbers are lists of numbers. New here are the
checks of its options.

The trap: the last batch is shorter. Its mean loss counts as much as that of any other batch. The
1797 digits make 28 batches of 64 and one of 5, so each of these 5 items counts 13 times as much as
one of the others. The mean of the batches' means is not the mean: in the demo, 9 % off. Add up
the sums instead. In training, drop_last=True leaves the short batch out; as the order changes, no
item is left out for long. Never do that in a test.

The checks: for Python, True is an integer, so BatchSampler(s, True) would make batches of one.

New: BatchSampler, check_positive, check_bool.
Try: take the `iter` away from the first line of BatchSampler.__iter__. Why does it never end?
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sized
from types import GenericAlias
from typing import Any

import numpy as np

from tinytorch.ops.random import randperm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def check_positive(name: str, value: Any) -> None:
    """Raises ValueError unless it is a positive integer. A bool is not one."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


def check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} should be a boolean value, but got {name}={value}")


class Sampler:
    """Base of all samplers: a subclass writes `__iter__`, which gives numbers of items."""

    __class_getitem__ = classmethod(GenericAlias)

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
    """A shuffled dataset: each number once, in an order that is another one each time."""

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        yield from randperm(len(self.data_source)).tolist()

    def __len__(self) -> int:
        return len(self.data_source)


class BatchSampler(Sampler):
    """Lists of batch_size numbers from another sampler; drop_last leaves out a shorter last one."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        check_positive("batch_size", batch_size)
        check_bool("drop_last", drop_last)
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


if __name__ == "__main__":
    for drop_last in (False, True):
        batches = BatchSampler(range(5), 2, drop_last)
        print(len(batches), list(batches))
    # -> 3 [[0, 1], [2, 3], [4]]
    # -> 2 [[0, 1], [2, 3]]

    # A loss of 1 for all digits but the last five, which have 4.
    losses = np.array([1.0] * 1792 + [4.0] * 5)
    means = [losses[batch].mean() for batch in BatchSampler(range(1797), 64, drop_last=False)]
    print(f"mean {losses.mean():.3f}, mean of {len(means)} means {np.mean(means):.3f}")
    # -> mean 1.008, mean of 29 means 1.103

    # One of our own: texts of about one length side by side, so that a batch needs little padding.
    class ByLength(Sampler):
        def __init__(self, texts):
            self.texts = texts

        def __iter__(self):
            return iter(sorted(range(len(self.texts)), key=lambda i: len(self.texts[i])))

        def __len__(self):
            return len(self.texts)

    texts = ["to", "whether", "be", "nobler"]
    for sampler in (SequentialSampler(texts), ByLength(texts)):
        batches = [[texts[i] for i in batch] for batch in BatchSampler(sampler, 2, False)]
        longest = [max(map(len, batch)) for batch in batches]
        padding = sum(2 * n for n in longest) - sum(map(len, texts))
        print(batches, "letters of padding:", padding)
    # -> [['to', 'whether'], ['be', 'nobler']] letters of padding: 9
    # -> [['to', 'be'], ['nobler', 'whether']] letters of padding: 1

    # What is refused.
    print("True is an int:", isinstance(True, int))  # -> True is an int: True
    for wrong in ((True, False), (2, None)):
        try:
            BatchSampler(range(5), *wrong)
        except ValueError as error:
            print(error)
    # -> batch_size should be a positive integer value, but got batch_size=True
    # -> drop_last should be a boolean value, but got drop_last=None
