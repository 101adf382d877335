"""Step loader13: DataLoader: an error costs one batch

One of a million files cannot be read. Its item raises an error, after ten hours, and the loop ends.
To catch the error and go on does not help: a generator that has raised an error is finished. The
demo's loop gets the first batch, the error, and then StopIteration, though four items are left.

So iter(loader) gives an object of a class, whose __next__ takes a task and makes a batch of it. An
error leaves the function, and the object stays as it was. The task is gone; the next call takes the
task after it:

    batches = iter(loader)
    ...
    try:
        batch = next(batches)
    except OSError:
        continue                  # this batch is lost, and no other

What makes a batch of a task depends on the loader's choices. They are looked at once, by `fetcher`,
which returns a function from a task to a batch. (Step loader18 calls it in other processes.)

The trap is `for`: it cannot go on after an error. It ends, whatever the iterator could do.

(PyTorch's loader does the same.)

Changed: DataLoader.__iter__. New: BatchIterator, fetcher, DataLoader.make_fetch.
Try: let DataLoader.__iter__ say `yield from BatchIterator(self)`. What does the demo's second loop
give after the error?
"""

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import GenericAlias
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.ops.random import Generator
from tinytorch.utils.data.collate import default_collate, default_convert
from tinytorch.utils.data.dataset import Dataset, collated, items
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def fetcher(collate: Callable, batched: bool, dataset: Any) -> Callable:
    """A function from a task to a batch. A task is a list of numbers, or one number without
    batches."""
    if not batched:
        return lambda number: collate(dataset[number])
    if collate is default_collate:
        return lambda numbers: collated(dataset, numbers)
    return lambda numbers: collate(items(dataset, numbers))


class BatchIterator:
    """What iter(loader) gives: the batches of one epoch, each made when it is asked for."""

    def __init__(self, loader: "DataLoader"):
        self.sampler, self.tasks = loader.index_sampler, iter(loader.index_sampler)
        self.fetch = loader.make_fetch()(loader.dataset)

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return self.fetch(next(self.tasks))

    def __len__(self) -> int:
        return len(self.sampler)


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

    def make_fetch(self) -> Callable[[Any], Callable[[Any], Any]]:
        """What makes a fetcher from the dataset."""
        return partial(fetcher, self.collate_fn, self.batch_sampler is not None)

    def __iter__(self) -> Iterator:
        return BatchIterator(self)

    def __len__(self) -> int:
        return len(self.index_sampler)


if __name__ == "__main__":

    class Holes(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            if index == 3:
                raise ValueError("item 3 is not there")
            return index

    def what_comes(batches):
        """Three times the next batch, or what comes instead."""
        came = []
        for _ in range(3):
            try:
                came.append(next(batches).tolist())
            except ValueError as error:
                came.append(str(error))
            except StopIteration:
                came.append("the end")
        return came

    # A generator, as in step loader12, and an object.
    loader = DataLoader(Holes(), 2)
    print(what_comes(collated(loader.dataset, numbers) for numbers in loader.batch_sampler))
    # -> [[0, 1], 'item 3 is not there', 'the end']
    print(what_comes(iter(loader)))  # -> [[0, 1], 'item 3 is not there', [4, 5]]

    # All ways to make a batch, and how many there are.
    for options in ({"batch_size": 2}, {"batch_size": 2, "collate_fn": sum}, {"batch_size": None}):
        batches = iter(DataLoader(Holes(), sampler=[5, 0, 4], **options))
        print(
            len(batches), iter(batches) is batches, [np.array(batch).tolist() for batch in batches]
        )
    # -> 2 True [[5, 0], [4]]
    # -> 2 True [5, 4]
    # -> 3 True [5, 0, 4]
