"""Step loader26: Workers that die or hang: timeout

Not every end is an error of Python. The system kills a process that uses too much memory; a decoder
written in C crashes; os._exit ends it at once. Such a worker can report nothing. Step loader25's
loop gets an EOFError.

But the system closes its end of the pipe. Reading from a pipe whose other end is closed gives an
EOFError at once, however the process has ended. So the loop notices it there, and the exit code
says why:

    exit code 3      it has called os._exit(3)
    exit code -9     signal 9, SIGKILL: perhaps the system, because of the memory
    exit code -11    signal 11: it has crashed

The other case is a worker that lives and does not answer: it waits for a lock, or for a server.
Only the user knows how long an item may take: `timeout` is this number of seconds, and 0 means no
limit. In both cases the epoch is over, and all workers end.

The trap: a timeout must be much longer than the slowest batch, also on a busy computer. And without
workers it would have no effect, so it is refused.

(torch.utils.data.DataLoader has the same timeout, and nearly the same two messages.)

Changed: Worker.answer, WorkerIterator, BatchIterator, DataLoader.
Try: kill a worker by hand while a long loop runs.
"""

import contextlib
import importlib
import itertools
import multiprocessing
import os
import pickle
import re
import signal
import time
import traceback
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


class Readable(str):  # a text without quotes and \n, since KeyError shows the repr of its message
    __repr__ = str.__str__


def describe(error: Exception, number: int) -> tuple[type, str]:
    """The type of an error and its traceback as text: the traceback itself stays in the process."""
    kind, text = type(error), "".join(traceback.format_exception(error))
    message = f"Caught {kind.__name__} in DataLoader worker process {number}.\nOriginal {text}"
    try:
        pickle.dumps(kind)
    except Exception:  # a class from inside a function: it has no name to be found by
        kind = RuntimeError
    return kind, message


def again(kind: type, message: str) -> Exception:
    """A worker's error in this process. Where its type wants other arguments: RuntimeError."""
    try:
        return kind(Readable(message))
    except Exception:
        return RuntimeError(message)


def work(
    connection: Connection,
    info: WorkerInfo,
    make_fetch: Callable[[Any], Callable[[Any], Any]],
) -> None:
    """A worker's life: it gets numbers of items, and sends back the batch or the error."""
    here["worker"], fetch = info, None
    if load_threadpoolctl() is not None:
        set_num_threads(1)  # the processes share the cores: one for the products of each
    for (task,) in iter(connection.recv, None):
        try:
            if fetch is None:
                fetch = make_fetch(info.dataset)
            send(connection, ("batch", fetch(task)))
        except Exception as error:
            over = type(error) is StopIteration and isinstance(info.dataset, IterableDataset)
            answer = (END, None) if over else ("error", describe(error, info.id))
            send(connection, answer)


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

    def answer(self, timeout: float | None) -> Any:
        """What the worker has sent. RuntimeError if it has died, or sends nothing in time."""
        try:
            if timeout is not None and not self.connection.poll(timeout):
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
            return receive(self.connection)
        except (EOFError, ConnectionResetError):
            self.process.join(1)
            raise RuntimeError(
                f"DataLoader worker (pid {self.process.pid}) exited unexpectedly with exit code "
                f"{self.process.exitcode}"
            ) from None


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
        self.count, self.ahead = loader.num_workers, min(loader.prefetch_factor, 50)
        self.timeout, self.in_order = loader.timeout or None, loader.in_order
        self.workers = []
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
            kind, value = self.answer(self.workers[number])
            for task in itertools.islice(self.tasks, int(kind != END)):
                self.workers[number].ask((task,))
                self.owed.append(number)
            if number not in self.owed:
                self.workers[number].ask(None)  # it may go, while the others still work
            if kind == "error":
                del self  # a traceback that is kept would keep it, and with it the processes
                raise again(*value)
            if kind != END:
                return self.delivered(value)
        if self.close.alive:
            for worker in self.workers:  # some had no task at all
                worker.ask(None)
            leaving.append(self.close.detach()[2])  # from now on another thread may close them
        raise StopIteration

    def answer(self, worker: Worker) -> tuple[str, Any]:
        """What the worker answers. Where it does not, all workers end."""
        try:
            return worker.answer(self.timeout)
        except RuntimeError:
            self.close()
            raise

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
        timeout: float = 0,
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
            (timeout < 0, "timeout option should be non-negative"),
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
        self.num_workers, self.timeout = num_workers, timeout
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
    """Items that take a millisecond each; the item `at` does something to its worker."""

    def __init__(self, n: int, at: int | None = None, what: Callable | None = None):
        self.n, self.at, self.what = n, at, what

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        time.sleep(0.001)
        if index == self.at:
            self.what()
        return np.full((28, 28), index, np.float32), index


if __name__ == "__main__":
    import signal

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    # What a pipe says whose other end is closed.
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    try:
        ours.recv()
    except EOFError as error:
        print(repr(error))  # -> EOFError()

    # A worker that ends, one that is killed, and one that hangs.
    exits, hangs = partial(os._exit, 3), partial(time.sleep, 0.5)
    for what, options in (
        (exits, {}),
        (kill, {}),
        (hangs, {"timeout": 0.1}),
        (hangs, {"timeout": 0.1, "in_order": False}),
    ):
        try:
            list(DataLoader(Slow(20, 7, what), 4, num_workers=2, **options))
        except RuntimeError as error:
            print(re.sub(r"pid \d+", "pid ...", str(error)))
    # -> DataLoader worker (pid ...) exited unexpectedly with exit code 3
    # -> DataLoader worker (pid ...) exited unexpectedly with exit code -9
    # -> DataLoader timed out after 0.1 seconds
    # -> DataLoader timed out after 0.1 seconds
    print("processes left:", len(multiprocessing.active_children()))  # -> processes left: 0

    # What is refused.
    for options in ({"timeout": 1}, {"num_workers": 1, "timeout": -1}):
        try:
            iter(DataLoader(Slow(4), **options))
        except (AssertionError, ValueError) as error:
            print(error)
    # -> without workers there is nothing to wait for: timeout must be 0
    # -> DataLoader: timeout option should be non-negative
    print(len(list(DataLoader(Slow(4)))))  # -> 4
