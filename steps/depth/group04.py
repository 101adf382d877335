"""Step group04: Errors that name the rank and the call

When a call of MPI fails, mpi4py raises its own Exception: "MPI_ERR_TRUNCATE: message truncated". It
names neither the call nor the rank, and with 64 processes that print at once it is lost. The
simulation raises NumPy's ValueError instead.

So the group translates. `errors` holds the exceptions of its backend, and `failure` makes a
DistBackendError of one:

    rank 1, all_reduce: operands could not be broadcast together with shapes (2,) (3,)

An error may appear at two places: when the call begins, or later, while a handle asks. Both have
the same `except`. After an error the handle is done: asking MPI about a failed request again would
raise another error, or crash.

The trap: `except Exception` here would also catch a mistake in our own code and blame MPI.

(PyTorch: DistError is a RuntimeError, DistBackendError a DistError.)

Changed: MPIBackend, Work, ProcessGroup. New: DistError, DistBackendError.
Try: self.errors = () in ProcessGroup. What do the two mistakes raise then?
"""

import enum
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
from tinytorch.distributed.simulator import here


class ReduceOp(enum.IntEnum):
    """How all_reduce and its kin make one element of those of all processes."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class DistError(RuntimeError):
    """An error of the distributed package."""


class DistBackendError(DistError):
    """MPI or NCCL has failed, or other processes have not come in time."""


def is_available() -> bool:
    """Whether mpi4py is installed: pip install mpi4py mpich."""
    return importlib.util.find_spec("mpi4py") is not None


class MPIBackend:
    """MPI's collectives, begun on arrays whose elements lie side by side.

    Each call returns a request at once. MPI works on it while Test() is being called.
    """

    device, xp = "cpu", np
    native = frozenset(map(np.dtype, "bBhHiIlLqQfd"))  # the types that all MPIs compute with

    def __init__(self, mpi: Any, comm: Any):
        self.mpi, self.comm, self.rank, self.size = mpi, comm, comm.rank, comm.size
        self.error, self.in_place = mpi.Exception, mpi.IN_PLACE
        # In the order of ReduceOp. An average is a sum that is divided afterwards.
        self.ops = [mpi.SUM, mpi.SUM, mpi.PROD, mpi.MIN, mpi.MAX, mpi.BAND, mpi.BOR, mpi.BXOR]

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


give_way = getattr(os, "sched_yield", lambda: time.sleep(0))  # to another process on this core


class Work:
    """A collective that has begun. Its tensors are to be left alone until it is complete."""

    def __init__(self, group: "ProcessGroup", name: str, request: Any, finish: Callable | None):
        self.group, self.name, self.request, self.finish = group, name, request, finish
        self.done = False

    def is_completed(self) -> bool:
        """Whether the result is there. Asking lets all calls of this process make progress."""
        if not self.done:
            self.done = True  # also after an error
            try:
                self.done = self.request.Test()
            except self.group.errors as error:
                raise self.group.failure(self.name, error) from None
            if self.done and self.finish is not None:
                self.finish()
        return self.done

    def wait(self) -> bool:
        """Wait until the result is there."""
        while not self.is_completed():
            give_way()
        return True


class ProcessGroup:
    """Processes that make collective calls together.

    Attributes:
        name: the backend that was asked for.
        ranks: the global ranks of its members; a member's own rank is its place among them.
        host: what moves objects, which are never on a GPU.
        backend: what moves tensors.
    """

    def __init__(self, name: str, ranks: list[int], host: MPIBackend):
        self.name, self.ranks, self.host = name, ranks, host
        self.backend = host
        self.errors = (host.error, self.backend.error)
        self.running: list[Work] = []  # what has begun, and may not be complete

    def rank(self) -> int:
        return self.host.rank

    def size(self) -> int:
        return self.host.size

    def failure(self, name: str, reason: Any) -> DistBackendError:
        """The error of a call. After it, this process can only end the job."""
        return DistBackendError(f"rank {self.ranks[self.rank()]}, {name}: {reason}")

    def start(
        self,
        name: str,
        args: tuple,
        finish: Callable | None = None,
        async_op: bool = False,
        backend: Any = None,
    ) -> Work | None:
        """Begin a call of the backend, and without async_op wait for its result."""
        try:
            request = getattr(backend or self.backend, name)(*args)
        except self.errors as error:
            raise self.failure(name, error) from None
        work = Work(self, name, request, finish)
        # Keep the memory that MPI still reads or writes, also if the program drops the handle.
        self.running = [each for each in self.running if not each.is_completed()] + [work]
        if not async_op:
            work.wait()
        return work if async_op else None


def init_process_group(backend: str | None = None) -> None:
    """Make the group of all processes.

    Raises:
        ValueError: there is a group already.
    """
    if here.group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    name = (backend or "mpi").lower()
    mpi, comm = here.mpi, here.comm
    here.group = ProcessGroup(name, list(range(comm.size)), MPIBackend(mpi, comm))


def get_rank() -> int:
    """The number of this process in the group of all."""
    return here.group.rank()


def get_world_size() -> int:
    """The number of processes in the group of all."""
    return here.group.size()


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, async_op: bool = False) -> Work | None:
    """Replace the tensor in all processes by the reduction of all of them, element by element.

    With MPI halves are added in float32 and rounded once.
    """
    group = here.group
    wire = group.backend.reducible(tensor.array)

    def finish() -> None:
        if op is ReduceOp.AVG:
            group.backend.xp.divide(wire, group.size(), out=wire)
        tensor.array[...] = wire.reshape(tensor.shape)
        bump_version(tensor.array)

    return group.start("all_reduce", (wire, op), finish, async_op)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.simulator import simulate

    for name in "core.printing ops.arithmetic ops.conversion ops.shape".split():
        importlib.import_module(f"tinytorch.{name}")

    def different():
        init_process_group("mpi")
        all_reduce(tensor([1.0] * (2 + get_rank())), async_op=True).wait()

    def unknown():
        init_process_group("mpi")
        here.group.backend.comm.calls = None  # so that MPI's call cannot begin
        here.group.errors += (TypeError,)
        all_reduce(tensor([1.0]))

    for mistake in (different, unknown):
        try:
            simulate(2, mistake)
        except DistBackendError as error:
            print(str(error).strip())
    # -> rank 1, all_reduce: operands could not be broadcast together with shapes (2,) (3,)
    # -> rank 0, all_reduce: unsupported operand type(s) for +=: 'NoneType' and 'int'
