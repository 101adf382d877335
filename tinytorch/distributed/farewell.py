"""What a process tells the others when it ends."""

import atexit
import os
import time
from typing import Any, ClassVar

import numpy as np

from tinytorch.distributed.mpi import Job, end_job


class Farewell:
    """How many calls a process has made in each group. It sends this when it ends."""

    groups: ClassVar[list] = []  # all groups there have been: in the same order in all processes
    comm: Any = None  # of all processes, for farewells only
    ready: Any = None  # the request that makes comm
    come: ClassVar[dict[int, list[int]]] = {}  # the farewells that have come, by rank


def say_farewell() -> None:
    """Tell the other processes that this one makes no more calls."""
    calls = [0 if group is None else group.begun for group in Farewell.groups]
    Farewell.ready.Wait()
    for rank in range(Farewell.comm.size):
        if rank != Farewell.comm.rank:
            Farewell.comm.Isend(np.array(calls, np.int64), rank)  # MPI copies so few bytes


def promise_farewell(mpi: Any) -> None:
    """Let this process say farewell when it ends, also by os._exit(0)."""
    process, end_at_once = os.getpid(), os._exit
    if Farewell.comm is not None or mpi.COMM_WORLD.size == 1:
        return

    def at_exit() -> None:
        if os.getpid() == process and not Job.broken and not mpi.Is_finalized():
            say_farewell()

    def without_at_exit(status: int) -> None:
        if status == 0 and os.getpid() == process and not mpi.Is_finalized():
            at_exit()
            if Job.broken:
                end_job(mpi)
            mpi.Finalize()  # else mpiexec would end the others, and call that a success
            time.sleep(0.3)  # for mpiexec to see that all have ended well: some end later
        end_at_once(status)

    Farewell.comm, Farewell.ready = mpi.COMM_WORLD.Idup()
    os._exit = without_at_exit
    atexit.register(at_exit)


def ended_before(number: int, place: int, status: Any) -> list[int]:
    """The ranks that have ended before they made call `number` of the group at this place."""
    comm, come = Farewell.comm, Farewell.come
    while comm is not None and Farewell.ready.Test() and comm.Iprobe(status=status):
        calls = np.empty(status.count // 8, np.int64)
        comm.Recv(calls, status.source)
        come[status.source] = calls.tolist()
    return [rank for rank, calls in come.items() if sum(calls[place : place + 1]) < number]
