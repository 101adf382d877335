"""Step loader34: Ctrl-C in the middle of a message

recv of a pipe reads the length of a message, and then the message. Ctrl-C may come between the two.
With persistent workers the same pipe is used in the next epoch: recv then takes the first bytes of
the old message for a length, and waits for a billion bytes that never come.

Such a pipe cannot be repaired, since there is no way to tell where the next message begins. So
whatever interrupts a message ends all workers, and the next epoch starts new ones:

    with self.whole_messages():        any error, Ctrl-C included: kill the workers, close, raise

An error of an item (step loader25) is a message like others. It is raised after the block, and ends
no worker. So __next__ is divided: `take` gets the answer within the block.

The trap: KeyboardInterrupt is not an Exception. `except Exception` would not see it; BaseException
does.

New: WorkerIterator.whole_messages, take. Changed: WorkerIterator.__next__, answer; DataLoader.
Try: write `except Exception` in whole_messages. What is left after Ctrl-C?
"""

import contextlib
import importlib
import itertools
import os
import pickle
import random
import select
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
from tinytorch.ops.random import Generator, manual_seed, randint
from tinytorch.threads import load_threadpoolctl, set_num_threads
from tinytorch.utils.data.collate import default_collate, default_convert, walk
from tinytorch.utils.data.dataset import Dataset, IterableDataset, collated, items
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, new_seed
from tinytorch.utils.data.transfer import receive, send

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


END = "end"  # what a worker answers when its stream has no more items
leaving: list[tuple] = []  # the arguments of close() for epochs that are over: run at the next one


@dataclass
class WorkerInfo:
    """Which worker a process is: its number, how many there are, its seed, its dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


here: dict[str, WorkerInfo] = {}  # in a worker: {"worker": which one this process is}


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a DataLoader, which one it is; None in the main process."""
    return here.get("worker")


def commands(connection: Connection) -> Iterator[tuple[int, Any]]:
    """What comes through the pipe: (number of the epoch, task). A new epoch takes the place of what
    is left of an older one. It ends with a None; EOFError when the main process is gone."""
    waiting, parent, arrived = deque(), os.getppid(), select.poll()
    arrived.register(connection, select.POLLIN)
    while os.getppid() == parent:
        if arrived.poll(0 if waiting else 5000):  # a tenth of the time of connection.poll
            command = connection.recv()
            if command is None:
                return
            if waiting and waiting[0][0] != command[0]:
                waiting.clear()
            waiting.append(command)
        elif waiting:
            yield waiting.popleft()
    raise EOFError


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
    worker_init_fn: Callable[[int], None] | None,
) -> None:
    """A worker's life: it gets numbers of items, and sends back the batch or the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which ends us
    here["worker"], current = info, None
    random.seed(info.seed)
    np.random.seed(info.seed % (1 << 32))  # noqa: NPY002 (what programs still use)
    manual_seed(info.seed)
    if load_threadpoolctl() is not None:
        set_num_threads(1)  # the processes share the cores: one for the products of each
    try:
        for epoch, task in commands(connection):
            try:
                if current is None and worker_init_fn is not None:
                    worker_init_fn(info.id)
                if epoch != current:
                    current, fetch = epoch, make_fetch(info.dataset)
                send(connection, (epoch, "batch", fetch(task)))
            except Exception as error:
                over = type(error) is StopIteration and isinstance(info.dataset, IterableDataset)
                answer = (END, None) if over else ("error", describe(error, info.id))
                send(connection, (epoch, *answer))
    except (EOFError, OSError):
        return  # the main process is gone


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


def close(workers: list[Worker], owner: int) -> None:
    """Ends all processes: in peace, or where one is stuck, after five seconds by force."""
    if os.getpid() != owner:
        return  # this is a fork with a copy of the list: the processes are not its own
    for worker in workers:
        worker.ask(None)
    deadline = time.monotonic() + 5
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()  # which it cannot ignore, also if it is stopped
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


class Slow(Dataset):
    """Items that take a millisecond each; the item `at` does something to its worker."""

    def __init__(self, n: int, at: int | None = None, what: Callable | None = None):
        self.n, self.at, self.what = n, at, what

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[np.ndarray, int, int]:
        time.sleep(0.001)
        if index == self.at:
            self.what()
        return np.full((28, 28), index, np.float32), index, int(randint(1 << 40, ()).item())


if __name__ == "__main__":
    import multiprocessing

    def interrupt():
        os.kill(os.getppid(), signal.SIGINT)

    def order(loader):
        return [number for _, numbers, _ in loader for number in numbers.tolist()]

    # Half a message: the length is gone, and the next four bytes are taken for one.
    ours, theirs = multiprocessing.Pipe()
    theirs.send_bytes(b"a message")
    for _ in range(2):
        print(int.from_bytes(os.read(ours.fileno(), 4)), "bytes")
    # -> 9 bytes
    # -> 1629515109 bytes

    # So after Ctrl-C the next epoch begins with new workers.
    loader = DataLoader(Slow(40, 7, interrupt), 4, num_workers=2, persistent_workers=True)
    try:
        order(loader)
    except KeyboardInterrupt:
        print("interrupted, left:", multiprocessing.active_children())  # -> interrupted, left: []
    loader.dataset.at = None
    for _ in range(2):
        for _ in loader:
            break  # what is left of this epoch comes in the next one, and is thrown away
        print(order(loader) == list(range(40)))
    # -> True
    # -> True
    del loader

    # An error in an item ends nothing.
    batches = iter(DataLoader(Slow(8, 1, partial(int, "x")), 4, num_workers=1))
    try:
        next(batches)
    except ValueError:
        print(next(batches)[1].tolist())  # -> [4, 5, 6, 7]

    # Workers that are not persistent end with their epoch, as before.
    print(order(DataLoader(Slow(8), 4, num_workers=2)), len(leaving))
    # -> [0, 1, 2, 3, 4, 5, 6, 7] 1
