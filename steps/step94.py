"""Step 94: Other processes make the batches

A picture has to be read, decoded, cropped and turned before the network sees it, and the network
waits. So let other processes make the next batches meanwhile. (Threads? Python runs one at a time.)

    here        ask 0  ask 1  ask 0  ask 1 | take 0, ask 0 | take 1, ask 1 | ...
    worker 0    batch 0 ........  batch 2 ........  batch 4 ........
    worker 1    batch 1 ........  batch 3 ........  batch 5 ........

Tasks go round. Each worker answers its own in order; so whoever takes the answers round gets all
batches in order, whichever was ready first. `prefetch_factor` says how many tasks each is ahead.

What is hard is all that can go wrong:

    copies        a pipe copies a picture through the kernel in small portions. So arrays go into
                  shared memory, and only its name goes through the pipe
    full pipes    if both sides write and none reads, both wait forever; messages are small, and few
    errors        an error comes back as text with the worker's traceback, and is raised here
    death         a worker that is killed closes its end of the pipe: that is noticed at once
    orphans       a worker that hears nothing looks whether its parent lives; a loop that is left by
                  `break` closes the generator, and its `finally` ends the workers
    randomness    a fork copies the random generator: all workers would turn pictures by the same
                  "random" angles. Each gets a seed of its own, drawn from the loader's generator

Each worker has its own copy of the dataset, and of a stream each would deliver everything:
get_worker_info says which part is yours. Processes pay where an item takes a millisecond or more;
begin with num_workers=0. (torch.utils.data.DataLoader takes the same arguments.)

New: Packer, send and receive; work, Workers; DataLoader. Moved: datasets, samplers, collate.
Try: take the line with manual_seed out of `work`, and look at the seeds.
"""

import contextlib
import importlib
import io
import itertools
import math
import multiprocessing
import os
import pickle
import random
import signal
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from tinytorch.core.device import cpu
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.cuda.backend import is_available
from tinytorch.ops.creation import arange
from tinytorch.ops.random import Generator, manual_seed, randint
from tinytorch.utils.data.collate import default_collate
from tinytorch.utils.data.dataset import Dataset, IterableDataset, TensorDataset, collated
from tinytorch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, new_seed

# Importing the modules of the operations brings their methods to Tensor.
operations = "arithmetic comparison elementwise indexing reduction sampling shape sorting"
for name in operations.split():
    importlib.import_module(f"tinytorch.ops.{name}")


END = "end"  # what a worker answers when its stream has no more items


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


class Packer(pickle.Pickler):
    """Pickles a value, and lays aside the arrays in it, so that each is copied only once."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.arrays: list[np.ndarray] = []

    def persistent_id(self, value: Any) -> tuple[int, bool] | None:
        plain = type(value) is Tensor and value.device is cpu and not value.requires_grad
        if not plain and not (type(value) is np.ndarray and not value.dtype.hasobject):
            return None
        self.arrays.append(value.array if plain else value)
        return len(self.arrays) - 1, plain


class Unpacker(pickle.Unpickler):
    """Reads what a Packer wrote, with the arrays that were laid aside."""

    def __init__(self, file: io.BytesIO, arrays: list[np.ndarray]):
        super().__init__(file)
        self.arrays = arrays

    def persistent_load(self, place: tuple[int, bool]) -> Any:
        number, plain = place
        return wrap(self.arrays[number], cpu) if plain else self.arrays[number]


def send(connection: Connection, value: Any, small: int = 1024) -> None:
    """Sends any value. What is not small goes into shared memory, and only its name is sent: so a
    pipe never fills up, and neither side waits for the other while it writes."""
    file = io.BytesIO()
    packer = Packer(file)
    packer.dump(value)
    arrays = [np.ascontiguousarray(a).reshape(a.shape) for a in packer.arrays]
    parts = [np.frombuffer(file.getbuffer(), np.uint8)]
    parts += [array.reshape(-1).view(np.uint8) for array in arrays]
    ends = np.cumsum([-(-part.size // 64) * 64 for part in parts]).tolist()
    kinds = [(array.dtype, array.shape) for array in arrays]
    block = SharedMemory(create=True, size=ends[-1]) if ends[-1] > small else None
    memory = np.frombuffer(block.buf if block else bytearray(ends[-1]), np.uint8)
    for part, start in zip(parts, [0, *ends], strict=False):
        memory[start : start + part.size] = part
    connection.send((block.name if block else memory.tobytes(), ends, kinds))
    if block:
        del memory
        block.close()


def receive(connection: Connection) -> Any:
    """What `send` sent at the other end. The shared memory is given back."""
    where, ends, kinds = connection.recv()
    if isinstance(where, str):
        block = SharedMemory(where)
        memory = np.array(np.frombuffer(block.buf, np.uint8))
        block.close()
        block.unlink()
    else:
        memory = np.frombuffer(bytearray(where), np.uint8)
    arrays = [
        memory[start : start + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        for start, (dtype, shape) in zip(ends, kinds, strict=False)
    ]
    return Unpacker(io.BytesIO(memory[: ends[0]].tobytes()), arrays).load()


def describe(error: Exception, number: int) -> tuple[type, str]:
    """The type of an error and its traceback as text: the traceback itself stays in the process."""
    text = "".join(traceback.format_exception(error))
    message = f"in DataLoader worker process {number}.\nOriginal {text}"
    return type(error), f"Caught {type(error).__name__} {message}"


def work(
    connection: Connection,
    info: WorkerInfo,
    stop: Any,
    make_fetch: Callable[[Any], Callable[[Any], Any]],
    worker_init_fn: Callable[[int], None] | None,
) -> None:
    """A worker's life: it gets numbers of items, and sends back the batch or the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which ends us
    parent, failure = os.getppid(), None
    here["worker"] = info
    random.seed(info.seed)
    np.random.seed(info.seed % (1 << 32))  # noqa: NPY002 (what programs still use)
    manual_seed(info.seed)
    try:
        if worker_init_fn is not None:
            worker_init_fn(info.id)
        fetch = make_fetch(info.dataset)
    except Exception as error:
        failure = describe(error, info.id)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # nobody listens
        while True:
            while not connection.poll(5):
                if os.getppid() != parent:
                    return
            command, task = receive(connection)
            if command == "finish":
                return
            if command == "restart":
                fetch = make_fetch(info.dataset)
                continue
            try:
                answer = ("error", failure) if failure else ("stopped", None)
                if not failure and not stop.is_set():
                    answer = ("batch", fetch(task))
                send(connection, answer)
            except StopIteration:
                send(connection, (END, None))
            except (BrokenPipeError, ConnectionResetError):
                return
            except Exception as error:
                send(connection, ("error", describe(error, info.id)))


class Workers:
    """Processes that work for one DataLoader. Tasks go round, so the answers come in order."""

    def __init__(self, loader: Any, seed: int):
        context = loader.multiprocessing_context
        if context is None or isinstance(context, str):
            context = get_context(context)
        resource_tracker.ensure_running()  # before the processes, so that all share one
        self.stop = context.Event()
        self.connections, self.processes = [], []
        self.timeout, self.owed = loader.timeout or None, deque()
        for number in range(loader.num_workers):
            ours, theirs = context.Pipe()
            info = WorkerInfo(number, loader.num_workers, seed + number, loader.dataset)
            process = context.Process(
                target=work,
                args=(theirs, info, self.stop, loader.make_fetch(), loader.worker_init_fn),
                daemon=True,
            )
            process.start()
            theirs.close()
            self.connections.append(ours)
            self.processes.append(process)

    def batches(self, tasks: Iterator, ahead: int) -> Iterator:
        """The batches for these tasks, in their order. Each worker is `ahead` tasks ahead."""
        ahead = min(ahead, 50)  # so many small messages fit into a pipe
        rounds = [number for _ in range(ahead) for number in range(len(self.processes))]
        for number, task in zip(rounds, tasks, strict=False):
            self.ask(number, task)
        ended = set()
        while self.owed:
            number = self.owed.popleft()
            kind, value = self.answer(number)
            if kind == "error":
                raise self.rebuilt(*value)
            if kind == END:
                ended.add(number)
                continue
            if number not in ended:
                for task in tasks:
                    self.ask(number, task)
                    break
            yield value

    def ask(self, number: int, task: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # see `answer`
            send(self.connections[number], ("fetch", task))
        self.owed.append(number)

    def answer(self, number: int) -> tuple[str, Any]:
        connection, process = self.connections[number], self.processes[number]
        try:
            if not connection.poll(self.timeout):
                raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds")
            return receive(connection)
        except (EOFError, ConnectionResetError):
            process.join(1)
            raise RuntimeError(
                f"DataLoader worker (pid {process.pid}) exited unexpectedly with exit code "
                f"{process.exitcode}"
            ) from None

    def rebuilt(self, kind: type, message: str) -> Exception:
        """A worker's error in this process. Where its type wants other arguments: RuntimeError."""
        try:
            return kind(message)
        except TypeError:
            return RuntimeError(message)

    def drain(self, seconds: float | None) -> None:
        """Takes in what a broken loop has left behind; it waits for so long at most, or (None) as
        long as it takes."""
        self.stop.set()
        deadline = time.monotonic() + (seconds or 0.0)
        while self.owed:
            connection = self.connections[self.owed.popleft()]
            left = None if seconds is None else max(0.0, deadline - time.monotonic())
            with contextlib.suppress(EOFError, OSError):
                if connection.poll(left):
                    receive(connection)
        self.stop.clear()

    def restart(self) -> None:
        """Starts a new epoch: each worker begins its stream again."""
        self.drain(None)
        for connection in self.connections:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                send(connection, ("restart", None))

    def close(self) -> None:
        """Ends all processes: in peace, or where one is stuck, by force."""
        self.drain(5.0)
        for connection in self.connections:
            with contextlib.suppress(OSError):
                send(connection, ("finish", None))
        for process, connection in zip(self.processes, self.connections, strict=True):
            process.join(1)
            if process.is_alive():
                process.terminate()
                process.join()
            connection.close()


def itself(sample: Any) -> Any:
    """The collate_fn of a loader without batches."""
    return sample


def pinned(value: Any) -> Any:
    """The tensors of a batch in pinned memory, from where a GPU fetches them by itself."""
    if isinstance(value, Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return {key: pinned(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        items = [pinned(each) for each in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def fetcher(dataset: Any, collate: Callable, batched: bool, drop_last: bool) -> Callable:
    """A function from a task to a batch. A task is a list of numbers, or one number without
    batches; of a stream it is how many items to take: StopIteration where there are none."""
    if isinstance(dataset, IterableDataset):
        stream = iter(dataset)

        def take(count: int) -> Any:
            if not batched:
                return collate(next(stream))
            samples = list(itertools.islice(stream, count))
            if not samples or (drop_last and len(samples) < count):
                raise StopIteration
            return collate(samples)

        return take
    if not batched:
        return lambda number: collate(dataset[number])
    if collate is default_collate:
        return lambda numbers: collated(dataset, numbers)
    return lambda numbers: collate([dataset[number] for number in numbers])


class DataLoader:
    """Iterates over batches of a dataset: `for x, y in DataLoader(dataset, 64, shuffle=True)`.

    Args:
        batch_size: items of a batch; None gives the items themselves.
        shuffle: a new random order in each epoch; or a `sampler` of your own, or a `batch_sampler`.
        num_workers: processes that make batches, `prefetch_factor` (2) each ahead; 0: made here.
        collate_fn: makes a batch from a list of items.
        pin_memory: puts batches where a GPU fetches them faster; without a GPU, nothing.
        drop_last: leaves out a last batch that is shorter.
        timeout: seconds after which a worker that does not answer is an error; 0: never.
        worker_init_fn: called with the number of the worker in each, before it begins.
        generator: draws the order and the workers' seeds.
        persistent_workers: keeps the processes from one epoch to the next.
        multiprocessing_context: "fork", "spawn", "forkserver", or a context.
    Raises ValueError for options that exclude each other.
    """

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
    ):
        stream = isinstance(dataset, IterableDataset)
        whole = (batch_size, shuffle or False, sampler, drop_last)
        for wrong, reason in (
            (num_workers < 0, "num_workers option should be non-negative"),
            (timeout < 0, "timeout option should be non-negative"),
            (not num_workers and prefetch_factor is not None, "prefetch_factor needs num_workers"),
            (prefetch_factor is not None and prefetch_factor < 1, "prefetch_factor must be >= 1"),
            (not num_workers and persistent_workers, "persistent_workers needs num_workers > 0"),
            (not num_workers and multiprocessing_context, "a context needs num_workers > 0"),
            (stream and shuffle, "an IterableDataset cannot be shuffled: it has its own order"),
            (stream and (sampler or batch_sampler), "an IterableDataset takes no sampler"),
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
        if sampler is None and not stream:
            shuffled = partial(RandomSampler, generator=generator)
            sampler = (shuffled if shuffle else SequentialSampler)(dataset)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        elif batch_size is not None and not stream:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.sampler, self.batch_sampler = dataset, sampler, batch_sampler
        self.batch_size, self.drop_last = batch_size, drop_last
        self.batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if self.batched else itself)
        self.num_workers, self.timeout, self.worker_init_fn = num_workers, timeout, worker_init_fn
        self.prefetch_factor = prefetch_factor or (2 if num_workers else None)
        self.pin_memory, self.generator = pin_memory, generator
        self.persistent_workers = persistent_workers
        self.multiprocessing_context = multiprocessing_context
        self.workers: Workers | None = None

    def make_fetch(self) -> Callable[[Any], Callable[[Any], Any]]:
        """What makes a fetcher from the dataset, here or in a worker."""
        return partial(
            fetcher, collate=self.collate_fn, batched=self.batched, drop_last=self.drop_last
        )

    def tasks(self) -> Iterator:
        """What is to be fetched, in order: endless for a stream."""
        if isinstance(self.dataset, IterableDataset):
            return itertools.repeat(self.batch_size)
        return iter(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator:
        batches = self.made_by_workers() if self.num_workers else self.made_here()
        return map(pinned, batches) if self.pin_memory and is_available() else batches

    def made_here(self) -> Iterator:
        fetch = self.make_fetch()(self.dataset)
        for task in self.tasks():
            try:
                batch = fetch(task)
            except StopIteration:
                return
            yield batch

    def made_by_workers(self) -> Iterator:
        workers = self.workers
        if workers is None:
            workers = Workers(self, new_seed(self.generator))
            if self.persistent_workers:
                self.workers = workers
                weakref.finalize(self, workers.close)
        else:
            workers.restart()
        try:
            yield from workers.batches(self.tasks(), self.prefetch_factor)
        finally:  # also when the loop was left: Python closes the generator then
            if not self.persistent_workers:
                workers.close()

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            whole, rest = divmod(len(self.dataset), self.batch_size or 1)
            return whole + (rest > 0 and not self.drop_last)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)


class Slow(Dataset):
    """Items that take a millisecond each; item `broken` raises."""

    def __init__(self, n: int, broken: int | None = None):
        self.n, self.broken = n, broken

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[np.ndarray, int, int]:
        time.sleep(0.001)
        if index == self.broken:
            raise ValueError(f"picture {index} is broken")
        return np.full((28, 28), index, np.float32), index, int(randint(1 << 40, ()).item())


class Counted(IterableDataset):
    """0 to 7 as a stream; where it is `shared`, each worker takes its part of it."""

    shared = True

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info() if self.shared else None
        return iter(range(info.id, 8, info.num_workers) if info else range(8))


if __name__ == "__main__":
    # Without workers: the three parts of step 92.
    data = TensorDataset(arange(5), arange(5) * 10)
    loader = DataLoader(data, batch_size=2)
    for x, y in loader:
        print(x.tolist(), y.tolist())
    # -> [0, 1] [0, 10]
    # -> [2, 3] [20, 30]
    # -> [4] [40]
    print(len(loader), len(DataLoader(data, 2, drop_last=True)))  # -> 3 2
    print([x.item() for x, _ in DataLoader(data, None, sampler=[3, 0])])  # -> [3, 0]

    # The same batches in the same order, made by four processes.
    def order(loader):
        return [number for _, numbers, _ in loader for number in numbers.tolist()]

    times = {}
    for workers in (0, 4):
        loader = DataLoader(Slow(400), 8, num_workers=workers, persistent_workers=workers > 0)
        next(iter(loader))  # so the processes run already
        start = time.perf_counter()
        right = order(loader) == list(range(400))
        times[workers] = time.perf_counter() - start
        print(f"{workers} workers, in order:", right)
    # -> 0 workers, in order: True
    # -> 4 workers, in order: True
    print(f"{times[0]:.2f} s alone, {times[4]:.2f} s with four")  # -> ...
    print(f"four are {times[0] / times[4]:.1f} times as fast")  # -> ...
    del loader  # ends its processes

    # An error in a worker arrives with its traceback.
    try:
        list(DataLoader(Slow(20, broken=7), 4, num_workers=2))
    except ValueError as error:
        lines = str(error).splitlines()
        print(lines[0])  # -> Caught ValueError in DataLoader worker process 1.
        print(lines[1])  # -> Original Traceback (most recent call last):
        print(lines[-1])  # -> ValueError: picture 7 is broken

    # A loop that is left early leaves no process behind.
    for _ in DataLoader(Slow(100), 4, num_workers=2):
        running = len(multiprocessing.active_children())
        break
    print(running, "processes, then", len(multiprocessing.active_children()))
    # -> 2 processes, then 0

    # Random numbers: each worker its own, and the same again with the same seed.
    def numbers():
        generator = Generator().manual_seed(0)
        loader = DataLoader(Slow(8), num_workers=2, generator=generator)
        return [number.item() for *_, number in loader]

    first = numbers()
    print("eight different numbers:", len(set(first)) == 8)  # -> eight different numbers: True
    print("and the same again:", numbers() == first)  # -> and the same again: True

    # A stream: each worker delivers all of it, unless it asks who it is.
    for shared in (False, True):
        stream = Counted()
        stream.shared = shared
        batches = DataLoader(stream, 4, num_workers=2)
        print(sorted(number for batch in batches for number in batch.tolist()))
    # -> [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    # -> [0, 1, 2, 3, 4, 5, 6, 7]
    try:
        DataLoader(data, shuffle=True, sampler=[0])
    except ValueError as error:
        print(error)
    # -> DataLoader: sampler option is mutually exclusive with shuffle
