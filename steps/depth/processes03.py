"""Step processes03: mp.spawn: one function in several processes

A process that raises an exception prints it, and ends. The program that started four of them joins
them one after the other: it waits for process 0, which waits for a message of process 2, which has
ended. Nothing happens any more, and the traceback is somewhere in the output.

`spawn(fn, args, nprocs=4)` calls fn(0, *args), ..., fn(3, *args), and `join` waits for all of them
at once, by their sentinels: files that the system closes when a process ends. If one has failed,
the others are ended, and its traceback, which came through a pipe, is raised here.

    process 1 raises   ->  traceback into its pipe, exit code 1
    main               ->  wakes up, ends the others, raises ProcessRaisedException

The trap is the wait itself: it returns when the first process ends, and the others may go on for
hours. So `spawn` calls `join` until it says that all have ended.

New: ProcessRaisedException, run, ProcessContext, spawn.
Try: join the processes of the demo one after the other instead. How long does it take?
"""

import importlib
import sys
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any

from tinytorch.core.tensor import Tensor

# Importing these modules, which import the others, gives Tensor its methods.
importlib.import_module("tinytorch.multiprocessing.shared_memory")
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class ProcessRaisedException(RuntimeError):
    """A process ended with an exception, whose traceback is in the message.

    Attributes:
        error_index: the number of the process.
        error_pid: its number in the system.
    """

    def __init__(self, message: str, error_index: int, error_pid: int):
        super().__init__(message)
        self.error_index, self.error_pid = error_index, error_pid


def run(fn: Callable, rank: int, args: tuple, errors: Any) -> None:
    """What a process does."""
    try:
        fn(rank, *args)
    except Exception:
        errors.send(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """Processes that were started together.

    Attributes:
        processes: of multiprocessing.
    """

    def __init__(self, processes: list, errors: list):
        self.processes, self.errors = processes, errors

    def join(self, timeout: float | None = None) -> bool:
        """Waits until one fails or all have ended. Returns whether all have; if one failed, ends
        the others.

        Raises:
            ProcessRaisedException: the first process that failed raised an exception.
        """
        codes = [process.exitcode for process in self.processes]  # None: it has not ended
        if None in codes and not any(codes):  # else there is nothing to wait for
            alive = [p for p, code in zip(self.processes, codes, strict=True) if code is None]
            ended = wait([process.sentinel for process in alive], timeout)
            for process in alive:
                if process.sentinel in ended:
                    process.join()
        failed = [i for i, process in enumerate(self.processes) if process.exitcode]
        if not failed:
            return all(process.exitcode == 0 for process in self.processes)
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join()
        number, process = failed[0], self.processes[failed[0]]
        text = self.errors[number].recv()
        text = f"\n\n-- Process {number} terminated with the following error:\n{text}"
        raise ProcessRaisedException(text, number, process.pid)


def spawn(
    fn: Callable,
    args: tuple = (),
    nprocs: int = 1,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """Calls fn(i, *args) in `nprocs` processes, i from 0 on, and waits for them.

    Raises:
        ProcessRaisedException: as of ProcessContext.join.
    """
    context = get_context(start_method)
    processes, errors = [], []
    for rank in range(nprocs):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=run, args=(fn, rank, args, theirs), daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        errors.append(ours)
    started = ProcessContext(processes, errors)
    ended = False
    while not ended:  # each time one of them ends
        ended = started.join()


if __name__ == "__main__":
    import time

    def add(rank: int, total: Tensor) -> None:
        total[rank] += rank + 1

    def fail(rank: int) -> None:
        if rank == 0:
            time.sleep(30)
        raise ValueError("broken")

    total = Tensor([0.0, 0.0, 0.0]).share_memory_()
    spawn(add, (total,), nprocs=3, start_method="fork")
    print(total.tolist())  # -> [1.0, 2.0, 3.0]

    start = time.monotonic()
    try:
        spawn(fail, nprocs=2, start_method="fork")
    except ProcessRaisedException as error:
        print("process", error.error_index, "-", str(error).split()[-2:])
    # -> process 1 - ['ValueError:', 'broken']
    print("at once:", time.monotonic() - start < 20)  # -> at once: True

    ours, errors = get_context("fork").Pipe()
    try:
        run(fail, 1, (), errors)  # as it runs in a process
    except SystemExit as error:
        print(error.code, ours.recv().split()[-1])  # -> 1 broken
