"""Step 92: In which order

Step 91 knows what an item is and how items become a batch. It does not say which items, or when. To
take them in the order of the file is wrong: files are often sorted by class, and a network that
sees 600 zeros, then 600 ones, forgets the zeros. Shuffling once is better. Shuffling again for each
epoch is best: the same items hardly ever meet again in a batch.

A Sampler is anything that gives numbers. RandomSampler shuffles: each item comes once per epoch.
With replacement, each draw is from all items, so n draws miss about 1/e, or 37 %, of them:

    P(an item is not drawn) = (1 - 1/n)^n -> 1/e

Numbers are drawn when they are asked for, so num_samples may be 10^10, and nothing that long is
ever in memory. WeightedRandomSampler makes rare things frequent. Its trap: it needs one weight for
each sample, not for each class. Given the weights of two classes, it draws only samples 0 and 1,
without an error. BatchSampler makes lists of numbers out of numbers, and is a sampler too.

Where do the random numbers come from? RandomSampler draws one number from the program's generator,
and uses it as the seed of its own generator. So manual_seed decides the order, and a dropout layer
that draws between two batches does not change the rest of the epoch. It does change the next epoch;
to avoid that, give the sampler a `generator`.

(torch.utils.data has the same samplers. After the same manual_seed, their order is another one.)

New: the samplers, new_seed, check_positive, check_bool. Moved: step 91, to tinytorch/utils/data.
Try: leave out the two lines in which RandomSampler makes a generator of its own. Which line of the
demo changes?
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import GenericAlias
from typing import Any

from tinytorch.core.dtype import float64
from tinytorch.core.tensor import as_tensor
from tinytorch.ops.random import Generator, randint, randperm
from tinytorch.ops.sampling import multinomial

# Importing the modules of the operations brings their methods to Tensor.
operations = "arithmetic comparison elementwise indexing reduction sampling shape sorting"
for name in operations.split():
    importlib.import_module(f"tinytorch.ops.{name}")


def new_seed(generator: Generator | None) -> int:
    """A seed from `generator`, or from the default one."""
    return int(randint(1 << 62, (), generator=generator).item())


def check_positive(name: str, value: Any) -> None:
    """ValueError unless it is a positive integer, which a bool is not."""
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
    not for each class. ValueError for options that are none."""

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
    import math
    from collections import Counter

    from tinytorch.datasets.digits import load_digits
    from tinytorch.ops.random import manual_seed, rand
    from tinytorch.utils.data.dataset import TensorDataset, collated

    manual_seed(0)
    print(list(SequentialSampler(range(4))))  # -> [0, 1, 2, 3]
    shuffler = RandomSampler(range(100))
    first, second = list(shuffler), list(shuffler)
    print("each once:", sorted(first) == sorted(second) == list(range(100)))  # -> each once: True
    print("each epoch its own order:", first != second)  # -> each epoch its own order: True
    missed = 1 - len(set(RandomSampler(range(10_000), replacement=True))) / 10_000
    print("with replacement 1/e is missed:", abs(missed - math.exp(-1)) < 0.02)
    # -> with replacement 1/e is missed: True
    endless = RandomSampler(range(3), num_samples=10**10)
    print(len(endless), sorted(itertools.islice(endless, 3)))  # -> 10000000000 [0, 1, 2]

    # What is drawn between two numbers does not change those that follow, here in three rounds.
    def order(between):
        manual_seed(0)
        numbers = []
        for number in RandomSampler(range(5), num_samples=15):
            rand(between)
            numbers.append(number)
        return numbers

    print("the same order:", order(between=0) == order(between=7))  # -> the same order: True

    # How often a rare class comes.
    labels = [0] * 90 + [1] * 10
    weights = [1 / 90 if label == 0 else 1 / 10 for label in labels]
    counts = Counter(labels[i] for i in WeightedRandomSampler(weights, 10_000))
    print(f"share of the rare class: {counts[1] / 10_000:.1f}")  # -> share of the rare class: 0.5
    wrong = set(WeightedRandomSampler([1 / 90, 1 / 10], 10_000))  # a weight for each class
    print("samples that ever come:", sorted(wrong))  # -> samples that ever come: [0, 1]
    print(list(BatchSampler(range(5), 2, drop_last=True)))  # -> [[0, 1], [2, 3]]

    # All three parts together in one line, which step 93 makes a class of. The digits are sorted
    # here, as files often are: how many of the ten classes does the network see in a batch?
    images, labels = load_digits()
    by_class = labels.argsort()
    digits = TensorDataset(images[by_class], labels[by_class])
    for sampler in (SequentialSampler(digits), RandomSampler(digits)):
        batches = [collated(digits, numbers) for numbers in BatchSampler(sampler, 64, True)]
        classes = [len(set(labels.tolist())) for _, labels in batches]
        print(f"{len(batches)} batches with {sum(classes) / len(classes):.0f} of ten classes each")
    # -> 28 batches with 1 of ten classes each
    # -> 28 batches with 10 of ten classes each
    try:
        BatchSampler(sampler, True, drop_last=True)
    except ValueError as error:
        print(error)
    # -> batch_size should be a positive integer value, but got batch_size=True
