"""Step group03: Handles: compute while the others are waited for

all_reduce waits until all have sent their part. While the numbers are under way a process could
compute something else: in backward, the gradients of the next layers. With async_op=True the call
returns a handle at once; handle.wait() waits for the result when it is needed.

    work = all_reduce(x, async_op=True)     x is being sent: leave it alone
    y = ...                                 compute meanwhile
    work.wait()                             now x is the sum

What has to be done when the result has come (rounding, copying back into a transposed tensor) is
kept in the handle as `finish`. MPI has no thread of its own: it makes progress inside of its calls,
with all its requests at once. So a program that computes for long asks is_completed() now and then.
Between two questions the handle lets another process have the core, with sched_yield.

The trap: the memory of a tensor belongs to the call until it is complete. A write in between sends
old numbers, or new ones, or some of each. And the result is written in place, so it counts as a
write (step 66a): backward then sees that a saved tensor has changed. The group keeps the handles
that are not complete, so that their memory lives also if the program forgets them.

(PyTorch: async_op=True, Work.)

Changed: ProcessGroup, all_reduce. New: Work, give_way.
Try: leave out the wait() of the demo and what follows it. What does each rank return?
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
        self.in_place = mpi.IN_PLACE
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
            self.done = self.request.Test()
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
        self.running: list[Work] = []  # what has begun, and may not be complete

    def rank(self) -> int:
        return self.host.rank

    def size(self) -> int:
        return self.host.size

    def start(
        self,
        name: str,
        args: tuple,
        finish: Callable | None = None,
        async_op: bool = False,
        backend: Any = None,
    ) -> Work | None:
        """Begin a call of the backend, and without async_op wait for its result."""
        request = getattr(backend or self.backend, name)(*args)
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

    def program():
        init_process_group("mpi")
        rank = get_rank()
        x, halves = tensor([1.0, 2.0]) * (rank + 1), tensor([[1.0, rank]]).half().T
        version = x._version
        works = [all_reduce(x, async_op=True)]
        early = works[0].is_completed()
        works.append(all_reduce(halves, ReduceOp.AVG, async_op=True))
        computed = sum(range(10))  # meanwhile
        for work in works:
            work.wait()
        written = x._version - version
        all_reduce(halves, ReduceOp.AVG)
        return early, computed, x.tolist(), halves.tolist(), written, get_world_size()

    for rank, result in enumerate(simulate(2, program)):
        print(rank, *result)
    # -> 0 False 45 [3.0, 6.0] [[1.0], [0.5]] 1 2
    # -> 1 True 45 [3.0, 6.0] [[1.0], [0.5]] 1 2
