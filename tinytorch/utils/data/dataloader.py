"""The DataLoader: batches of a dataset, in any order, made here or by other processes."""

import contextlib
import itertools
import os
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from types import GenericAlias
from typing import Any

from tinytorch.cuda.backend import is_available
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.random import Generator
from tinytorch.utils.data.collate import default_collate, default_convert, walk
from tinytorch.utils.data.dataset import Dataset, IterableDataset, collated, items
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, new_seed
from tinytorch.utils.data.worker import (
    END,
    Worker,
    WorkerInfo,
    again,
    close,
    leaving,
)


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
        self.seed = new_seed(loader.generator)  # also where it is not needed: the order stays
        self.pinned = loader.pin_memory and is_available()
        if loader.pin_memory and not self.pinned:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, "
                "then device pinned memory won't be used.",
                stacklevel=3,
            )
        self.start(loader)

    def start(self, loader: "DataLoader") -> None:
        if loader.timeout:
            raise AssertionError("without workers there is nothing to wait for: timeout must be 0")
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
        context = loader.multiprocessing_context or get_context()
        self.count, self.ahead = loader.num_workers, min(loader.prefetch_factor, 50)
        self.timeout, self.in_order = loader.timeout or None, loader.in_order
        self.persistent = loader.persistent_workers
        with contextlib.suppress(IndexError):  # another thread may take the last ones
            while leaving:  # they have ended long ago
                close(*leaving.pop())

        def make_worker(number: int) -> Worker:
            info = WorkerInfo(number, self.count, self.seed + number, loader.dataset)
            return Worker(context, info, loader.make_fetch(), loader.worker_init_fn)

        self.workers, self.epoch = [], 0
        self.close = weakref.finalize(self, close, self.workers, os.getpid())
        self.begin(make_worker)

    def begin(self, make_worker: Callable[[int], Worker] | None = None) -> None:
        """Begins an epoch: each worker gets its first tasks while the next one is being started."""
        self.epoch += 1
        for worker in self.workers:
            while worker.connection.poll():
                worker.answer(None)  # what is of an epoch before would fill the pipe some day
        first = list(itertools.islice(self.tasks, self.count * self.ahead))
        for number in range(self.count):
            if make_worker is not None:
                self.workers.append(make_worker(number))
            for task in first[number :: self.count]:
                self.workers[number].ask((self.epoch, task))
        # Which worker owes us the next batch, the one after it, ...
        self.owed = deque(place % self.count for place in range(len(first)))

    @contextlib.contextmanager
    def whole_messages(self) -> Iterator[None]:
        """Ends all workers where an error, or Ctrl-C, may have come in the middle of a message."""
        try:
            yield
        except BaseException:
            for worker in self.workers:
                worker.process.kill()
            self.close()
            raise

    def __next__(self) -> Any:
        with self.whole_messages():
            kind, value = self.take()
        if kind == "error":
            del self  # a traceback that is kept would keep it, and with it the processes
            raise again(*value)
        if kind != END:
            return self.delivered(value)
        if not self.persistent and self.close.alive:
            for worker in self.workers:  # some had no task at all
                worker.ask(None)
            leaving.append(self.close.detach()[2])  # from now on another thread may close them
        raise StopIteration

    def take(self) -> tuple[str, Any]:
        """The next answer. Its worker gets another task instead."""
        while self.owed:
            number = self.owed[0] if self.in_order else self.ready()
            self.owed.remove(number)
            kind, value = self.answer(self.workers[number])
            for task in itertools.islice(self.tasks, int(kind != END)):
                self.workers[number].ask((self.epoch, task))
                self.owed.append(number)
            if number not in self.owed and not self.persistent:
                self.workers[number].ask(None)  # it may go, while the others still work
            if kind != END:
                return kind, value
        return END, None

    def answer(self, worker: Worker) -> tuple[str, Any]:
        """What the worker answers in this epoch: not what a loop that was left did not take."""
        while (answer := worker.answer(self.timeout))[0] != self.epoch:
            continue
        return answer[1:]

    def ready(self) -> int:
        """A worker that has something for us: the first in turn of those that have."""
        sent = wait([self.workers[n].connection for n in set(self.owed)], self.timeout)
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
        timeout: seconds after which a worker that does not answer is an error; 0: never.
        worker_init_fn: called with the number of the worker in each, before it begins.
        multiprocessing_context: "fork", "spawn", "forkserver", or a context.
        generator: draws the order and the workers' seeds.
        persistent_workers: keeps the processes from one epoch to the next.
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
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
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
            (timeout < 0, "timeout option should be non-negative"),
            (not num_workers and prefetch_factor is not None, "prefetch_factor needs num_workers"),
            (prefetch_factor is not None and prefetch_factor < 1, "prefetch_factor must be >= 1"),
            (not num_workers and persistent_workers, "persistent_workers needs num_workers > 0"),
            (not num_workers and multiprocessing_context, "a context needs num_workers > 0"),
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
        context = multiprocessing_context
        context = get_context(context) if isinstance(context, str) else context
        if not isinstance(context, BaseContext | None):
            raise TypeError(f"multiprocessing_context is not a context: {context}")
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
        self.num_workers, self.timeout, self.worker_init_fn = num_workers, timeout, worker_init_fn
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.generator, self.in_order = generator, in_order
        self.multiprocessing_context, self.persistent_workers = context, persistent_workers
        self.iterator: WorkerIterator | None = None  # the one with the workers that stay

    @property
    def index_sampler(self) -> Iterable:
        """What gives the tasks: lists of numbers, or where nothing is batched numbers."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def make_fetch(self) -> Callable[[Any], Callable[[Any], Any]]:
        """What makes a fetcher from the dataset, here or in a worker."""
        return partial(fetcher, self.collate_fn, self.batch_sampler is not None, self.drop_last)

    def __iter__(self) -> Iterator:
        if not self.persistent_workers:
            return (WorkerIterator if self.num_workers else BatchIterator)(self)
        if self.iterator is None or not self.iterator.close.alive:
            self.iterator = WorkerIterator(self)
        else:
            with self.iterator.whole_messages():
                self.iterator.tasks = iter(self.index_sampler)
                self.iterator.begin()
        return self.iterator

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            whole, rest = divmod(len(self.dataset), self.batch_size or 1)
            return whole + (rest > 0 and not self.drop_last)
        return len(self.index_sampler)
