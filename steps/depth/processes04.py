"""Step processes04: Processes that end without an exception

A process can end without Python knowing: by a signal, for lack of memory, or in sys.exit. Then no
traceback comes, and `recv` of step processes03 raises EOFError: the other end of the pipe is
closed, and nobody wrote into it. What remains is the exit code, a number of the process's own, or a
signal with a minus sign: -9 is SIGKILL, what the system sends when it has no memory left.

ProcessExitedException tells it. A Ctrl-C in the terminal reaches all processes: those that it ends
have nothing to tell, since the main process has it, too.

With join=False the caller gets the ProcessContext, and can do something else in the meantime: join
with a timeout says whether all have ended.

The trap: a pipe whose other end is closed is ready to be read. poll() says True, and recv raises.

New: ProcessExitedException, ProcessContext.pids. Changed: run, ProcessContext.join, spawn.
Try: ask `poll()` before `recv()`, instead of catching EOFError.
"""

import importlib
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any

# Importing these modules, which import the others, gives Tensor its methods.
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


class ProcessExitedException(ProcessRaisedException):
    """A process ended without an exception of Python: by a signal, or by sys.exit."""


def run(fn: Callable, rank: int, args: tuple, errors: Any) -> None:
    """What a process does."""
    try:
        fn(rank, *args)
    except KeyboardInterrupt:
        pass  # the main process has it, too
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

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None) -> bool:
        """Waits until one fails or all have ended. Returns whether all have; if one failed, ends
        the others.

        Raises:
            ProcessRaisedException: the first process that failed raised an exception.
            ProcessExitedException: it ended by a signal or with an exit code.
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
        try:
            text = self.errors[number].recv()
        except EOFError:  # nobody wrote into this pipe, and its other end is closed
            code = process.exitcode
            end = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
            text = f"process {number} terminated with {end}"
            raise ProcessExitedException(text, number, process.pid) from None
        text = f"\n\n-- Process {number} terminated with the following error:\n{text}"
        raise ProcessRaisedException(text, number, process.pid)


def spawn(
    fn: Callable,
    args: tuple = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Calls fn(i, *args) in `nprocs` processes, i from 0 on, and waits for them; with join=False
    returns the ProcessContext.

    Raises:
        ProcessRaisedException, ProcessExitedException: as of ProcessContext.join.
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
    if not join:
        return started
    ended = False
    while not ended:  # each time one of them ends
        ended = started.join()


if __name__ == "__main__":
    import os
    import time

    def end(rank: int, how: str) -> None:
        if how == "interrupt":
            raise KeyboardInterrupt
        if rank == 0:
            time.sleep(30 if how != "wait" else 0.2)
        elif how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "exit":
            sys.exit(3)

    for how in ("killed", "exit"):
        try:
            spawn(end, (how,), nprocs=2, start_method="fork")
        except ProcessExitedException as error:
            print(error)
    # -> process 1 terminated with signal SIGKILL
    # -> process 1 terminated with exit code 3
    context = spawn(end, ("wait",), join=False, start_method="fork")
    print(len(context.pids()), context.join(timeout=0), context.join(timeout=20))
    # -> 1 False True
    run(end, 1, ("interrupt",), None)
