"""Step loader18: A worker in the package's dress

Step 77d built a process that makes batches: it reads tasks from a pipe and sends batches, and None
ends it. Here it fetches as the loader itself would, sends tensors by step loader17, and sets its
own threads to one: a product of matrices takes as many threads as there are cores (step dataset01),
and eight workers with eight threads each take the cores away from each other.

The trap: a worker has a copy of the dataset. What it changes, the main process does not see, and
the other way round. And a worker that starts Python anew finds a class by its name in the file, so
the demo's dataset stands above it.

New: work, Worker, close. Moved: send, receive, to transfer.py.
Try: take the millisecond of sleep out of Slow. Are two processes still faster than none?
"""

import importlib
import itertools
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from types import GenericAlias
from typing import Any

import numpy as np

from tinytorch.cuda.backend import is_available
from tinytorch.ops.random import Generator
from tinytorch.threads import get_num_threads, load_threadpoolctl, set_num_threads
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
    data = Slow(200)
    make_fetch = DataLoader(data, 50).make_fetch()

    # A worker's life, played in this process: its tasks are in the pipe already.
    ours, theirs = multiprocessing.Pipe()
    for command in ([0, 1], [2], None):
        ours.send(command)
    kept, load_threadpoolctl = load_threadpoolctl, lambda: "is installed"
    real, set_num_threads = set_num_threads, lambda number: print("threads:", number)
    work(theirs, data, make_fetch)  # -> threads: 1
    load_threadpoolctl, set_num_threads = kept, real
    for _ in range(2):
        print(receive(ours)[1].tolist())
    # -> [0, 1]
    # -> [2]

    # Here, and in two processes.
    tasks = [list(range(first, first + 50)) for first in range(0, 200, 50)]
    start = time.perf_counter()
    fetch = make_fetch(data)
    here = [fetch(task)[1].tolist() for task in tasks]
    alone = time.perf_counter() - start

    workers = [Worker(multiprocessing.get_context(), data, make_fetch) for _ in range(2)]
    for worker in workers:  # until they run
        worker.ask([0])
        worker.answer()
    start = time.perf_counter()
    for number, task in enumerate(tasks):
        workers[number % 2].ask(task)
    there = [workers[number % 2].answer()[1].tolist() for number in range(4)]
    both = time.perf_counter() - start
    print("the same batches:", here == there == tasks)  # -> the same batches: True
    print(f"{alone:.2f} s here, {both:.2f} s in two processes")  # -> ...
    print("faster:", both < alone)  # -> faster: True

    # A copy of the dataset, which is what the dataset was.
    data.n = 1
    workers[0].ask([3])
    print(len(data), workers[0].answer()[1].tolist())  # -> 1 [3]
    close(workers)
    print("processes left:", len(multiprocessing.active_children()))  # -> processes left: 0

    # The threads of a worker. What it says depends on whether threadpoolctl is installed.
    def threads(number):
        return get_num_threads() if load_threadpoolctl() is not None else "unknown"

    worker = Worker(
        multiprocessing.get_context(),
        ["any"],
        DataLoader(data, None, collate_fn=threads).make_fetch(),
    )
    worker.ask(0)
    print("threads there", worker.answer(), "and here", threads(0))  # -> threads there ...
    close([worker])
