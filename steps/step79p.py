"""Step 79p: WeightedRandomSampler: rare classes more often

Of 100 mails, 10 are spam. To see as many of them as of the others, give each item of a class of n
items the weight 1/n. WeightedRandomSampler draws with these weights; with replacement, since the
ten must come several times in an epoch of 100.

The trap: it needs one weight for each item, not for each class. Given the weights of two classes,
it draws only the items 0 and 1, and there is no error: two items with two weights would be right.
A second one: an item that comes nine times is learned by heart sooner. There are no more rare
items than before, they only count more.

Weights are computed, and may come out wrong: negative, not finite, all zero. `multinomial` would
draw from them without an error; now it refuses them. It takes several rows of weights as well, as a
network that writes texts gives them, one for each text. Row i has its edges between i and i + 1, so
one search serves all rows:

    row 0    0 .1 .3      1
    row 1                 1    1.5   1.8   2          its draws: u + 1

(torch.utils.data.WeightedRandomSampler is the same.)

Changed: multinomial. New: WeightedRandomSampler.
Try: weights 1/n for the digits. Which class is the rarest?
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import GenericAlias
from typing import Any

import numpy as np

from tinytorch.core.dtype import float64, int64
from tinytorch.core.tensor import Tensor, as_tensor, tensor, tensor_method
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
        edges, number = rows.cumsum(1), np.arange(len(rows)).reshape(-1, 1)
        found = np.searchsorted((edges / edges[:, -1:] + number).ravel(), draws + number, "right")
        indices = np.minimum(found - number * rows.shape[1], rows.shape[1] - 1)
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


if __name__ == "__main__":
    from collections import Counter

    from tinytorch.ops.random import manual_seed

    manual_seed(0)
    labels = [0] * 90 + [1] * 10
    weights = [1 / 90 if label == 0 else 1 / 10 for label in labels]
    for name, drawn in (
        ("shuffled", RandomSampler(labels)),
        ("weighted", WeightedRandomSampler(weights, 100)),
    ):
        share = sum(labels[i] == 1 for i in drawn)
        print(f"{name}  common {'#' * ((100 - share) // 5):18}  rare {'#' * (share // 5)}")
    # -> shuffled  common ##################  rare ##
    # -> weighted  common ...
    counts = Counter(labels[i] for i in WeightedRandomSampler(weights, 10_000))
    print(f"share of the rare class: {counts[1] / 10_000:.1f}")  # -> share of the rare class: 0.5
    wrong = WeightedRandomSampler([1 / 90, 1 / 10], 10_000)  # a weight for each class
    print(len(wrong), "items:", sorted(set(wrong)))  # -> 10000 items: [0, 1]

    # Rows of weights: each row has its own draws.
    rows = tensor([[0.1, 0.2, 0.7], [5.0, 5.0, 0.0]])
    drawn = multinomial(rows, 10_000, replacement=True)
    for row in drawn.tolist():
        print([round(row.count(i) / 10_000, 1) for i in range(3)])
    # -> [0.1, 0.2, 0.7]
    # -> [0.5, 0.5, 0.0]
    print([sorted(row) for row in multinomial(rows, 2).tolist()][1])  # -> [0, 1]

    # What is refused.
    for wrong in (
        lambda: multinomial(tensor([1, 2]), 1),
        lambda: multinomial(tensor([0.5, -0.5]), 1),
        lambda: multinomial(tensor([0.5, 0.5, 0.0]), 3),
        lambda: WeightedRandomSampler([[0.5, 0.5]], 1),
        lambda: WeightedRandomSampler([0.5, 0.5], 0),
    ):
        try:
            wrong()
        except (RuntimeError, ValueError) as error:
            print(error)
    # -> multinomial: floats in 1 or 2 dims expected as weights, not tinytorch.int64 in 1
    # -> multinomial: weights have to be finite, not negative, and not all zero
    # -> multinomial: cannot sample n_sample = 3 of 2
    # -> weights should be a 1d sequence but given weights have shape (1, 2)
    # -> num_samples should be a positive integer value, but got num_samples=0
