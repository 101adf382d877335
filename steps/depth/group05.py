"""Step group05: Small messages: ask before making a handle

A sum of one number takes MPI 4 to 6 microseconds between two processes. A handle for it costs as
much again: an object, a list of running calls, a system call to give way. With handles an
all_reduce of one number took 15 microseconds, without them 10.

Most results come within microseconds. So a call that waits anyway asks up to 200 times (SPINS), and
makes a handle only if nothing has come:

    request.Test()  x 200     40 microseconds: the others are nearly there
    Work.wait()               they are not: let another process have the core between questions

Why not ask for ever? With more processes than cores, the process that all wait for needs the core.
sched_yield gives it away.

The trap: a request may complete only once, and so may `finish`. If Test() says True, the call is
over, and no handle may ask again.

(MPI libraries do the same inside a blocking call: they spin first. Here a blocking call is of no
use, as it could not be ended by a time limit, which is step group14.)

Changed: ProcessGroup.start. New: SPINS.
Try: SPINS = range(0), and count the handles again.
"""

import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
from tinytorch.distributed.simulator import here
from tinytorch.distributed.types import DistBackendError, ReduceOp


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


SPINS = range(200)  # how often to look for a result before others may have the core


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
            for _ in () if async_op else SPINS:  # most results come soon
                if request.Test():
                    if finish is not None:
                        finish()
                    return None
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
    handles = []

    class Counted(Work):
        def __init__(self, group, name, request, finish):
            handles.append(group.rank())
            super().__init__(group, name, request, finish)

    Work = Counted

    def program():
        init_process_group("mpi")
        x = tensor([1.0])
        for _ in range(5):
            all_reduce(x)
        return x.item()

    print(simulate(2, program), "handles:", len(handles))  # -> [32.0, 32.0] handles: 0

    def late():
        init_process_group("mpi")
        if get_rank() == 1:  # it does something else first
            letter = here.comm.Irecv(np.zeros(1))
            for _ in range(300):
                letter.Test()
        x = tensor([1.0])
        all_reduce(x)  # rank 0 has asked 200 times in vain, and waits with a handle
        return x.item()

    print(simulate(2, late), "handles of rank:", handles)  # -> [2.0, 2.0] handles of rank: [0]
