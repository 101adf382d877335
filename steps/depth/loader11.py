"""Step loader11: DataLoader: samplers and collate_fn

Step loader10's loader can do one thing: batches of one size, collated in one way. Pictures of
different sizes cannot be collated, and it has no place for a function of your own. Each part that
was divided in step dataset02 can be chosen now:

    DataLoader(data, 64)                      batches of 64, in the order of the data
    DataLoader(data, 64, shuffle=True)        ... in a new order in each epoch
    DataLoader(data, 64, sampler=mine)        ... in the order of a sampler of your own
    DataLoader(data, batch_sampler=mine)      you say which items go together
    DataLoader(data, 64, collate_fn=mine)     you say how items become a batch
    DataLoader(data, None)                    no batches: item after item

The loader needs two things for all of these. index_sampler gives the tasks: a task is a list of
indices, or one index where nothing is batched. And collate_fn makes a batch of the items; it gets a
list of items, or the one item.

The trap: a dataset's own __getbatch__ (step dataset07) is a way to do what default_collate does.
With another collate_fn the loader must not use it.

(torch.utils.data.DataLoader has the same arguments.)

Changed: DataLoader.
Try: a batch_sampler that puts each item into two batches.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.ops.random import Generator
from tinytorch.utils.data.collate import default_collate, default_convert
from tinytorch.utils.data.dataset import Dataset, collated, items
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class DataLoader:
    """Iterates over batches of a dataset: `for x, y in DataLoader(dataset, 64, shuffle=True)`.

    Args:
        batch_size: items of a batch; None gives the items themselves.
        shuffle: a new random order in each epoch; or a `sampler` of your own, or a `batch_sampler`.
        collate_fn: makes a batch from a list of items.
        drop_last: leaves out a last batch that is shorter.
        generator: draws the order.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable | None = None,
        batch_sampler: Iterable | None = None,
        collate_fn: Callable | None = None,
        drop_last: bool = False,
        generator: Generator | None = None,
    ):
        if sampler is None:
            shuffled = partial(RandomSampler, generator=generator)
            sampler = (shuffled if shuffle else SequentialSampler)(dataset)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.sampler, self.batch_sampler = dataset, sampler, batch_sampler
        self.batch_size, self.drop_last = batch_size, drop_last
        usual = default_convert if batch_sampler is None else default_collate
        self.collate_fn = collate_fn or usual
        self.generator = generator

    @property
    def index_sampler(self) -> Iterable:
        """What gives the tasks: lists of numbers, or where nothing is batched numbers."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __iter__(self) -> Iterator:
        batched = self.batch_sampler is not None
        for task in self.index_sampler:
            if batched and self.collate_fn is default_collate:
                yield collated(self.dataset, task)
            else:
                samples = items(self.dataset, task) if batched else self.dataset[task]
                yield self.collate_fn(samples)

    def __len__(self) -> int:
        return len(self.index_sampler)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.creation import arange, ones
    from tinytorch.ops.joining import constant_pad, stack
    from tinytorch.utils.data.dataset import TensorDataset

    # Pictures of different sizes, each with its label and its file.
    class Files(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return ones(index + 1, index + 1), 7 + index, f"folder/{index}.png"

    try:
        list(DataLoader(Files(), 2))
    except RuntimeError as error:
        print(str(error).rpartition(", but ")[2])  # -> got [1, 1] and [2, 2]

    def padded(batch):  # [(image, label, path), ...]
        images, labels, paths = zip(*batch, strict=True)
        n = max(len(image) for image in images)
        images = [constant_pad(image, (0, n - len(image)) * 2) for image in images]
        return stack(images), tensor(labels), paths

    for images, labels, paths in DataLoader(Files(), 2, collate_fn=padded):
        print(images.tolist())  # -> [[[1.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]]
        print(labels.tolist(), paths)  # -> [7, 8] ('folder/0.png', 'folder/1.png')

    # Which items, and in which order.
    data = TensorDataset(arange(5), arange(5) * 10)

    def batches(**options):
        return [x.tolist() for x, _ in DataLoader(data, **options)]

    print(batches(batch_size=2, drop_last=True))  # -> [[0, 1], [2, 3]]
    print(batches(batch_size=2, sampler=[4, 0, 4]))  # -> [[4, 0], [4]]
    print(batches(batch_sampler=[[4], [1, 1]]))  # -> [[4], [1, 1]]
    print(batches(batch_size=None, sampler=[3, 0]))  # -> [3, 0]
    orders = [
        batches(batch_size=5, shuffle=True, generator=Generator().manual_seed(1)) for _ in range(2)
    ]
    print(orders[0] == orders[1], len(DataLoader(data, 2, drop_last=True)))  # -> True 2
