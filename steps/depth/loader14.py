"""Step loader14: DataLoader: batches of a stream

A stream (step dataset09) has no numbers and no length, so no sampler can deal out its items. Step
loader13's loader asks it for len() and fails. What a stream needs is simpler: the next 64.

To keep one loop for both, a stream gets tasks too, an endless row of [None] * 64. Only their length
counts:

    tasks     [None, None]   [None, None]   [None, None]   ...
    stream    to be, or not  that, is       the

`islice` takes up to as many items from the stream as the task is long. A short batch is the last
one, and no items at all are the end. The stream ends the epoch, by StopIteration, not the sampler.

An order, a sampler or a batch_sampler for a stream makes no sense and is refused. (A stream can be
shuffled a little: keep a thousand items in a list, and give out a random one of them each time.)

The trap is the length. A stream that knows it may have a __len__, and then len(loader) counts
batches; but what comes is what the stream gives, whatever it has said.

(torch.utils.data.DataLoader does the same.)

Changed: fetcher, DataLoader.
Try: a stream without end, and itertools.islice(loader, 3).
"""

import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import GenericAlias
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.ops.random import Generator
from tinytorch.utils.data.collate import default_collate, default_convert
from tinytorch.utils.data.dataset import Dataset, IterableDataset, collated, items
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def fetcher(collate: Callable, batched: bool, drop_last: bool, dataset: Any) -> Callable:
    """A function from a task to a batch. A task is a list of numbers, or one number without
    batches; a stream only looks how many there are. StopIteration where it has no more items."""
    if isinstance(dataset, IterableDataset):
        stream = iter(dataset)

        def take(task: Any) -> Any:
            if not batched:
                return collate(next(stream))
            samples = list(itertools.islice(stream, len(task)))
            if not samples or (drop_last and len(samples) < len(task)):
                raise StopIteration
            return collate(samples)

        return take
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
        stream = isinstance(dataset, IterableDataset)
        own_order = sampler is not None or batch_sampler is not None
        whole = (batch_size, bool(shuffle), sampler, drop_last)
        for wrong, reason in (
            (stream and shuffle, "an IterableDataset cannot be shuffled: it has its own order"),
            (stream and own_order, "an IterableDataset takes no sampler"),
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
        if stream:
            sampler = itertools.repeat(None)  # endless: only the stream knows its end
        elif sampler is None:
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
        return partial(fetcher, self.collate_fn, self.batch_sampler is not None, self.drop_last)

    def __iter__(self) -> Iterator:
        return BatchIterator(self)

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            whole, rest = divmod(len(self.dataset), self.batch_size or 1)
            return whole + (rest > 0 and not self.drop_last)
        return len(self.index_sampler)


if __name__ == "__main__":

    class Lines(IterableDataset):
        def __iter__(self):
            return iter(["to be", "or not", "to be,", "that", "is"])

    # What step loader13 would do with it.
    try:
        len(SequentialSampler(Lines()))
    except TypeError as error:
        print(error)  # -> object of type 'Lines' has no len()

    # A stream ends when it ends.
    for batch in DataLoader(Lines(), 3):
        print(batch)
    # -> ['to be', 'or not', 'to be,']
    # -> ['that', 'is']
    print(list(DataLoader(Lines(), 3, drop_last=True)))  # -> [['to be', 'or not', 'to be,']]
    print(list(DataLoader(Lines(), None)))  # -> ['to be', 'or not', 'to be,', 'that', 'is']

    # One that knows its length, and one whose last batch is full.
    class Known(Lines):
        def __len__(self):
            return 5

    print([len(DataLoader(Known(), 3, drop_last=drop)) for drop in (False, True)])  # -> [2, 1]
    print([len(batch) for batch in DataLoader(Known(), 5)])  # -> [5]

    # Lists with numbers are batched as before.
    print([batch.tolist() for batch in DataLoader(range(5), 3)])  # -> [[0, 1, 2], [3, 4]]
    print(list(DataLoader(range(3), 2, collate_fn=sum)), list(DataLoader("abc", None)))
    # -> [1, 2] ['a', 'b', 'c']

    # What is refused.
    for wrong in ({"shuffle": True}, {"sampler": [0]}):
        try:
            DataLoader(Lines(), **wrong)
        except ValueError as error:
            print(error)
    # -> DataLoader: an IterableDataset cannot be shuffled: it has its own order
    # -> DataLoader: an IterableDataset takes no sampler
