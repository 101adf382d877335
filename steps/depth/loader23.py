"""Step loader23: Batches out of order: in_order=False

Taking the batches in turn keeps their order, but all wait for the slowest. One item in the demo
takes half a second. It is the first, so the loop waits that long, although the other worker's
batches are ready.

With in_order=False, the loop takes any batch that is ready. `wait` of multiprocessing looks at
several pipes at once and returns those that have something to read. Among these, the first in turn
is taken, so that no worker is forgotten:

    owed      0 1 0 1           sent: {1}      ->  worker 1, and owed becomes  0 0 1

Each worker still answers its own tasks in order. So `owed` may lose an entry in the middle: the
number says which worker owes a batch, not which batch.

The trap: no two runs are the same any more. Which batch comes first depends on what else the
computer does. For training that may not matter; for a list of predictions it does.

(PyTorch's loader has in_order too. Its default is True, as here.)

Changed: WorkerIterator, DataLoader, Slow. New: WorkerIterator.ready.
Try: two late items, of one worker and of both.
"""

import contextlib
import importlib
import itertools
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
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


leaving: list[tuple] = []  # the arguments of close() for epochs that are over: run at the next one


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
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has gone
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
        self.workers, self.in_order = [], loader.in_order
        while leaving:  # they have ended long ago
            close(*leaving.pop())

        def make_worker(number: int) -> Worker:
            return Worker(get_context(), loader.dataset, loader.make_fetch())

        self.close = weakref.finalize(self, close, self.workers)
        self.begin(make_worker)

    def begin(self, make_worker: Callable[[int], Worker]) -> None:
        """Begins an epoch: each worker gets its first tasks while the next one is being started."""
        first = list(itertools.islice(self.tasks, self.count * self.ahead))
        for number in range(self.count):
            self.workers.append(make_worker(number))
            for task in first[number :: self.count]:
                self.workers[number].ask(task)
        # Which worker owes us the next batch, the one after it, ...
        self.owed = deque(place % self.count for place in range(len(first)))

    def __next__(self) -> Any:
        if self.owed:
            number = self.owed[0] if self.in_order else self.ready()
            self.owed.remove(number)
            value = self.workers[number].answer()
            for task in itertools.islice(self.tasks, 1):
                self.workers[number].ask(task)
                self.owed.append(number)
            if number not in self.owed:
                self.workers[number].ask(None)  # it may go, while the others still work
            return self.delivered(value)
        if self.close.alive:
            for worker in self.workers:  # some had no task at all
                worker.ask(None)
            leaving.append(self.close.detach()[2])  # from now on another thread may close them
        raise StopIteration

    def ready(self) -> int:
        """A worker that has something for us: the first in turn of those that have."""
        sent = wait([self.workers[n].connection for n in set(self.owed)])
        return next((n for n in self.owed if self.workers[n].connection in sent), self.owed[0])


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
        in_order: False takes each batch as soon as it is ready.
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
        in_order: bool = True,
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
        self.generator, self.in_order = generator, in_order

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
    """Items that take a millisecond each; the item `late` takes half a second."""

    def __init__(self, n: int, late: int | None = None):
        self.n, self.late = n, late

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        time.sleep(0.5 if index == self.late else 0.001)
        return np.full((28, 28), index, np.float32), index


if __name__ == "__main__":
    times = {}
    for in_order in (True, False):
        start = time.perf_counter()
        batches = iter(DataLoader(Slow(8, 0), num_workers=2, in_order=in_order))
        first = next(batches)[1].item()
        times[in_order] = time.perf_counter() - start
        rest = [numbers.item() for _, numbers in batches]
        print(f"first {first} after {times[in_order]:.2f} s, and all:", sorted([first, *rest]))
    # -> first 0 after ... s, and all: [0, 1, 2, 3, 4, 5, 6, 7]
    # -> first 1 after ... s, and all: [0, 1, 2, 3, 4, 5, 6, 7]
    print("sooner:", times[False] < times[True])  # -> sooner: True
