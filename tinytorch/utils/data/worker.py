"""Processes that make batches while the network is busy with others."""

import contextlib
import io
import math
import os
import pickle
import random
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from tinytorch.core.device import cpu
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.ops.random import manual_seed

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
