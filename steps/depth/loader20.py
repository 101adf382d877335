"""Step loader20: Prefetching: tasks in advance

A worker of step loader19 has one task. When it has answered, it waits until the loop takes the
answer. Loops do not run evenly: after every tenth batch the program may write a file, or run a
test. In this time a worker makes one batch, and then nothing. Afterwards the loop waits for the
workers.

So each worker gets `prefetch_factor` tasks in advance, two by default:

    loop        batch  batch  ... a test ........  batch  batch  batch  batch
    1 ahead     make                     (idle)    make   make   make
    5 ahead     make   make   make   make   make   (all there)

The tasks wait in the worker's pipe, and its answers in the pipe back. They have to fit: an answer
in a pipe is short (step loader17), and 50 of them do not fill one. So a worker never has more than
50.

The trap is memory: 8 workers, 4 ahead, are 32 batches that exist at one time. And more ahead does
not make a worker faster. If the loop waits for every batch, it takes more workers.

(PyTorch's prefetch_factor is the same, also 2.)

Changed: WorkerIterator, DataLoader.
Try: prefetch_factor=1, 2, 5, 10. From which number on is there no gain?
"""

import importlib
import itertools
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from types import GenericAlias
from typing import Any

import numpy as np

from tinytorch.cuda.backend import is_available
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.random import Generator
from tinytorch.threads import load_threadpoolctl, set_num_threads
from tinytorch.utils.data.collate import default_collate, default_convert, walk
from tinytorch.utils.data.dataset import Dataset, IterableDataset, collated, items
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from tinytorch.utils.data.transfer import receive, send

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def work(
    connection: Connection, dataset: Any, make_fetch: Callable[[Any], Callable[[Any], Any]]
) -> None:
    """A worker's life: it gets numbers of items, and sends back the batch. A None ends it."""
    if load_threadpoolctl() is not None:
        set_num_threads(1)  # the processes share the cores: one for the products of each
    fetch = make_fetch(dataset)
    for task in iter(connection.recv, None):
        send(connection, fetch(task))


class Worker:
    """One process, and our end of the pipe to it."""

    def __init__(self, context: BaseContext, *args: Any):
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, *args), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, command: Any) -> None:
        self.connection.send(command)

    def answer(self) -> Any:
        return receive(self.connection)


def close(workers: list[Worker]) -> None:
    """Ends all processes, after the tasks that they still have."""
    for worker in workers:
        worker.ask(None)
    for worker in workers:
        worker.process.join()
        worker.connection.close()


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
        self.start(loader)

    def start(self, loader: "DataLoader") -> None:
        self.fetch = loader.make_fetch()(loader.dataset)

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return self.delivered(self.fetch(next(self.tasks)))

    def delivered(self, batch: Any) -> Any:
        return walk(pin, batch) if self.pinned else batch

    def __len__(self) -> int:
        return len(self.sampler)


class WorkerIterator(BatchIterator):
    """Batches from other processes, each `ahead` tasks ahead: at most 50 answers fill no pipe."""

    def start(self, loader: "DataLoader") -> None:
        self.count, self.ahead = loader.num_workers, min(loader.prefetch_factor, 50)
        self.workers = [
            Worker(get_context(), loader.dataset, loader.make_fetch()) for _ in range(self.count)
        ]
        first = list(itertools.islice(self.tasks, self.count * self.ahead))
        for number in range(self.count):
            for task in first[number :: self.count]:
                self.workers[number].ask(task)
        # Which worker owes us the next batch, the one after it, ...
        self.owed = deque(place % self.count for place in range(len(first)))

    def __next__(self) -> Any:
        if self.owed:
            number = self.owed.popleft()
            value = self.workers[number].answer()
            for task in itertools.islice(self.tasks, 1):
                self.workers[number].ask(task)
                self.owed.append(number)
            return self.delivered(value)
        close(self.workers)
        self.workers.clear()
        raise StopIteration


class DataLoader:
    """Iterates over batches of a dataset: `for x, y in DataLoader(dataset, 64, shuffle=True)`.

    Args:
        batch_size: items of a batch; None gives the items themselves.
        shuffle: a new random order in each epoch; or a `sampler` of your own, or a `batch_sampler`.
        num_workers: processes that make batches, `prefetch_factor` (2) each ahead; 0: made here.
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
        num_workers: int = 0,
        collate_fn: Callable | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        pin_memory_device: str = "",
    ):
        if not isinstance(generator, Generator | None):
            raise TypeError(f"generator must be a Generator, not {type(generator).__name__}")
        num_workers = as_integer(num_workers)
        prefetch_factor = None if prefetch_factor is None else as_integer(prefetch_factor)
        stream = isinstance(dataset, IterableDataset)
        own_order = sampler is not None or batch_sampler is not None
        whole = (batch_size, bool(shuffle), sampler, drop_last)
        for wrong, reason in (
            (num_workers < 0, "num_workers option should be non-negative"),
            (not num_workers and prefetch_factor is not None, "prefetch_factor needs num_workers"),
            (prefetch_factor is not None and prefetch_factor < 1, "prefetch_factor must be >= 1"),
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
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.generator = generator

    @property
    def index_sampler(self) -> Iterable:
        """What gives the tasks: lists of numbers, or where nothing is batched numbers."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def make_fetch(self) -> Callable[[Any], Callable[[Any], Any]]:
        """What makes a fetcher from the dataset, here or in a worker."""
        return partial(fetcher, self.collate_fn, self.batch_sampler is not None, self.drop_last)

    def __iter__(self) -> Iterator:
        return WorkerIterator(self) if self.num_workers else BatchIterator(self)

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            whole, rest = divmod(len(self.dataset), self.batch_size or 1)
            return whole + (rest > 0 and not self.drop_last)
        return len(self.index_sampler)


class Slow(Dataset):
    """Items that take a millisecond each."""

    def __init__(self, n: int):
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        time.sleep(0.001)
        return np.full((28, 28), index, np.float32), index


if __name__ == "__main__":
    # A loop that stops for 25 ms after each ten batches. A worker makes a batch in 4 ms.
    def seconds(ahead):
        loader = DataLoader(Slow(320), 4, num_workers=2, prefetch_factor=ahead)
        batches, numbers = iter(loader), []
        start = time.perf_counter()
        for _, batch in batches:
            numbers += batch.tolist()
            if len(numbers) % 40 == 0:
                time.sleep(0.025)
        print(f"{ahead} ahead, in order:", numbers == list(range(320)))
        return time.perf_counter() - start

    one, ten = seconds(1), seconds(10)
    # -> 1 ahead, in order: True
    # -> 10 ahead, in order: True
    print(f"{one:.2f} s, {ten:.2f} s")  # -> ...
    print("faster:", ten < one)  # -> faster: True

    # How far ahead, at most.
    loader = DataLoader(Slow(200), num_workers=2)
    print(loader.prefetch_factor, len(iter(loader).owed))  # -> 2 4
    loader.prefetch_factor = 1000
    print(len(iter(loader).owed))  # -> 100

    # What is refused.
    for wrong in (
        {"prefetch_factor": 2},
        {"num_workers": 2, "prefetch_factor": 0},
        {"num_workers": 2.0},
        {"generator": 3},
    ):
        try:
            DataLoader(Slow(4), **wrong)
        except (ValueError, TypeError) as error:
            print(error)
    # -> DataLoader: prefetch_factor needs num_workers
    # -> DataLoader: prefetch_factor must be >= 1
    # -> argument must be int, not float
    # -> generator must be a Generator, not int
