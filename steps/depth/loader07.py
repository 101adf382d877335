"""Step loader07: multinomial: checking the weights

Weights are computed, and may come out wrong. Step loader06 draws from such weights without an
error:

    0.6, -0.3, 0.7        the edges are 0.6, 0.3, 1: index 1 never comes, and 0 with p = 0.3
    0.0, 0.0, 0.0         all edges are 0 / 0: index 0 always comes
    1.0, nan, 1.0         from nan on, all edges are nan: index 0 always comes
    0.5, 0.5, 0.0         three without replacement: the third has the weight 0

The network is then trained with the wrong items, and nothing says so. So the weights are checked
before anything is drawn: they have to be finite, not negative, and not all zero. Without
replacement there must be as many positive weights as there are draws.

As in PyTorch, the weights have to be floats: integers may be a mistake, such as indices.

Changed: multinomial.
Try: weights of 1e30 and 1e40. Which of them is not finite, and why?
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
    """Draws indices with the weights `input` [n]: int64, [num_samples].

    Raises:
        RuntimeError: the weights are not floats, negative, not finite or all zero; or there are
            fewer than `num_samples` positive weights to draw from without replacement.
    """
    weights = input.device.backend.to_numpy(input.array).astype(np.float64)
    if not input.is_floating_point() or weights.ndim != 1:
        found = f"{input.dtype!r} in {input.ndim}"
        raise RuntimeError(f"multinomial: floats in 1 dim expected as weights, not {found}")
    if not np.isfinite(weights).all() or (weights < 0).any() or weights.sum() <= 0:
        raise RuntimeError("multinomial: weights have to be finite, not negative, and not all zero")
    most = np.inf if replacement else (weights > 0).sum()
    if not 0 < num_samples <= most:
        raise RuntimeError(f"multinomial: cannot sample n_sample = {num_samples} of {most}")
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
    from tinytorch.ops.random import manual_seed

    # The edges of step loader06, for weights of which one is negative: they do not rise.
    print(np.array([0.6, -0.3, 0.7]).cumsum().round(2))  # -> [0.6 0.3 1. ]

    manual_seed(0)
    for weights, count in (
        ([0.6, -0.3, 0.7], 1),
        ([0.0, 0.0, 0.0], 1),
        ([1.0, float("nan"), 1.0], 1),
        ([0.5, 0.5, 0.0], 3),
        ([0.5, 0.5, 0.0], 0),
        ([1, 2], 1),
    ):
        try:
            multinomial(tensor(weights), count)
        except RuntimeError as error:
            print(weights, error)
    # -> [0.6, -0.3, 0.7] multinomial: weights have to be finite, not negative, and not all zero
    # -> [0.0, 0.0, 0.0] multinomial: weights have to be finite, not negative, and not all zero
    # -> [1.0, nan, 1.0] multinomial: weights have to be finite, not negative, and not all zero
    # -> [0.5, 0.5, 0.0] multinomial: cannot sample n_sample = 3 of 2
    # -> [0.5, 0.5, 0.0] multinomial: cannot sample n_sample = 0 of 2
    # -> [1, 2] multinomial: floats in 1 dim expected as weights, not tinytorch.int64 in 1

    # What is right is drawn as before.
    print(sorted(multinomial(tensor([0.5, 0.5, 0.0]), 2).tolist()))  # -> [0, 1]
    print(len(multinomial(tensor([0.5, 0.5, 0.0]), 5, replacement=True)))  # -> 5
