"""Step loader37: Ctrl-C while a process ends

join() asks the system how a process has ended, and then writes that down. The system tells it once.
After an interrupt between the two, the process seems to live forever: is_alive() says True, and
exitcode is None. So `answer` puts Ctrl-C off while it asks, as Worker does for a start (step
loader36).

`close` gives the workers up to five seconds, and five seconds are too long to put Ctrl-C off. So it
waits outside of the block, for something else: wait() looks at the pipe that the end of a process
closes, and asks for no exit code. Ctrl-C there ends the waiting. `finally` then kills what is still
alive; inside the block, since this takes no time.

    wait for up to five seconds      can be interrupted
    finally, without interrupts      kill, join, close the pipe

The trap: the error message shows the exit code, but must not ask for it: it is made outside of the
block. So `code` keeps it.

Changed: Worker.answer, close.
Try: write `except TimeoutError` for `finally` in close. Which worker outlives the demo's Ctrl-C?
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
from multiprocessing.connection import Connection, wait
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
            with without_interrupts():  # one would lose the exit code, which is given once
                self.process.join(1)
                code = self.process.exitcode
            raise RuntimeError(
                f"DataLoader worker (pid {self.process.pid}) exited unexpectedly with exit code "
                f"{code}"
            ) from None


def close(workers: list[Worker], owner: int) -> None:
    """Ends all processes: in peace, or where one is stuck, after five seconds by force."""
    if os.getpid() != owner:
        return  # this is a fork with a copy of the list: the processes are not its own
    deadline = time.monotonic() + 5
    try:
        for worker in workers:
            worker.ask(None)
        for worker in workers:
            wait([worker.process.sentinel], max(0.0, deadline - time.monotonic()))
    finally:  # also after Ctrl-C: no worker outlives this
        with without_interrupts():
            for worker in workers:
                if worker.process.is_alive():
                    worker.process.kill()  # which it cannot ignore, also if it is stopped
                    worker.process.join()
                ends.discard(worker.connection)  # first: another thread may fork during close()
                worker.connection.close()


if __name__ == "__main__":
    import multiprocessing

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    @contextlib.contextmanager
    def interrupted(name):
        """Ctrl-C comes right after each call of a function of the module os."""

        def call(*args):
            result = original(*args)
            interrupt()
            return result

        original = getattr(os, name)
        setattr(os, name, call)
        try:
            yield
        finally:
            setattr(os, name, original)

    info, fetch = WorkerInfo(0, 1, 0, [0]), DataLoader([0]).make_fetch()

    # A process that has ended, and an interrupt before its exit code is written down.
    fork = multiprocessing.get_context("fork")
    lost = fork.Process(target=int, daemon=True)
    lost.start()
    wait([lost.sentinel])
    with contextlib.suppress(KeyboardInterrupt), interrupted("waitpid"):
        lost.join()
    print(lost.is_alive(), lost.exitcode)  # -> True None

    def new_worker(at_first):
        worker = Worker(fork, info, fetch, at_first)
        worker.ask((1, [0]))
        return worker

    worker = new_worker(lambda number: os._exit(3))
    with contextlib.suppress(KeyboardInterrupt), interrupted("waitpid"):
        worker.answer(None)
    print(worker.process.is_alive(), worker.process.exitcode)  # -> False 3
    try:
        worker.answer(None)
    except RuntimeError as error:
        print(error)  # -> DataLoader worker (pid ...) exited unexpectedly with exit code 3

    # Ctrl-C while close() waits for a worker that sleeps: none outlives it.
    asleep = fork.Event()
    workers = [worker, new_worker(lambda number: asleep.set() or time.sleep(60)), new_worker(abs)]
    asleep.wait()
    threading.Timer(0.3, interrupt).start()
    try:
        close(workers, os.getpid())
    except KeyboardInterrupt:
        print([worker.process.is_alive() for worker in workers])  # -> [False, False, False]
    print(workers[1].process.exitcode == -signal.SIGKILL)  # -> True
