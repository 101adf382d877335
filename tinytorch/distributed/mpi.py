"""Collectives of arrays by MPI, through mpi4py."""

import atexit
import importlib.util
import os
import sys
import time
from typing import Any

import numpy as np

from tinytorch.distributed.simulator import here
from tinytorch.distributed.types import ReduceOp


def is_available() -> bool:
    """Whether mpi4py is installed: pip install mpi4py mpich."""
    return importlib.util.find_spec("mpi4py") is not None


is_mpi_available = is_available
is_gloo_available = is_available  # MPI serves it


class Job:
    """What this process has to know when it ends."""

    watched = False  # whether its exceptions end the job
    broken = False  # whether a call has failed, so that the others may wait for ever


def end_job(mpi: Any, code: int = 1) -> None:
    """End all processes of the job, this one too."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(0.2)  # for mpiexec to pass on what was printed
    mpi.COMM_WORLD.Abort(code)


def end_job_on_error(mpi: Any) -> None:
    """Let an exception that is not caught end the whole job, and name the rank."""
    comm, process, previous = mpi.COMM_WORLD, os.getpid(), sys.excepthook

    def hook(kind: type, error: BaseException, trace: Any) -> None:
        if os.getpid() == process:  # a forked process is not a rank
            print(f"rank {comm.rank} of {comm.size} has failed:", file=sys.stderr)
        previous(kind, error, trace)
        if os.getpid() == process and comm.size > 1:
            end_job(mpi)

    def at_exit() -> None:
        if Job.broken and os.getpid() == process:
            end_job(mpi)  # MPI would wait for a call that never ends

    sys.excepthook = hook
    atexit.register(at_exit)


def world() -> tuple[Any, Any]:
    """MPI and the communicator of all processes: mpi4py's, or those of a simulated rank.

    Raises:
        RuntimeError: mpi4py or an MPI library is not installed.
    """
    if here.comm is not None:
        return here.mpi, here.comm
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"process groups need mpi4py and an MPI library ({error}): pip install mpi4py mpich"
        ) from None
    if not Job.watched:
        Job.watched = True
        end_job_on_error(MPI)
    return MPI, MPI.COMM_WORLD


class MPIBackend:
    """MPI's collectives, begun on arrays whose elements lie side by side.

    Each call returns a request at once. MPI works on it while Test() is being called.
    """

    device, xp = "cpu", np
    native = frozenset(map(np.dtype, "bBhHiIlLqQfd"))  # the types that all MPIs compute with

    def __init__(self, mpi: Any, comm: Any):
        self.mpi, self.comm, self.rank, self.size = mpi, comm, comm.rank, comm.size
        self.error, self.in_place, self.status = mpi.Exception, mpi.IN_PLACE, mpi.Status
        # In the order of ReduceOp. An average is a sum that is divided afterwards.
        self.ops = [mpi.SUM, mpi.SUM, mpi.PROD, mpi.MIN, mpi.MAX, mpi.BAND, mpi.BOR, mpi.BXOR]

    def empty(self, size: int, dtype: Any) -> np.ndarray:
        return np.empty(size, dtype)

    def movable(self, array: np.ndarray) -> np.ndarray:
        """The elements side by side, as a type that MPI has; the memory of `array` if it can be."""
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        return array if array.dtype in self.native else array.view(f"u{array.itemsize}")

    def reducible(self, array: np.ndarray) -> np.ndarray:
        """The same to compute with: bytes for booleans, float32 for halves."""
        if array.itemsize != 2 or array.dtype in self.native:
            return self.movable(array)
        return np.asarray(array, np.float32, order="C")

    def all_reduce(self, array: np.ndarray, op: ReduceOp) -> Any:
        return self.comm.Iallreduce(self.in_place, array, self.ops[op])

    def broadcast(self, array: np.ndarray, root: int) -> Any:
        return self.comm.Ibcast(array, root)

    def reduce(self, array: np.ndarray, op: ReduceOp, root: int) -> Any:
        if self.rank == root:
            return self.comm.Ireduce(self.in_place, array, self.ops[op], root)
        return self.comm.Ireduce(array, None, self.ops[op], root)

    def all_gather(self, out: np.ndarray, array: np.ndarray) -> Any:
        return self.comm.Iallgather(array, out)

    def gather(self, out: np.ndarray | None, array: np.ndarray, root: int) -> Any:
        return self.comm.Igather(array, out, root)

    def scatter(self, out: np.ndarray, array: np.ndarray | None, root: int) -> Any:
        return self.comm.Iscatter(array, out, root)

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, op: ReduceOp) -> Any:
        return self.comm.Ireduce_scatter_block(array, out, self.ops[op])

    def all_to_all(
        self, out: np.ndarray, out_counts: list[int], array: np.ndarray, counts: list[int]
    ) -> Any:
        return self.comm.Ialltoallv([array, counts], [out, out_counts])

    def send(self, array: np.ndarray, rank: int, tag: int) -> Any:
        return self.comm.Isend(array, rank, tag)

    def recv(self, array: np.ndarray, rank: int | None, tag: int) -> Any:
        return self.comm.Irecv(array, self.mpi.ANY_SOURCE if rank is None else rank, tag)

    def barrier(self) -> Any:
        return self.comm.Ibarrier()

    def part(self, mine: bool) -> "MPIBackend | None":
        """The backend of those ranks that call it with True; None for the others."""
        comm = self.comm.Split(0 if mine else self.mpi.UNDEFINED, self.rank)
        return MPIBackend(self.mpi, comm) if mine else None

    def close(self) -> None:
        self.comm.Free()
