"""Step loader24: Streams and workers: get_worker_info

Each worker has its own copy of the dataset. For data with indices that is right: each task names
its items. A stream has no indices, and each worker begins at its first item. So two workers deliver
all items twice. And when a stream ends, step loader23's worker dies of the StopIteration.

A stream has to find out which part is its own. In a worker, get_worker_info() says which worker
this is, of how many:

    info = get_worker_info()
    for line in itertools.islice(file, info.id, None, info.num_workers):

Here info is None in the main process, where all of the stream is wanted. It lies in `here`, a
dictionary of the process: in another process, there is another one.

The end of a stream is an answer of its own, (END, None). That worker gets no more tasks, and the
loop goes on with the others. A task is now sent as (task,), because the task for one item of a
stream is None, and a plain None ends a worker.

The trap: there is no error if you forget it. The items come several times, and training just seems
to go well.

(torch.utils.data.get_worker_info is the same.)

New: END, WorkerInfo, here, get_worker_info. Changed: work, WorkerIterator.
Try: a stream of 8 items and 3 workers, in batches of 2. Which batches are short?
"""

import contextlib
import importlib
import itertools
import multiprocessing
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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


END = "end"  # what a worker answers when its stream has no more items
leaving: list[tuple] = []  # the arguments of close() for epochs that are over: run at the next one


@dataclass
class WorkerInfo:
    """Which worker a process is: its number, how many there are, its dataset."""

    id: int
    num_workers: int
    dataset: Any


here: dict[str, WorkerInfo] = {}  # in a worker: {"worker": which one this process is}


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a DataLoader, which one it is; None in the main process."""
    return here.get("worker")


def work(
    connection: Connection,
    info: WorkerInfo,
    make_fetch: Callable[[Any], Callable[[Any], Any]],
) -> None:
    """A worker's life: it gets numbers of items, and sends back the batch. A None ends it."""
    here["worker"] = info
    if load_threadpoolctl() is not None:
        set_num_threads(1)  # the processes share the cores: one for the products of each
    fetch = make_fetch(info.dataset)
    for (task,) in iter(connection.recv, None):
        try:
            send(connection, ("batch", fetch(task)))
        except StopIteration:
            send(connection, (END, None))


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
            info = WorkerInfo(number, self.count, loader.dataset)
            return Worker(get_context(), info, loader.make_fetch())

        self.close = weakref.finalize(self, close, self.workers)
        self.begin(make_worker)

    def begin(self, make_worker: Callable[[int], Worker]) -> None:
        """Begins an epoch: each worker gets its first tasks while the next one is being started."""
        first = list(itertools.islice(self.tasks, self.count * self.ahead))
        for number in range(self.count):
            self.workers.append(make_worker(number))
            for task in first[number :: self.count]:
                self.workers[number].ask((task,))
        # Which worker owes us the next batch, the one after it, ...
        self.owed = deque(place % self.count for place in range(len(first)))

    def __next__(self) -> Any:
        while self.owed:
            number = self.owed[0] if self.in_order else self.ready()
            self.owed.remove(number)
            kind, value = self.workers[number].answer()
            for task in itertools.islice(self.tasks, int(kind != END)):
                self.workers[number].ask((task,))
                self.owed.append(number)
            if number not in self.owed:
                self.workers[number].ask(None)  # it may go, while the others still work
            if kind != END:
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


class Counted(IterableDataset):
    """0 to 7 as a stream; where it is `shared`, each worker takes its part of it."""

    shared = True

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info() if self.shared else None
        return iter(range(info.id, 8, info.num_workers) if info else range(8))


if __name__ == "__main__":
    # Each worker delivers all of it, unless it asks which worker it is.
    for shared in (False, True):
        stream = Counted()
        stream.shared = shared
        batches = DataLoader(stream, 4, num_workers=2)
        print([batch.tolist() for batch in batches])
    # -> [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]
    # -> [[0, 2, 4, 6], [1, 3, 5, 7]]
    print(list(DataLoader(Counted(), None)), get_worker_info())  # -> [0, 1, 2, 3, 4, 5, 6, 7] None
    print(list(DataLoader(Counted(), None, num_workers=2)))  # -> [0, 1, 2, 3, 4, 5, 6, 7]

    # Worker 1 of 3, played in this process.
    ours, theirs = multiprocessing.Pipe()
    for command in (([None] * 2,), ([None] * 2,), ([None] * 2,), None):
        ours.send(command)
    stream = Counted()
    work(theirs, WorkerInfo(1, 3, stream), DataLoader(stream, 2).make_fetch())
    for _ in range(3):
        print(receive(ours))
    # -> ('batch', ...
    # -> ('batch', ...
    # -> ('end', None)
    print(get_worker_info().id, "of", get_worker_info().num_workers)  # -> 1 of 3
    here.clear()  # we are the main process again
