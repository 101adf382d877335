"""Step loader15: DataLoader: pinned memory

If a batch lies in pinned memory, which the system may not move (step backend03), a GPU copies it by
itself, while the program goes on. NumPy's arrays are not pinned. So each
`batch.to("cuda")` first copies the batch to pinned memory, and the program waits for it.

With pin_memory=True the loader pins all tensors of a batch, however deep inside they are. `walk`
(step dataset05) finds them, and leaves the rest as it is:

    {"images": tensor, "path": "a.png"}   ->   {"images": tensor, pinned, "path": "a.png"}

`pin` looks for a method pin_memory, not for a tensor. So a batch of a class of your own is pinned
too, if it has such a method.

Without a GPU there is nothing to pin for. A program that runs on a laptop and on a server should
run on both, so this is a warning and not an error, as in PyTorch. The warning names the line of the
loop (stacklevel=3), not a line of the loader.

The trap: pinned memory is taken away from all other programs. It is made for batches, not for a
dataset of many gigabytes.

(With workers, PyTorch pins in a thread. pin_memory_device has no effect there any more, nor here.)

Changed: BatchIterator, DataLoader. New: pin.
Try: pin_memory on a machine with a GPU, and batch.is_pinned().
"""

import importlib
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import GenericAlias
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.cuda.backend import is_available
from tinytorch.ops.random import Generator
from tinytorch.utils.data.collate import default_collate, default_convert, walk
from tinytorch.utils.data.dataset import Dataset, IterableDataset, collated, items
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def pin(value: Any) -> Any:
    """A tensor in pinned memory, from where a GPU fetches it by itself."""
    return value.pin_memory() if hasattr(value, "pin_memory") else value


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
        self.pinned = loader.pin_memory and is_available()
        if loader.pin_memory and not self.pinned:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, "
                "then device pinned memory won't be used.",
                stacklevel=3,
            )
        self.fetch = loader.make_fetch()(loader.dataset)

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return self.delivered(self.fetch(next(self.tasks)))

    def delivered(self, batch: Any) -> Any:
        return walk(pin, batch) if self.pinned else batch

    def __len__(self) -> int:
        return len(self.sampler)


class DataLoader:
    """Iterates over batches of a dataset: `for x, y in DataLoader(dataset, 64, shuffle=True)`.

    Args:
        batch_size: items of a batch; None gives the items themselves.
        shuffle: a new random order in each epoch; or a `sampler` of your own, or a `batch_sampler`.
        collate_fn: makes a batch from a list of items.
        pin_memory: puts batches where a GPU fetches them faster; warns where there is no GPU.
        drop_last: leaves out a last batch that is shorter.
        generator: draws the order.
        pin_memory_device: has no effect, as in PyTorch, which has given it up.
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
        pin_memory: bool = False,
        drop_last: bool = False,
        generator: Generator | None = None,
        *,
        pin_memory_device: str = "",
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
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
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
    from tinytorch.ops.creation import arange
    from tinytorch.utils.data.dataset import TensorDataset

    data = TensorDataset(arange(4))
    loader = DataLoader(data, 2, pin_memory=True)

    # Without a GPU: a warning, and the batches as they are. (The demo says itself whether there is
    # one, to be the same on each machine.)
    real, is_available = is_available, lambda: False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print([x.tolist() for (x,) in loader])  # -> [[0, 1], [2, 3]]
    print(caught[0].message)
    # -> 'pin_memory' argument is set as true but no accelerator is found, then device ...
    print("it names the demo's line:", caught[0].filename == __file__)
    # -> it names the demo's line: True

    # With one: what has the method is pinned, wherever it is.
    class Batch:
        def pin_memory(self):
            return "pinned"

    is_available = lambda: True  # noqa: E731
    data = [{"a": [Batch(), 7], "b": "text"}]
    (pinned,) = DataLoader(data, None, collate_fn=dict, pin_memory=True)
    print(pinned)  # -> {'a': ['pinned', 7], 'b': 'text'}
    is_available = real
    print("a GPU is here:", is_available())  # -> ...
