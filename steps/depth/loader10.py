"""Step loader10: DataLoader in the package's dress

Steps 47b and 77a built the loader. Here its __iter__ is a generator function: it stops at `yield`,
and goes on there when the loop wants the next batch. So one batch is in memory at a time, and a
loop that is left early has made no batch in vain.

The loader itself has no state. Each `iter(loader)` begins an epoch of its own, with an order of its
own, so two loops over one loader do not disturb each other.

The trap: with shuffle=True, two loops over one loader see two orders. To look at the batches and
then to train with them, keep them in a list.

New: DataLoader. Moved: the samplers, to tinytorch/utils/data/sampler.py.
Try: print in __getitem__ of a dataset, and see when each item is made.
"""

import importlib
from collections.abc import Iterator

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.utils.data.dataset import Dataset, collated
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class DataLoader:
    """Iterates over batches of a dataset: `for x, y in DataLoader(dataset, 64, shuffle=True)`.

    Args:
        batch_size: items of a batch.
        shuffle: a new random order in each epoch.
    """

    def __init__(self, dataset: Dataset, batch_size: int = 1, shuffle: bool | None = None):
        sampler = (RandomSampler if shuffle else SequentialSampler)(dataset)
        self.dataset, self.sampler = dataset, sampler
        self.batch_sampler = BatchSampler(sampler, batch_size, False)
        self.batch_size = batch_size

    def __iter__(self) -> Iterator:
        for numbers in self.batch_sampler:
            yield collated(self.dataset, numbers)

    def __len__(self) -> int:
        return len(self.batch_sampler)


if __name__ == "__main__":
    from tinytorch.ops.creation import arange
    from tinytorch.ops.random import manual_seed
    from tinytorch.utils.data.dataset import TensorDataset

    data = TensorDataset(arange(5), arange(5) * 10)

    # What the loops of a program have said so far.
    for numbers in BatchSampler(SequentialSampler(data), 2, False):
        x, y = collated(data, numbers)
        print(x.tolist(), y.tolist())
    # -> [0, 1] [0, 10]
    # -> [2, 3] [20, 30]
    # -> [4] [40]

    # The same in a line.
    loader = DataLoader(data, batch_size=2)
    print(len(loader), [x.tolist() for x, _ in loader])  # -> 3 [[0, 1], [2, 3], [4]]

    # Two loops over one loader.
    print([(int(a[0]), int(b[0])) for a, _ in loader for b, _ in loader if a[0] >= b[0]])
    # -> [(0, 0), (2, 0), (2, 2), (4, 0), (4, 2), (4, 4)]

    # A new order in each epoch.
    manual_seed(0)
    shuffled = DataLoader(TensorDataset(arange(100)), 100, shuffle=True)
    first, second = [x.tolist() for _ in range(2) for (x,) in shuffled]
    print(first != second, sorted(first) == sorted(second))  # -> True True

    # A batch is made when it is asked for.
    class Counting(TensorDataset):
        made = 0

        def __getitem__(self, index):
            self.made += 1
            return super().__getitem__(index)

    counting = Counting(arange(5))
    for _ in DataLoader(counting, 2):
        break
    print("items made:", counting.made)  # -> items made: 2
