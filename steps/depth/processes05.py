"""Step processes05: mp.spawn, and MPI finds the processes

PyTorch's programs for several processes often start them by mp.spawn, and then call
init_process_group("gloo", rank=rank, world_size=world_size). There MASTER_ADDR and MASTER_PORT say
where they find each other. Here MPI moves the messages (step group01), and it knows only processes
that mpiexec has started. To all others it says: you are alone, rank 0 of 1.

How does a process that mpiexec starts know its place? By its environment. PMI_PORT is the address
at which mpiexec listens, PMI_ID is the rank. MPI reads both when it begins, and asks mpiexec for
the addresses of the others. So any process can take the place of one that mpiexec has started:

    spawn     mpiexec -pmi-port -n 2 sh -c "tell PMI_PORT, and wait"     the placeholders
    rank 0    PMI_PORT=vm:40321 PMI_ID=0     MPI: rank 0 of 2
    rank 1    PMI_PORT=vm:40321 PMI_ID=1     MPI: rank 1 of 2

It costs some hundredths of a second, also for programs that never begin MPI, and it is what MPICH's
mpiexec does. With another one readline() finds nothing, the port is "", and each process is alone:
init_process_group says then how to start the program.

The trap is the end. A process that MPI belongs to waits for the others when it ends, and they may
wait for a message from it. So one that has failed ends at once, by os._exit, and join ends the
others. And placeholders must not outlive the main process: they look every five seconds.

Changed: run, ProcessContext, spawn. New: find_mpiexec, Meeting.
Try: run a program with init_process_group under spawn, and place={} in run. What does MPI say?
"""

import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
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


def find_mpiexec() -> str | None:
    """The path of mpiexec, beside this Python or where the shell finds it, if mpi4py is there."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec")
    return found if importlib.util.find_spec("mpi4py") else None


class Meeting:
    """Where processes that mpiexec has not started find each other, once they begin MPI.

    mpiexec starts placeholders, which only wait, and the processes take their places. It has to be
    MPICH's; without it each process is alone.

    Attributes:
        port: where mpiexec listens; "" where they cannot meet.
    """

    port = ""

    def __init__(self, size: int, mpiexec: str | None):
        self.size, self.server = size, None
        if size > 1 and mpiexec is not None:
            # A placeholder waits for as long as this process lives.
            wait = (
                f"[ $PMI_ID = 0 ] && echo $PMI_PORT; while kill -0 {os.getpid()}; do sleep 5; done"
            )
            self.server = subprocess.Popen(
                [mpiexec, "-pmi-port", "-n", str(size), "sh", "-c", wait],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self.port = self.server.stdout.readline().strip()

    def place(self, rank: int) -> dict[str, str]:
        """The variables that tell MPI where it is."""
        if not self.port:
            return {}
        numbers = {"PMI_ID": rank, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": self.size}
        return {"PMI_PORT": self.port, **{name: str(n) for name, n in numbers.items()}}

    def close(self) -> None:
        """End the placeholders."""
        if self.server is not None:
            self.server.terminate()
            self.server.wait()
            self.server.stdout.close()
            self.server = None


def run(fn: Callable, rank: int, args: tuple, errors: Any, place: dict[str, str]) -> None:
    """What a process does."""
    if place:
        for name in "PMI_FD", "PMI_RANK":  # of a job of mpiexec that the main process belongs to
            os.environ.pop(name, None)
        os.environ.update(place)
    try:
        fn(rank, *args)
    except KeyboardInterrupt:
        pass  # the main process has it, too
    except Exception:
        errors.send(traceback.format_exc())
        if "mpi4py.MPI" in sys.modules:  # at its end, MPI would wait for the other processes
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
        sys.exit(1)


class ProcessContext:
    """Processes that were started together.

    Attributes:
        processes: of multiprocessing.
    """

    def __init__(self, processes: list, errors: list, meeting: Meeting):
        self.processes, self.errors, self.meeting = processes, errors, meeting

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
            done = all(process.exitcode == 0 for process in self.processes)
            if done:
                self.meeting.close()
            return done
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join()
        self.meeting.close()
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
    returns the ProcessContext. Process groups of theirs have these processes as their ranks.

    Raises:
        ProcessRaisedException, ProcessExitedException: as of ProcessContext.join.
    """
    context = get_context(start_method)
    processes, errors, meeting = [], [], Meeting(nprocs, find_mpiexec())
    for rank in range(nprocs):
        ours, theirs = context.Pipe(duplex=False)
        given = fn, rank, args, theirs, meeting.place(rank)
        process = context.Process(target=run, args=given, daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        errors.append(ours)
    started = ProcessContext(processes, errors, meeting)
    if not join:
        return started
    ended = False
    while not ended:  # each time one of them ends
        ended = started.join()


if __name__ == "__main__":
    import tempfile

    # What stands for mpiexec starts one placeholder, and listens nowhere.
    script = '#!/bin/sh\nshift 3\nPMI_PORT=here:4711 PMI_ID=0 exec "$@"\n'
    with tempfile.TemporaryDirectory() as folder:
        mpiexec = Path(folder, "mpiexec")
        mpiexec.write_text(script)
        mpiexec.chmod(0o755)
        meeting = Meeting(2, str(mpiexec))
    print(meeting.place(1))
    # -> {'PMI_PORT': 'here:4711', 'PMI_ID': '1', 'MPI_LOCALRANKID': '1', 'MPI_LOCALNRANKS': '2'}

    def show(rank):
        print("rank", rank, "is at", os.environ["PMI_ID"])

    run(show, 1, (), None, meeting.place(1))  # -> rank 1 is at 1
    meeting.close()
    print("without mpiexec:", Meeting(2, None).place(1))  # -> without mpiexec: {}

    del os.environ["PMI_ID"]
    spawn(abs, nprocs=1, start_method="fork")  # abs(0) in a process of its own
    try:
        spawn(show, nprocs=1, start_method="fork")
    except ProcessRaisedException as error:
        print("alone, process", error.error_index, "has no PMI_ID")
        # -> alone, process 0 has no PMI_ID
