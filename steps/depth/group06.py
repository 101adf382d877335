"""Step group06: The default group

all_reduce before init_process_group says "'NoneType' object has no attribute 'backend'". And the
group is kept in `here`, which is different in each thread: in a real process, a worker thread that
calls all_reduce would find no group at all, though the process has one.

Both are a matter of where the default group lives:

    a real process       the class Here has the attribute: all threads see it
    a simulated rank     is a thread; it sets an attribute of `here` in its own thread, which hides
                         the class's

default_group() returns it, or says what is missing. All calls take group=None, which means the
default: step group09 makes groups of some of the processes.

group.WORLD is PyTorch's other name for it. It has to change with init_process_group, so it is a
property; and as `group` is a class and not an object, the property is that of its metaclass, the
class of the class.

The trap: what is global to a process is there once. Two libraries of one program that both call
init_process_group get an error in the second one: ask is_initialized() first.

Changed: init_process_group, get_rank, get_world_size, all_reduce. New: DefaultGroup, group,
is_initialized, set_default_group, default_group.
Try: let set_default_group write to the class in any case. Why does no rank find its group?
"""

import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
from tinytorch.distributed.simulator import Here, here
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


class DefaultGroup(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        return here.group


class group(metaclass=DefaultGroup):
    """group.WORLD is the group of all processes, or None before init_process_group."""


def is_initialized() -> bool:
    return here.group is not None


def set_default_group(group: ProcessGroup | None) -> None:
    """A simulated rank has a group of its own; else all threads of the process share one."""
    (Here if here.comm is None else here).group = group


def init_process_group(backend: str | None = None) -> None:
    """Make the group of all processes.

    Raises:
        ValueError: there is a group already.
    """
    if here.group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    name = (backend or "mpi").lower()
    mpi, comm = here.mpi, here.comm
    set_default_group(ProcessGroup(name, list(range(comm.size)), MPIBackend(mpi, comm)))


def default_group() -> ProcessGroup:
    """The group of all processes.

    Raises:
        ValueError: there is none.
    """
    group = here.group
    if group is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    return group


def get_rank(group: Any = None) -> int:
    """The number of this process in the group."""
    return (default_group() if group is None else group).rank()


def get_world_size(group: Any = None) -> int:
    """The number of processes in the group."""
    return (default_group() if group is None else group).size()


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Replace the tensor in all processes by the reduction of all of them, element by element.

    With MPI halves are added in float32 and rounded once.
    """
    group = default_group() if group is None else group
    wire = group.backend.reducible(tensor.array)

    def finish() -> None:
        if op is ReduceOp.AVG:
            group.backend.xp.divide(wire, group.size(), out=wire)
        tensor.array[...] = wire.reshape(tensor.shape)
        bump_version(tensor.array)

    return group.start("all_reduce", (wire, op), finish, async_op)


if __name__ == "__main__":
    import threading

    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.simulator import simulate

    for name in "core.printing ops.arithmetic ops.conversion ops.shape".split():
        importlib.import_module(f"tinytorch.{name}")

    def program():
        found = [is_initialized(), group.WORLD]
        try:
            all_reduce(tensor([1.0]))
        except ValueError as error:
            found.append(str(error)[:53])
        init_process_group()
        x = tensor([1.0])
        all_reduce(x, group=group.WORLD)
        return *found, is_initialized(), x.item(), get_rank(group.WORLD), get_world_size()

    for result in simulate(2, program):
        print(*result)
    # -> False None Default process group has not been initialized, pleas True 2.0 0 2
    # -> False None Default process group has not been initialized, pleas True 2.0 1 2

    def in_a_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(is_initialized()))
        thread.start()
        thread.join()
        return found

    print(
        "simulated:", simulate(1, lambda: init_process_group() or in_a_thread())[0]
    )  # -> simulated: [False]
    Here.group = "of the process"
    print("a process:", in_a_thread())  # -> a process: [True]
    Here.group = None
