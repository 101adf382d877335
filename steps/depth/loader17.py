"""Step loader17: Sending values between processes

Other processes are to make the batches (step loader18). Two processes do not share memory, so a
batch must travel. A pipe copies it through the kernel in small portions, and a full pipe makes the
writer wait: the demo fills one with an array of 800 KB. If both sides write and neither reads, both
wait forever.

So pickle (protocol 5) splits a value into the memory of its arrays, which it does not copy, and a
short rest. Both go into a file in /dev/shm, a folder that Linux keeps in memory. The message in
the pipe is the open file itself, which one process can pass to another: it always fits.

A file with a name would be the simpler way, and a trap. A process that is killed leaves its files
in /dev/shm, and their memory is gone until the computer starts anew. A file without a name is
removed when no process has it open any more.

(torch.multiprocessing does the same, but shares the memory itself. We copy it out of the file: one
more copy, and no memory that two processes could change at once.)

New: send, receive, as_socket, MEMORY.
Try: os.listdir(MEMORY) while the large value is on its way.
"""

import importlib
import io
import itertools
import os
import pickle
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from types import GenericAlias
from typing import Any

import numpy as np

from tinytorch.cuda.backend import is_available
from tinytorch.ops.random import Generator
from tinytorch.utils.data.collate import default_collate, default_convert, walk
from tinytorch.utils.data.dataset import Dataset, IterableDataset, collated, items
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# Where the processes hand things to each other: in memory, where the system has a folder for that
# (Linux), else where temporary files are.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def as_socket(connection: Connection) -> socket.socket:
    """The pipe as what it is: a socket. Through one, a process can hand an open file to another."""
    pipe = socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
    pipe.setblocking(True)  # also where a program has called socket.setdefaulttimeout()
    return pipe


def send(connection: Connection, value: Any, small: int = 1024) -> None:
    """Sends any value that pickle knows. What is not small goes into a file in shared memory, and
    only the open file through the pipe: so a pipe never fills up, and writing never waits. The file
    has no name. The system removes it when no process has it open, however they end."""
    arrays: list[pickle.PickleBuffer] = []  # the memory of arrays, which pickle does not copy
    head = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    parts = [head, *(array.raw() for array in arrays)]
    sizes = [len(head), *(part.nbytes for part in parts[1:])]
    if sum(sizes) <= small:
        connection.send((b"".join(parts), sizes))
        return
    with tempfile.TemporaryFile(dir=MEMORY) as file, as_socket(connection) as pipe:
        file.writelines(parts)
        file.flush()
        connection.send((None, sizes))
        socket.send_fds(pipe, [b"f"], [file.fileno()])


def receive(connection: Connection) -> Any:
    """What `send` sent at the other end. Each array gets memory of its own."""
    content, sizes = connection.recv()
    numbers = []  # of the files that this process has open now
    if content is None:
        with as_socket(connection) as pipe:
            numbers = socket.recv_fds(pipe, 1, 1)[1]
        if not numbers:  # the worker died in between
            raise EOFError
    with open(numbers[0], "rb") if numbers else io.BytesIO(content) as file:
        file.seek(0)
        parts = [np.empty(size, np.uint8) for size in sizes]
        for part in parts:
            file.readinto(part)
    return pickle.loads(parts[0], buffers=parts[1:])


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
    import multiprocessing

    # A pipe that is full. Here it says so, instead of waiting.
    ours, theirs = multiprocessing.Pipe()
    os.set_blocking(ours.fileno(), False)
    try:
        ours.send(np.arange(100_000.0))
    except BlockingIOError as error:
        print(type(error).__name__)  # -> BlockingIOError

    # A large value becomes a file. Nothing waits, though nobody has received anything yet.
    ours, theirs = multiprocessing.Pipe()
    values = {"text": "small"}, {"large": np.arange(100_000.0), "small": np.ones(2)}
    for value in values:
        send(ours, value)
    for value in values:
        came = receive(theirs)
        print(list(came), pickle.dumps(came) == pickle.dumps(value))
    # -> ['text'] True
    # -> ['large', 'small'] True
    came["large"] += 1  # the memory is its own

    # A process that dies in the middle: its message is there, the file is not.
    ours.send((None, [8]))
    ours.close()
    try:
        receive(theirs)
    except EOFError:
        print("no file came")  # -> no file came
