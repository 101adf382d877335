"""Step loader08: multinomial: several rows of weights

A network that writes several texts at once gives a row of weights for each of them, and an index is
drawn from each row. A loop over the rows would make a search, and a tensor, for each.

Without replacement there is a race in each row (step loader06), and argsort(1) sorts all rows. With
replacement each row has edges of its own, but np.searchsorted looks into one sorted array. So the
edges and the draws of row i are moved to the numbers between i and i + 1. Now all edges, one row
after the other, are one sorted array. What the search finds in row i is larger by i n, for rows of
n weights.

    row 0    0 .1 .3      1
    row 1                 1    1.5        2          its draws: u + 1

The trap: u is below 1, but u + i is rounded, and may become i + 1, which belongs to the next row.
np.nextafter gives the largest number below.

Changed: multinomial.
Try: leave out `+ number` where the edges are searched. What is drawn in the second row?
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
    """Draws indices with the weights `input` [n] or [rows, n]: int64, [num_samples] or [rows,
    num_samples].

    Raises:
        RuntimeError: the weights are not floats, negative, not finite or all zero; or there are
            fewer than `num_samples` positive weights to draw from without replacement.
    """
    weights = input.device.backend.to_numpy(input.array).astype(np.float64)
    if not input.is_floating_point() or weights.ndim not in (1, 2):
        found = f"{input.dtype!r} in {input.ndim}"
        raise RuntimeError(f"multinomial: floats in 1 or 2 dims expected as weights, not {found}")
    if not np.isfinite(weights).all() or (weights < 0).any() or (weights.sum(-1) <= 0).any():
        raise RuntimeError("multinomial: weights have to be finite, not negative, and not all zero")
    most = np.inf if replacement else (weights > 0).sum(-1).min(initial=weights.shape[-1])
    if not 0 < num_samples <= most:
        raise RuntimeError(f"multinomial: cannot sample n_sample = {num_samples} of {most}")
    source = generator_for(input.device, generator).source
    rows = weights.reshape(-1, weights.shape[-1])
    shape = (len(rows), num_samples if replacement else weights.shape[-1])
    draws = input.device.backend.to_numpy(source.uniform(shape, np.dtype(np.float64)))
    if replacement:
        # Row i has its edges, of which the last is 1, between i and i + 1: one search for all rows.
        # A draw u + i is rounded, and must not become i + 1.
        edges, number = rows.cumsum(1), np.arange(len(rows)).reshape(-1, 1)
        draws = np.minimum(draws + number, np.nextafter(number + 1.0, 0))
        found = np.searchsorted((edges / edges[:, -1:] + number).ravel(), draws, "right")
        indices = found - number * rows.shape[1]
    else:
        # The smallest of -log(u) / w comes from element i with probability w_i / sum of w.
        waiting = np.where(rows > 0, -np.log1p(-draws) / np.maximum(rows, 1e-300), np.inf)
        indices = waiting.argsort(1)[:, :num_samples]
    indices = indices.reshape(*weights.shape[:-1], num_samples)
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
    from tinytorch.ops.random import manual_seed

    manual_seed(0)
    rows = tensor([[0.1, 0.2, 0.7], [5.0, 5.0, 0.0]])
    drawn = multinomial(rows, 10_000, replacement=True)
    print(tuple(drawn.shape))  # -> (2, 10000)
    for row in drawn.tolist():
        print([round(row.count(i) / 10_000, 1) for i in range(3)])
    # -> [0.1, 0.2, 0.7]
    # -> [0.5, 0.5, 0.0]

    # A race in each row. The second has two runners.
    print([sorted(row) for row in multinomial(rows, 2).tolist()][1])  # -> [0, 1]
    try:
        multinomial(rows, 3)
    except RuntimeError as error:
        print(error)  # -> multinomial: cannot sample n_sample = 3 of 2
    try:
        multinomial(rows.reshape(1, 2, 3), 1)
    except RuntimeError as error:
        print(error)
    # -> multinomial: floats in 1 or 2 dims expected as weights, not tinytorch.float32 in 3

    # One row is drawn as before.
    print(multinomial(rows[1], 4, replacement=True).shape)  # -> tinytorch.Size([4])

    # The largest u below 1, plus 1, is rounded to 2.
    largest = np.nextafter(1.0, 0)
    print(largest < 1, largest + 1 < 2)  # -> True False
