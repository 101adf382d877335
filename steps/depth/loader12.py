"""Step loader12: DataLoader: options that exclude each other

With a sampler and shuffle=True there are two orders. Step loader11's loader uses the sampler and
ignores shuffle. A program that sorts its items by length, and asks for shuffling, gets no shuffling
and no error: training works, only not so well.

    sampler and shuffle                  two orders
    batch_sampler and any of four        the batches are there already
    batch_size=None and drop_last        there is no last batch

Such requests are refused when the loader is made, not in the middle of an epoch. The reasons stand
in a table of conditions and messages, so one `raise` serves all.

The trap is the default. `batch_size=1` may have been written, or not. The loader cannot know, and
must let DataLoader(data, 1, batch_sampler=mine) pass.

`DataLoader[int]` is for those who write types.

(PyTorch's loader refuses the same.)

Changed: DataLoader.
Try: leave out the line of sampler and shuffle. Which of the two wins?
"""

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import GenericAlias

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
    Raises ValueError for options that exclude each other.
    """

    __class_getitem__ = classmethod(GenericAlias)

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
        whole = (batch_size, bool(shuffle), sampler, drop_last)
        for wrong, reason in (
            (sampler is not None and shuffle, "sampler option is mutually exclusive with shuffle"),
            (
                batch_sampler is not None and whole != (1, False, None, False),
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                "and drop_last",
            ),
            (batch_size is None and drop_last, "batch_size=None has no last batch to drop"),
        ):
            if wrong:
                raise ValueError(f"DataLoader: {reason}")
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
    from tinytorch.ops.creation import arange
    from tinytorch.utils.data.dataset import TensorDataset

    data = TensorDataset(arange(5))

    for wrong in (
        {"sampler": [4, 3], "shuffle": True},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_sampler": [[0]], "shuffle": True},
        {"batch_sampler": [[0]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
    ):
        try:
            DataLoader(data, **wrong)
        except ValueError as error:
            print(", ".join(wrong) + ":", str(error).partition(": ")[2].partition(",")[0])
    # -> sampler, shuffle: sampler option is mutually exclusive with shuffle
    # -> batch_sampler, batch_size: batch_sampler option is mutually exclusive with batch_size
    # -> batch_sampler, shuffle: batch_sampler option is mutually exclusive with batch_size
    # -> batch_sampler, drop_last: batch_sampler option is mutually exclusive with batch_size
    # -> batch_size, drop_last: batch_size=None has no last batch to drop

    # These have one meaning.
    print([x.tolist() for (x,) in DataLoader(data, 1, batch_sampler=[[4, 3]])])  # -> [[4, 3]]
    print(
        [x.tolist() for (x,) in DataLoader(data, 2, sampler=[4, 3], shuffle=False)]
    )  # -> [[4, 3]]
    print(DataLoader[int])  # -> __main__.DataLoader[int]
