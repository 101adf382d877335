"""Samplers: in which order the items of a dataset come."""

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import GenericAlias
from typing import Any

from tinytorch.core.dtype import float64
from tinytorch.core.tensor import as_tensor
from tinytorch.ops.random import Generator, randint, randperm
from tinytorch.ops.sampling import multinomial


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


class WeightedRandomSampler(Sampler):
    """Item i is drawn with a probability in proportion to weights[i]: one weight for each sample,
    not for each class.

    Raises:
        ValueError: for an invalid option.
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ):
        check_positive("num_samples", num_samples)
        check_bool("replacement", replacement)
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
        yield from drawn.tolist()

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
