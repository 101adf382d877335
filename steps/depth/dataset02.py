"""Step dataset02: Dataset and TensorDataset in the package's dress

Step 47a built them: a data set has __getitem__ and __len__, and says nothing about batches. Here
Dataset is a base class that refuses what is missing, and TensorDataset checks that its tensors have
one length.

A list is a dataset too. The trap: Python can loop over any object that has __getitem__. It asks for
the items 0, 1, 2, ... until there is an IndexError. A tensor raises one past its end. A dataset
that computes its items may not, and a loop over it never ends.

Moved: step dataset01, to tinytorch/threads.py. New: Dataset, TensorDataset.
Try: let Stars raise an IndexError from item 1000 on, and count what `for item in stars` gives.
"""

import importlib
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor

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


if __name__ == "__main__":
    import sys

    from tinytorch.core.tensor import from_numpy
    from tinytorch.ops.creation import arange

    print(f"a million pictures: {1_000_000 * 64 * 64 * 4 / 2**30:.0f} GiB")
    # -> a million pictures: 15 GiB

    class Stars(Dataset):
        """Pictures of 0 to 9 stars, and how many they are."""

        def __len__(self):
            return 1_000_000

        def __getitem__(self, index):
            rng = np.random.default_rng(index)  # item i is the same each time
            picture = np.zeros(64 * 64, np.float32)
            picture[rng.choice(64 * 64, index % 10, replace=False)] = 1
            return from_numpy(picture.reshape(64, 64)), index % 10

    stars = Stars()
    picture, number = stars[123_456]
    print(len(stars), picture.shape, picture.sum().item(), number)
    # -> 1000000 tinytorch.Size([64, 64]) 6.0 6
    print("the dataset itself:", sys.getsizeof(stars), "bytes")  # -> the dataset itself: ... bytes

    # A dataset of tensors.
    data = TensorDataset(arange(10), arange(10) * 10)
    print(len(data), [t.item() for t in data[7]])  # -> 10 [7, 70]
    try:
        TensorDataset(arange(10), arange(9))
    except AssertionError as error:
        print(error)  # -> Size mismatch between tensors

    # Python's loop over what has numbers ends with an IndexError. Stars has items beyond its end.
    print("items of a loop:", sum(1 for _ in data))  # -> items of a loop: 10
    print("stars of item 1000003:", stars[1_000_003][1])  # -> stars of item 1000003: 3

    # A dataset without items says so.
    class Nothing(Dataset):
        pass

    try:
        Nothing()[0]
    except NotImplementedError as error:
        print(error)  # -> Nothing has no __getitem__
