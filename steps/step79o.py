"""Step 79o: In which order

Step 79h knows what an item is and how items become a batch. It does not say which items, or when.
To take them in the order of the file is wrong: files are often sorted by class, and a network that
sees 600 zeros, then 600 ones, forgets the zeros. Shuffling once is better. Shuffling again for each
epoch is best: the same items hardly ever meet again in a batch.

A Sampler is anything that gives numbers. RandomSampler shuffles: each item comes once per epoch.
With replacement, each draw is from all items, so n draws miss about 1/e, or 37 %, of them:

    P(an item is not drawn) = (1 - 1/n)^n -> 1/e

Numbers are drawn when they are asked for, so num_samples may be 10^10, and nothing that long is
ever in memory. BatchSampler makes lists of numbers out of numbers, and is a sampler too. One of
your own needs __iter__, and __len__ if there is an end.

WeightedRandomSampler makes rare things frequent. `multinomial` draws for it. With replacement it
looks up a uniform number among the running sums of the weights. Without, it is a race: each element
arrives after a random time, -log(u) / weight, and the first to arrive are the sample. The trap: it
needs one weight for each sample, not for each class. Given the weights of two classes, it draws
only samples 0 and 1, without an error.

Where do the random numbers come from? RandomSampler draws one number from the program's generator,
and uses it as the seed of its own. So manual_seed decides the order, and a dropout layer that draws
between two batches does not change the rest of the epoch. It does change the next one. To avoid
that, give the sampler a `generator`; or draw inside `with fork_rng():`, which afterwards puts the
generators of all devices back to where they were.

(torch.utils.data has the same samplers. After the same manual_seed, their order is another one.)

New: multinomial; get_rng_state, set_rng_state, fork_rng; the samplers, new_seed, check_positive,
check_bool. Moved: step 79h, to tinytorch/utils/data.
Try: leave out the two lines in which RandomSampler makes a generator of its own. Which line of the
demo changes?
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from types import GenericAlias
from typing import Any

import numpy as np

from tinytorch.core.device import cpu
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


def get_rng_state() -> Tensor:
    """The state of the CPU's default generator."""
    return generator_for(cpu, None).get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Sets the state of the CPU's default generator."""
    generator_for(cpu, None).set_state(new_state)


@contextmanager
def fork_rng(devices: Sequence[int] | None = None, enabled: bool = True) -> Iterator[None]:
    """`with fork_rng():` what is drawn or seeded inside changes nothing for the program outside.

    It holds for the CPU and for all other devices, or for the GPUs with the numbers `devices`.
    """
    generator_for(cpu, None)
    before = {
        generator: (generator.get_state(), generator.chosen_seed)
        for device, generator in Generator.default.items()
        if enabled and (devices is None or device is cpu or device.index in devices)
    }
    try:
        yield
    finally:
        for generator, (state, chosen) in before.items():
            generator.set_state(state)
            generator.chosen_seed = chosen


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

    # What is drawn inside fork_rng, for a plot or a test, changes nothing outside.
    manual_seed(3)
    expected = rand(2)
    manual_seed(3)
    with fork_rng():
        manual_seed(99)
        rand(1000)
    state, after = get_rng_state(), rand(2)
    print("undisturbed:", (after == expected).all().item())  # -> undisturbed: True
    set_rng_state(state)
    print("from there again:", (rand(2) == expected).all().item())  # -> from there again: True

    # Indices by weight, and how often a rare class comes.
    odds = tensor([0.1, 0.2, 0.7])
    counts = Counter(multinomial(odds, 10_000, replacement=True).tolist())
    print("drawn by weight:", [round(counts[i] / 10_000, 1) for i in range(3)])
    # -> drawn by weight: [0.1, 0.2, 0.7]
    first = Counter(multinomial(odds, 3).tolist()[0] for _ in range(1000))
    print("first in most races:", first.most_common(1)[0][0])  # -> first in most races: 2
    labels = [0] * 90 + [1] * 10
    weights = [1 / 90 if label == 0 else 1 / 10 for label in labels]
    counts = Counter(labels[i] for i in WeightedRandomSampler(weights, 10_000))
    print(f"share of the rare class: {counts[1] / 10_000:.1f}")  # -> share of the rare class: 0.5
    wrong = set(WeightedRandomSampler([1 / 90, 1 / 10], 10_000))  # a weight for each class
    print("samples that ever come:", sorted(wrong))  # -> samples that ever come: [0, 1]
    for name, drawn in (
        ("in order", SequentialSampler(labels)),
        ("shuffled", RandomSampler(labels)),
        ("weighted", WeightedRandomSampler(weights, 100)),
    ):
        share = sum(labels[i] == 1 for i in drawn)
        print(f"{name}  common {'#' * ((100 - share) // 5):18}  rare {'#' * (share // 5)}")
    # -> in order  common ##################  rare ##
    # -> shuffled  common ##################  rare ##
    # -> weighted  common ...
    print(sorted(SubsetRandomSampler([2, 5, 7])))  # -> [2, 5, 7]
    print(list(BatchSampler(range(5), 2, drop_last=True)))  # -> [[0, 1], [2, 3]]

    # One of our own: texts of about one length side by side, so that a batch needs little padding.
    class ByLength(Sampler):
        def __init__(self, texts):
            self.texts = texts

        def __iter__(self):
            return iter(sorted(range(len(self.texts)), key=lambda i: len(self.texts[i])))

        def __len__(self):
            return len(self.texts)

    texts = ["to", "whether", "be", "nobler"]
    print([[texts[i] for i in batch] for batch in BatchSampler(ByLength(texts), 2, False)])
    # -> [['to', 'be'], ['nobler', 'whether']]

    # All three parts together in one line, which step 79v makes a class of. The digits are sorted
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
