"""Step loader36: Ctrl-C while a process starts

Ctrl-C becomes a KeyboardInterrupt between any two instructions, also inside of multiprocessing.
start() forks, and then writes the child down. An interrupt between the two leaves a process that
Python does not know: it is not joined, and its pipes stay open. A notebook whose cells are stopped
often ends in "too many open files".

A start takes less than a millisecond. So Ctrl-C can wait for its end: a handler that only notes the
signal replaces the real one, and afterwards the real one is called. (A mask of signals would not
do: NumPy's threads could still get it, and Python would act on it in the main thread.)

The trap: only the main thread gets signals, and only it may set a handler. In another thread the
block is run as it is. And what waits must not stand in such a block, since it could not be
interrupted.

Moved: step loader35's loader, to tinytorch/utils/data/dataloader.py. New: without_interrupts.
Changed: Worker.__init__.
Try: sleep for ten seconds under without_interrupts(), and press Ctrl-C.
"""

import contextlib
import importlib
import os
import pickle
import random
import select
import signal
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np

from tinytorch.ops.random import manual_seed
from tinytorch.threads import load_threadpoolctl, set_num_threads
from tinytorch.utils.data.dataloader import DataLoader
from tinytorch.utils.data.dataset import IterableDataset
from tinytorch.utils.data.transfer import receive, send

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


END = "end"  # what a worker answers when its stream has no more items
leaving: list[tuple] = []  # the arguments of close() for epochs that are over: run at the next one
ends: weakref.WeakSet = weakref.WeakSet()  # the main process's ends of all pipes


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
    for end in list(ends):  # a fork has copies, with which no pipe would ever be closed
        end.close()
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


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Puts Ctrl-C off until the end of the block. Only the main thread gets it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    put_off: list[tuple] = []
    handler = signal.signal(signal.SIGINT, lambda *args: put_off.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if put_off and callable(handler):
            handler(*put_off[0])


class Worker:
    """One process, and our end of the pipe to it."""

    def __init__(self, context: BaseContext, *args: Any):
        with without_interrupts():  # multiprocessing would lose a process that has just started
            self.connection, theirs = context.Pipe()
            ends.add(self.connection)
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
        ends.discard(worker.connection)  # first: another thread may fork while it is being closed
        worker.connection.close()


if __name__ == "__main__":
    import multiprocessing

    ForkProcess = multiprocessing.get_context("fork").Process

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    # The block is left as a whole.
    done = []
    try:
        with without_interrupts():
            interrupt()
            done.append("first")
            done.append("last")
        done.append("after")
    except KeyboardInterrupt:
        print(done)  # -> ['first', 'last']

    # Processes that are interrupted at the worst moment: the fork is done, and that is all.
    @contextlib.contextmanager
    def interrupted(name):
        """Ctrl-C comes right after each call of a function of the module os."""

        def call(*args):
            result = original(*args)
            if result:  # not in a new process, where fork gives 0
                interrupt()
            return result

        original = getattr(os, name)
        setattr(os, name, call)
        try:
            yield
        finally:
            setattr(os, name, original)

    class Process(ForkProcess):
        def start(self):
            with interrupted("fork"):
                ForkProcess.start(self)

    def more_files(make):
        before = len(os.listdir("/dev/fd"))
        for _ in range(10):
            with contextlib.suppress(KeyboardInterrupt):
                make()
        while multiprocessing.active_children():  # they end by themselves
            time.sleep(0.01)
        return len(os.listdir("/dev/fd")) - before

    class Context:
        Pipe, Process = staticmethod(multiprocessing.Pipe), Process

    info, fetch = WorkerInfo(0, 1, 0, [0]), DataLoader([0]).make_fetch()
    print(more_files(lambda: Process(target=int, daemon=True).start()))  # -> 40
    print(more_files(lambda: Worker(Context, info, fetch, None)))  # -> 0

    # Other threads get no signals, and may set no handler.
    def in_a_thread():
        with without_interrupts():
            print("the same in a thread")  # -> the same in a thread

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
