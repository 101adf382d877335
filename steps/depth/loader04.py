"""Step loader04: Samplers with a generator of their own

Since step loader03, numbers are drawn while the network trains. A dropout layer draws too, from the
same generator. So the order of the items now depends on what else is drawn between two batches.
With the same seed, a network with dropout and one without see other batches, and a comparison of
the two compares the batches as well. The demo sees two orders.

So RandomSampler draws one number from the program's generator, and takes it as the seed of a
generator of its own. manual_seed still decides about the order, and what is drawn between two
batches does not change the rest of the epoch:

    program's generator    seed -> 83..1    dropout   dropout   dropout ...   seed -> 20..7
    sampler's own                  item 4   item 0    item 3    item 1  ...

It does change the next epoch, whose seed is drawn later. To avoid that too, give the sampler a
`generator`. Nothing else uses it then, also not from one epoch to the next.

SubsetRandomSampler shuffles some numbers of a dataset, such as those of a split.

(torch.utils.data does the same.)

Changed: RandomSampler. New: new_seed, SubsetRandomSampler.
Try: write `1 << 4` in new_seed. How many different orders do a hundred samplers have?
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import GenericAlias
from typing import Any

from tinytorch.ops.random import Generator, randint, randperm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def new_seed(generator: Generator | None) -> int:
    """A seed from `generator`, or from the default one."""
    return int(randint(1 << 62, (), generator=generator).item())


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
        generator: Generator | None = None,
    ):
        self.data_source, self.replacement = data_source, replacement
        self._num_samples, self.generator = num_samples, generator
        check_bool("replacement", replacement, TypeError)
        check_positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, generator = len(self.data_source), self.generator
        if generator is None:
            generator = Generator().manual_seed(new_seed(None))
        size = 1024 if self.replacement else n
        rounds, rest = divmod(self.num_samples, size)
        for count in itertools.chain(itertools.repeat(size, rounds), [rest] if rest else []):
            if self.replacement:
                yield from randint(n, (count,), generator=generator).tolist()
            else:
                yield from randperm(n, generator=generator)[:count].tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The numbers `indices`, shuffled."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None):
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


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
    from tinytorch.ops.random import manual_seed, rand

    # What step loader03 does: the order of three rounds, and what is drawn between two numbers.
    def rounds_of_79l(n, count):
        for _ in range(count):
            yield from randperm(n).tolist()

    def order(numbers, between):
        manual_seed(0)
        came = []
        for number in numbers():
            rand(between)
            came.append(number)
        return came

    for numbers in (lambda: rounds_of_79l(5, 3), lambda: RandomSampler(range(5), num_samples=15)):
        print("the same order:", order(numbers, between=0) == order(numbers, between=7))
    # -> the same order: False
    # -> the same order: True
    drawn = RandomSampler(range(50), replacement=True, num_samples=3000)
    print(order(lambda: drawn, between=0) == order(lambda: drawn, between=7))  # -> True

    # The second epoch: without a generator of its own, and with one.
    def second_epoch(between, **options):
        manual_seed(0)
        sampler = RandomSampler(range(100), **options)
        list(sampler)
        rand(between)
        return list(sampler)

    print(second_epoch(between=0) == second_epoch(between=7))  # -> False
    mine, same = Generator().manual_seed(5), Generator().manual_seed(5)
    print(second_epoch(between=0, generator=mine) == second_epoch(between=7, generator=same))
    # -> True

    # Some numbers, shuffled.
    sampler = SubsetRandomSampler([2, 5, 7], Generator().manual_seed(0))
    print(len(sampler), sorted(sampler))  # -> 3 [2, 5, 7]
