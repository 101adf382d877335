"""Step loader06: multinomial in the package's dress

Step 55a drew without replacement, by a race: index i waits for a random time -log(u) / w_i, and the
first to arrive are the sample. With replacement there is a faster way. The running sums of the
weights, divided by the last one, are edges between 0 and 1, and a uniform number falls between two
of them:

    weights 0.1, 0.2, 0.7      |-|--|-------|        u = 0.45  ->  index 2
                               0 .1 .3      1

The trap: a uniform number may be 0, and its logarithm is not finite. 1 - u is never 0, and log1p
computes log(1 - u) without rounding 1 - u first. An index of weight 0 arrives at the time infinity.

(torch.multinomial is the same function, with other random numbers.)

New: multinomial. Moved: fork_rng and its kin, to tinytorch/random.py.
Try: draw all three of the demo's indices in a race. Which one is the last, most of the time?
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import GenericAlias
from typing import Any

import numpy as np

from tinytorch.core.dtype import int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops.random import Generator, generator_for, randint, randperm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@tensor_method("multinomial")
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Draws indices with the weights `input` [n]: int64, [num_samples]."""
    weights = input.device.backend.to_numpy(input.array).astype(np.float64)
    source = generator_for(input.device, generator).source
    shape = (num_samples if replacement else len(weights),)
    draws = input.device.backend.to_numpy(source.uniform(shape, np.dtype(np.float64)))
    if replacement:
        edges = weights.cumsum()
        indices = np.searchsorted(edges / edges[-1], draws, "right")
    else:
        # The smallest of -log(u) / w comes from element i with probability w_i / sum of w.
        waiting = np.where(weights > 0, -np.log1p(-draws) / np.maximum(weights, 1e-300), np.inf)
        indices = waiting.argsort()[:num_samples]
    return tensor(indices, dtype=int64, device=input.device)


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
    from collections import Counter

    from tinytorch.ops.random import manual_seed

    manual_seed(0)
    odds = tensor([0.1, 0.2, 0.7])
    counts = Counter(multinomial(odds, 10_000, replacement=True).tolist())
    print("drawn by weight:", [round(counts[i] / 10_000, 1) for i in range(3)])
    # -> drawn by weight: [0.1, 0.2, 0.7]

    # A race: each index once, and the heavy ones first. What comes second is drawn from the rest:
    # after a 2, the indices 0 and 1 come with the probabilities 1/3 and 2/3.
    races = [odds.multinomial(2).tolist() for _ in range(5000)]
    first = Counter(race[0] for race in races)
    print("first:", [round(first[i] / 5000, 1) for i in range(3)])  # -> first: [0.1, 0.2, 0.7]
    second = [race[1] for race in races if race[0] == 2]
    share = sum(index == 1 for index in second) / len(second)
    print("then a 1, in 2/3 of the races:", abs(share - 2 / 3) < 0.03)
    # -> then a 1, in 2/3 of the races: True

    # A weight of 0 never comes, and the weights need not add up to 1.
    print(set(multinomial(tensor([0.0, 3.0, 5.0]), 1000, replacement=True).tolist()))  # -> {1, 2}
    print(sorted(multinomial(tensor([0.0, 3.0, 5.0]), 2).tolist()))  # -> [1, 2]
