"""Step group08: broadcast, and where a result goes

broadcast gives all processes the tensor of one of them: the first weights, for example. It begins
and ends like all_reduce, so the code that handles a result moves out of all_reduce, into functions
that both calls use.

A result arrives in one of two places. If MPI can use the tensor's own memory, `wire` is the array
of the tensor, and the result is already where it belongs. Otherwise `wire` is a copy, or a view
with another type, and the result has to be written into the tensor:

    store       writes it, after giving bits that travelled as integers their own type back
    arrival     the `finish` of a call: store, or None where MPI writes into the tensor itself
    reduced     the `finish` of a reduction: an average is divided before it is stored

The trap: once the call has begun, MPI may write into the tensor's own memory at any time. So
`start` counts this write (step 66a) at once, and not when the result has come. It does so after
the call has begun, while the message travels: what happens then costs no time.

Most sums need neither a conversion nor a division. all_reduce tests for this case first, and
begins such a sum without calling the other functions.

Changed: MPIBackend, ProcessGroup.start, all_reduce. New: store, arrival, reduced, broadcast.
Try: leave tensor.array out of broadcast's call of start. Which numbers of the demo change?
"""

import importlib.util
import os
import time
from collections.abc import Callable
from functools import partial
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

    def broadcast(self, array: np.ndarray, root: int) -> Any:
        return self.comm.Ibcast(array, root)


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
        self.errors, self.array_type = (host.error, self.backend.error), self.backend.xp.ndarray
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
        into: Any = None,
        backend: Any = None,
    ) -> Work | None:
        """Begin a call of the backend, and without async_op wait for its result."""
        try:
            request = getattr(backend or self.backend, name)(*args)
            if into is not None:  # the tensor's array: count its write while the message travels
                bump_version(into)
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


SUM, AVG = ReduceOp.SUM, ReduceOp.AVG  # an attribute of an enumeration takes 0.15 us each time


def check_tensor(tensor: Any, group: ProcessGroup) -> None:
    """Raises:
    TypeError: it is not a Tensor.
    RuntimeError: the group's backend does not serve its device.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"Invalid function argument. Expected a tinytorch.Tensor, got {tensor!r}")
    if tensor.device.type != group.backend.device:
        raise RuntimeError(f"No backend type associated with device type {tensor.device.type}")


def ready(group: Any, tensor: Tensor) -> ProcessGroup:
    """The group of a call, whose tensor suits it."""
    if group is None:
        group = here.group or default_group()
    # Most tensors have an array of the right type, and need no check of their device.
    if not isinstance(tensor, Tensor) or type(tensor.array) is not group.array_type:
        check_tensor(tensor, group)
    return group


def check_op(op: Any, tensor: Tensor) -> ReduceOp:
    """The reduction of what is on the wire.

    Raises:
        TypeError: it is not a ReduceOp.
        RuntimeError: it does not suit the dtype.
    """
    if op is SUM:
        # Whether one of several booleans is true: the largest byte. A sum of bytes would overflow.
        return ReduceOp.MAX if tensor.array.dtype.char == "?" else op
    if not isinstance(op, ReduceOp):
        raise TypeError(f"expected a ReduceOp, got {op!r}")
    if (tensor.dtype.is_floating_point and op.name.startswith("B")) or (
        op is AVG and not tensor.dtype.is_floating_point
    ):
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with {tensor.dtype}")
    return op


def store(tensor: Tensor, wire: Any) -> None:
    """Write what has come into the tensor, unless it has come into its own memory."""
    array = tensor.array
    if wire is not array:
        if wire.nbytes == array.nbytes:  # the same bits, under the name of another type
            wire = wire.view(array.dtype)
        array[...] = wire.reshape(array.shape)


def arrival(tensor: Tensor, wire: Any) -> Callable | None:
    """The function that stores a result in the tensor; None, if MPI writes into it directly."""
    return None if wire is tensor.array else partial(store, tensor, wire)


def reduced(tensor: Tensor, wire: Any, op: ReduceOp, group: ProcessGroup) -> Callable | None:
    """The function that stores a reduction in the tensor; None, as for arrival."""
    if op is not AVG:
        return arrival(tensor, wire)

    def finish() -> None:
        group.backend.xp.divide(wire, group.size(), out=wire)
        store(tensor, wire)

    return finish


def all_reduce(
    tensor: Tensor, op: ReduceOp = SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Replace the tensor in all processes by the reduction of all of them, element by element.

    With MPI halves are added in float32 and rounded once.
    """
    group = ready(group, tensor)
    wire = group.backend.reducible(tensor.array)
    if op is SUM and wire is tensor.array:  # as most calls are: nothing is converted
        return group.start("all_reduce", (wire, op), None, async_op, wire)
    args, finish = (wire, check_op(op, tensor)), reduced(tensor, wire, op, group)
    return group.start("all_reduce", args, finish, async_op, tensor.array)


def broadcast(tensor: Tensor, src: int, group: Any = None, async_op: bool = False) -> Work | None:
    """Send the tensor of process `src` to all others, into theirs."""
    group = ready(group, tensor)
    wire = group.backend.movable(tensor.array)
    finish = arrival(tensor, wire)
    return group.start("broadcast", (wire, src), finish, async_op, tensor.array)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.simulator import simulate

    for name in "core.printing ops.arithmetic ops.comparison ops.conversion ops.shape".split():
        importlib.import_module(f"tinytorch.{name}")

    def program():
        init_process_group("mpi")
        rank = get_rank()
        x = tensor([[1.0, 2.0], [3.0, 4.0]]) * 10**rank
        plain, turned, halves = x.clone(), x.clone().T, x.half()
        for each in (plain, turned, halves):
            broadcast(each, 1)
        total, mean, sums = x.clone(), x.clone().T, x.half()
        all_reduce(total)
        all_reduce(mean, AVG)
        all_reduce(sums)
        written = plain._version, turned._version, total._version, mean._version
        return [each.tolist() for each in (plain, turned, halves, total, mean, sums)], written

    results, written = simulate(2, program)[0]  # those of rank 0
    names = "broadcast", "  transposed", "  halves", "sum", "mean, transposed", "sum of halves"
    for name, result in zip(names, results, strict=True):
        print(f"{name:16}", result)
    # -> broadcast        [[10.0, 20.0], [30.0, 40.0]]
    # ->   transposed     [[10.0, 30.0], [20.0, 40.0]]
    # ->   halves         [[10.0, 20.0], [30.0, 40.0]]
    # -> sum              [[11.0, 22.0], [33.0, 44.0]]
    # -> mean, transposed [[5.5, 16.5], [11.0, 22.0]]
    # -> sum of halves    [[11.0, 22.0], [33.0, 44.0]]
    print("counted writes:", written)  # -> counted writes: (1, 1, 1, 1)
