"""Step dataset03: Collating in the package's dress: tuples and numbers

Step 47b built default_collate, which stacks. Here it takes what an item may be: a column of tensors
is stacked along a new first dimension, a column of numbers becomes a tensor, and a column of tuples
is a table again: the function calls itself.

Items that do not fit are refused: two images of different sizes do not make a batch, and None is
not a number. Such items need a function of your own (step loader11).

The trap: a float of Python has 64 bits, and becomes float64, as in PyTorch. A target that is
compared with the output of a float32 network should be np.float32 or a tensor (step dataset05).

New: default_collate.
Try: collate [data[0]], a batch of one item.
"""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.joining import stack

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def default_collate(batch: Sequence) -> Any:
    """Samples of one kind as a batch: tensors and numbers become one tensor with a new first
    dimension, tuples and lists go part by part.

    Raises:
        TypeError: for other kinds.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch)
    if isinstance(first, (int, float)):
        return tensor(batch, dtype=float64 if isinstance(first, float) else None)
    if isinstance(first, Sequence):
        return [default_collate(column) for column in zip(*batch, strict=True)]
    raise TypeError(f"default_collate: batch must contain tensors or numbers; found {type(first)}")


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
    import time

    from tinytorch.core.tensor import from_numpy
    from tinytorch.datasets.digits import load_digits
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    data = TensorDataset(*load_digits())
    items = [data[i] for i in range(64)]
    images, labels = default_collate(items)
    print(images.shape, labels.shape, labels.dtype.name)
    # -> tinytorch.Size([64, 8, 8]) tinytorch.Size([64]) int64

    # One layer, picture by picture, and with the whole batch.
    weight = randn(64, 256)

    def milliseconds(function):
        start = time.perf_counter()
        for _ in range(20):
            function()
        return (time.perf_counter() - start) * 50

    one_by_one = milliseconds(lambda: [image.reshape(1, 64) @ weight for image, _ in items])
    at_once = milliseconds(lambda: images.reshape(64, 64) @ weight)
    print(f"64 products {one_by_one:.2f} ms, one product {at_once:.2f} ms")  # -> ...
    print("one is faster:", at_once < one_by_one)  # -> one is faster: True

    # Numbers, and tuples in tuples.
    numbers, (names, squares) = default_collate([(3, (True, 9.0)), (4, (False, 16.0))])
    for part in numbers, names, squares:
        print(part.tolist(), part.dtype.name)
    # -> [3, 4] int64
    # -> [True, False] bool
    # -> [9.0, 16.0] float64

    # What does not make a batch.
    for wrong in ([None, None], [from_numpy(np.ones(1)), from_numpy(np.ones(2))]):
        try:
            default_collate(wrong)
        except (TypeError, RuntimeError) as error:
            print(type(error).__name__ + ":", str(error).split("; ")[-1].split(", but ")[-1])
    # -> TypeError: found <class 'NoneType'>
    # -> RuntimeError: got [1] and [2]
