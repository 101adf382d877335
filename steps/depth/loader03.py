"""Step loader03: RandomSampler: num_samples and replacement

An epoch is one round through the data, which is an arbitrary length. A program that needs exactly
10,000 steps from 1,797 digits, or steps without end, has a second loop around the first. So the
sampler takes a number of its own, num_samples: several rounds, and a part of one.

With replacement=True, each number is drawn from all items, whether it came before or not:

    P(item i is not among n draws) = (1 - 1/n)^n  ->  1/e = 0.37

So an epoch of n draws misses more than a third of the items. The bootstrap of statistics is made
of such samples; for training, shuffling is nearly always better.

The trap is memory. A list of 10^10 numbers has 80 GB at least. So the numbers are drawn as
they are needed: one round at a time, or 1024 numbers where they are drawn with replacement. A
generator function does this by itself. `itertools.repeat` counts the rounds, in no memory at all.

num_samples is computed each time, because a dataset may grow.

(torch.utils.data.RandomSampler has the same options.)

Changed: RandomSampler, check_bool.
Try: make a list of a million of the endless numbers. How much memory does tracemalloc see?
"""

import importlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sized
from types import GenericAlias
from typing import Any

from tinytorch.ops.random import randint, randperm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def check_positive(name: str, value: Any) -> None:
    """Raises ValueError unless it is a positive integer. A bool is not one."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


def check_bool(name: str, value: Any, error: type[Exception] = ValueError) -> None:
    if not isinstance(value, bool):
        raise error(f"{name} should be a boolean value, but got {name}={value}")


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
    """A shuffled dataset; with replacement, each number is drawn from all of them.

    num_samples, the length of the dataset if not given, may be larger than any memory: the numbers
    are drawn while they are asked for.
    Raises:
        TypeError, ValueError: for an invalid option.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
    ):
        self.data_source, self.replacement = data_source, replacement
        self._num_samples = num_samples
        check_bool("replacement", replacement, TypeError)
        check_positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        size = 1024 if self.replacement else n
        rounds, rest = divmod(self.num_samples, size)
        for count in itertools.chain(itertools.repeat(size, rounds), [rest] if rest else []):
            if self.replacement:
                yield from randint(n, (count,)).tolist()
            else:
                yield from randperm(n)[:count].tolist()

    def __len__(self) -> int:
        return self.num_samples


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
    import tracemalloc

    from tinytorch.ops.random import manual_seed

    manual_seed(0)
    rounds = RandomSampler(range(3), num_samples=7)
    numbers = list(rounds)
    print([sorted(numbers[i : i + 3]) for i in (0, 3)], numbers[6] in range(3))
    # -> [[0, 1, 2], [0, 1, 2]] True

    missed = 1 - len(set(RandomSampler(range(10_000), replacement=True))) / 10_000
    print("with replacement 1/e is missed:", abs(missed - math.exp(-1)) < 0.02)
    # -> with replacement 1/e is missed: True

    # Ten thousand million numbers, of which five are asked for.
    tracemalloc.start()
    for replacement in (False, True):
        endless = RandomSampler(range(3), replacement, num_samples=10**10)
        print(len(endless), len(list(itertools.islice(endless, 5))))
    # -> 10000000000 5
    # -> 10000000000 5
    print("less than a megabyte:", tracemalloc.get_traced_memory()[1] < 1e6)
    # -> less than a megabyte: True

    # A dataset that grows.
    data = [1, 2]
    sampler = RandomSampler(data)
    data.append(3)
    print(len(sampler), sorted(sampler))  # -> 3 [0, 1, 2]

    # What is refused.
    for wrong in ({"replacement": 1}, {"num_samples": 0}):
        try:
            RandomSampler(range(5), **wrong)
        except (ValueError, TypeError) as error:
            print(type(error).__name__ + ":", error)
    # -> TypeError: replacement should be a boolean value, but got replacement=1
    # -> ValueError: num_samples should be a positive integer value, but got num_samples=0
