"""Step dataset06: Splitting a dataset: Subset and random_split

A network is tested with items that it has not seen. The first idea is to put the last fifth aside:
data[:80], data[80:]. Files are often sorted by class. Then the test consists of classes that the
network has never seen: in the demo, all digits 8 and 9 are in the test.

So the numbers are shuffled first, and then cut:

    order = randperm(10)       7 2 9 0 4 1 8 3 | 6 5
                               training        | test

Nothing is copied: a Subset is the dataset together with a list of numbers. No item is in both
parts, as each number is in the permutation once. The lengths are given as numbers or as fractions.
What rounding down leaves over goes to the first parts.

The trap: with another seed, there is another split. A program that loads a trained network and
splits the data again tests it with items that it was trained on. Give the split a generator of its
own with a fixed seed.

(torch.utils.data has Subset and random_split. The split itself is another one, as our random
numbers are others.)

Moved: default_collate and all with it, to tinytorch/utils/data/collate.py. New: Subset,
random_split.
Try: split the digits into thirds. Why is 1797 * (1 / 3) three times not a problem?
"""

import importlib
import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.ops.random import Generator, randperm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Dataset:
    """Items by number. A subclass writes `__getitem__`, and `__len__` if there is an end."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")


class TensorDataset(Dataset):
    """Item i is (t[i] for each tensor).

    Raises:
        AssertionError: where the first dimensions differ.
    """

    def __init__(self, *tensors: Tensor):
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class Subset(Dataset):
    """The items of `dataset` with the numbers `indices`."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset, lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset]:
    """Divides a dataset at random: into `lengths` items each, or into fractions that add up to 1.

    Raises:
        ValueError: where the lengths do not add up to len(dataset).
    """
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for place, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {place} is not between 0 and 1")
        lengths = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - sum(lengths)):  # what rounding down has left over
            lengths[i % len(lengths)] += 1
        for place in (place for place, length in enumerate(lengths) if length == 0):
            warnings.warn(f"Length of split at index {place} is 0.", stacklevel=2)
    if sum(lengths) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(lengths)
    return [Subset(dataset, order[b - n : b]) for n, b in zip(lengths, ends, strict=True)]


if __name__ == "__main__":
    from tinytorch.datasets.digits import load_digits
    from tinytorch.ops.creation import arange

    # The digits in a file that is sorted.
    images, labels = load_digits()
    by_class = labels.argsort()
    digits = TensorDataset(images[by_class], labels[by_class])

    def classes(part):
        return sorted({int(part[i][1]) for i in range(len(part))})

    head, tail = Subset(digits, range(0, 1437)), Subset(digits, range(1437, 1797))
    print(classes(head), classes(tail))  # -> [0, 1, 2, 3, 4, 5, 6, 7] [7, 8, 9]
    learn, test = random_split(digits, [0.8, 0.2], Generator().manual_seed(0))
    print(len(learn), len(test), classes(test))
    # -> 1438 359 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

    # No item is in two parts, and none is in no part.
    data = TensorDataset(arange(10))
    parts = random_split(data, [7, 2, 1], Generator().manual_seed(0))
    came = [[int(part[i][0]) for i in range(len(part))] for part in parts]
    print([len(part) for part in came], sorted(sum(came, [])) == list(range(10)))
    # -> [7, 2, 1] True
    again = random_split(data, [7, 2, 1], Generator().manual_seed(0))
    other = random_split(data, [7, 2, 1], Generator().manual_seed(1))
    print(parts[0].indices == again[0].indices, parts[0].indices == other[0].indices)
    # -> True False

    # What is refused, and what may be a mistake.
    for wrong in ([7, 2], [1.5, -0.5]):
        try:
            random_split(data, wrong)
        except ValueError as error:
            print(error)
    # -> Sum of input lengths does not equal the length of the input dataset!
    # -> Fraction at index 0 is not between 0 and 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        random_split(Subset(data, [0]), [0.9, 0.1])
    print(caught[0].message)  # -> Length of split at index 1 is 0.
