"""Step 103q: Catalogue: the collectives of one tensor

Skim this one. all_reduce has shown how a call is made; broadcast, reduce, barrier and two more are
the same with another name. Three things are worth a look:

    ready       finds the group of a call and looks at its tensors. A process outside of the group
                gets a warning and None.
    check_op    the sum of two booleans would be the byte 2, which is not a boolean. So it is MAX.
    arrival     where MPI has written into the memory of the tensor itself, nothing is left to do.
                Else `store` copies what has come over the wire.

And the default group: in a real process it belongs to the class Here, so that all threads see it.
A simulated rank is a thread, and sets an attribute of `here` in its own thread, which hides the
class's.

    all_gather_into_tensor    [a], [b]        ->  [a, b] in both
    reduce_scatter_tensor     [a, b], [c, d]  ->  [a + c] and [b + d]

One after the other they are an all_reduce: these are the two rounds of the ring of step 103c.

Changed: init_process_group, get_rank, get_world_size, all_reduce. New: GroupMember, group,
default_group, get_group_rank, ready, check_tensor, check_op, store, arrival, reduced, broadcast,
reduce, barrier, all_gather_into_tensor, reduce_scatter_tensor and others.
Try: take the check of booleans out, and add up two tensors of True.
"""

import importlib.util
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
from tinytorch.distributed.simulator import Here, here
from tinytorch.distributed.types import DistBackendError, ReduceOp


def is_available() -> bool:
    """Whether mpi4py is installed: pip install 'tinytorch[distributed]'."""
    return importlib.util.find_spec("mpi4py") is not None


class MPIBackend:
    """MPI's collectives, begun on arrays whose elements lie side by side.

    Each call returns a request at once. MPI works on it while Test() is being called.
    """

    device, xp = "cpu", np
    native = frozenset("bBhHiIlLqQfd")  # NumPy's letters for the types that all MPIs compute with

    def __init__(self, mpi: Any, comm: Any):
        self.mpi, self.comm, self.rank, self.size = mpi, comm, comm.rank, comm.size
        self.error, self.in_place = mpi.Exception, mpi.IN_PLACE
        # In the order of ReduceOp. An average is a sum that is divided afterwards.
        self.ops = [mpi.SUM, mpi.SUM, mpi.PROD, mpi.MIN, mpi.MAX, mpi.BAND, mpi.BOR, mpi.BXOR]

    def empty(self, size: int, dtype: Any) -> np.ndarray:
        return np.empty(size, dtype)

    def movable(self, array: np.ndarray) -> np.ndarray:
        """The elements side by side, as a type that MPI has; the memory of `array` if it can be."""
        array = np.ascontiguousarray(array)
        return array if array.dtype.char in self.native else array.view(f"u{array.itemsize}")

    def reducible(self, array: np.ndarray) -> np.ndarray:
        """The same to compute with: bytes for booleans, float32 for halves."""
        if array.dtype.char in self.native:
            return np.ascontiguousarray(array)
        if array.itemsize == 1:
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

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, op: ReduceOp) -> Any:
        return self.comm.Ireduce_scatter_block(array, out, self.ops[op])

    def barrier(self) -> Any:
        return self.comm.Ibarrier()


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


class GroupMember:
    NON_GROUP_MEMBER = object()  # what new_group returns to processes outside of the group


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
    """The number of this process in the group, or -1 where it does not belong to it."""
    found = default_group() if group is None else group
    return -1 if found is GroupMember.NON_GROUP_MEMBER else found.rank()


def get_world_size(group: Any = None) -> int:
    """The number of processes in the group, or -1 where this one does not belong to it."""
    found = default_group() if group is None else group
    return -1 if found is GroupMember.NON_GROUP_MEMBER else found.size()


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank among all processes of the member with this rank in the group."""
    return group.ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in the group of the process with this rank among all.

    Raises:
        ValueError: it does not belong to the group.
    """
    if global_rank not in group.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group.ranks}")
    return group.ranks.index(global_rank)


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


def ready(name: str, group: Any, *tensors: Tensor) -> ProcessGroup | None:
    """The group of a call, where its tensors suit it.

    None, with a warning, where this process does not belong to it.
    """
    if group is None:
        group = here.group or default_group()
    elif group is GroupMember.NON_GROUP_MEMBER:
        whole = default_group()
        warnings.warn(
            f"Running {name} on global rank {whole.rank()} which does not belong to the given "
            f"group.",
            stacklevel=3,
        )
        return None
    for tensor in tensors:
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
    """Write what has come over the wire into the tensor, unless it is its memory."""
    array = tensor.array
    if wire is not array:
        if wire.nbytes == array.nbytes:  # the same bits, under the name of another type
            wire = wire.view(array.dtype)
        array[...] = wire.reshape(array.shape)
    bump_version(array)


def arrival(tensor: Tensor, wire: Any) -> Callable | None:
    """What writes the wire into the tensor, when it has come."""
    if wire is not tensor.array:
        return partial(store, tensor, wire)
    bump_version(wire)
    return None


def reduced(tensor: Tensor, wire: Any, op: ReduceOp, group: ProcessGroup) -> Callable | None:
    """What writes a reduction into the tensor, when it has come."""
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
    if (group := ready("all_reduce", group, tensor)) is None:
        return None
    args = group.backend.reducible(tensor.array), check_op(op, tensor)
    return group.start("all_reduce", args, reduced(tensor, args[0], op, group), async_op)


def broadcast(tensor: Tensor, src: int, group: Any = None, async_op: bool = False) -> Work | None:
    """Send the tensor of process `src` to all others, into theirs."""
    if (group := ready("broadcast", group, tensor)) is None:
        return None
    args = group.backend.movable(tensor.array), get_group_rank(group, src)
    return group.start("broadcast", args, arrival(tensor, args[0]), async_op)


def reduce(
    tensor: Tensor, dst: int, op: ReduceOp = SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """all_reduce of which only process `dst` gets the result."""
    if (group := ready("reduce", group, tensor)) is None:
        return None
    root, wire = get_group_rank(group, dst), group.backend.reducible(tensor.array)
    args = wire, check_op(op, tensor), root
    finish = reduced(tensor, wire, op, group) if group.rank() == root else None
    return group.start("reduce", args, finish, async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all processes of the group have come here."""
    group = ready("barrier", group)
    return None if group is None else group.start("barrier", (), None, async_op, group.host)


def check_whole(whole: Tensor, part: Tensor, group: ProcessGroup) -> None:
    """Raises:
    RuntimeError: `whole` does not have the dtype of `part`, and room for those of all processes.
    """
    if whole.dtype != part.dtype or whole.numel() != part.numel() * group.size():
        raise RuntimeError(
            f"expected {group.size()} times {part.shape} of {part.dtype}, got {whole.shape} of "
            f"{whole.dtype}"
        )


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """all_gather into one tensor: along dimension 0, or along a new one in front."""
    if (group := ready("all_gather_into_tensor", group, output_tensor, input_tensor)) is None:
        return None
    check_whole(output_tensor, input_tensor, group)
    args = tuple(group.backend.movable(tensor.array) for tensor in (output_tensor, input_tensor))
    return group.start("all_gather", args, arrival(output_tensor, args[0]), async_op)


def start_reduce_scatter(
    output: Tensor, whole: Any, op: ReduceOp, group: ProcessGroup, async_op: bool
) -> Work | None:
    wire = group.backend.empty(output.numel(), whole.dtype)
    args = wire, whole, check_op(op, output)
    return group.start("reduce_scatter", args, reduced(output, wire, op, group), async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """reduce_scatter of one tensor, which holds the parts one after the other."""
    if (group := ready("reduce_scatter_tensor", group, output, input)) is None:
        return None
    check_whole(input, output, group)
    whole = group.backend.reducible(input.array)
    return start_reduce_scatter(output, whole, op, group, async_op)


if __name__ == "__main__":
    import importlib

    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.simulator import simulate
    from tinytorch.ops.creation import zeros

    for name in "core.printing ops.arithmetic ops.comparison ops.conversion ops.shape".split():
        importlib.import_module(f"tinytorch.{name}")

    def program():
        init_process_group()
        rank = get_rank(group.WORLD)
        x, truth, mean = tensor([1.0, 2.0]) * 10**rank, tensor([True, rank > 0]), tensor(rank / 2)
        broadcasted, reduced, whole, part = x.T.clone(), x.clone(), zeros(2, 2), zeros(1)
        all_reduce(truth)
        all_reduce(mean, AVG)
        broadcast(broadcasted, 1)
        reduce(reduced, 0, ReduceOp.MAX)
        work = all_gather_into_tensor(whole, x, async_op=True)
        barrier()
        work.wait()
        reduce_scatter_tensor(part, x)
        halves = x.half()
        all_reduce(halves)
        results = truth, mean, broadcasted, reduced, whole, part, halves
        assert is_initialized() and get_world_size() == 2
        return [result.tolist() for result in results]

    for first, second in zip(*simulate(2, program), strict=True):
        print(first, second)
    # -> [True, True] [True, True]
    # -> 0.25 0.25
    # -> [10.0, 20.0] [10.0, 20.0]
    # -> [10.0, 20.0] [10.0, 20.0]
    # -> [[1.0, 2.0], [10.0, 20.0]] [[1.0, 2.0], [10.0, 20.0]]
    # -> [11.0] [22.0]
    # -> [11.0, 22.0] [11.0, 22.0]

    def mistakes():
        x, outside = tensor([1.0, 2.0]), GroupMember.NON_GROUP_MEMBER
        found = []
        for mistake in (
            barrier,
            init_process_group,
            init_process_group,
            lambda: all_reduce([1.0]),
            lambda: all_reduce(x, "sum"),
            lambda: all_reduce(x, ReduceOp.BAND),
            lambda: broadcast(x, 5),
            lambda: reduce_scatter_tensor(x, x.long()),
            lambda: all_reduce(x, group=outside),
            lambda: broadcast(x, 0, outside),
            lambda: reduce(x, 0, group=outside),
            lambda: barrier(outside),
            lambda: all_gather_into_tensor(x, x, outside),
            lambda: reduce_scatter_tensor(x, x, group=outside),
        ):
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    mistake()
                found += [str(warning.message)[:52] for warning in caught]
            except (ValueError, TypeError, RuntimeError) as error:
                found.append(str(error)[:70])
        return [*found, get_rank(outside)]

    for text in simulate(1, mistakes)[0]:
        print(text)
    # -> Default process group has not been initialized, please make sure to ca
    # -> trying to initialize the default process group twice!
    # -> Invalid function argument. Expected a tinytorch.Tensor, got [1.0]
    # -> expected a ReduceOp, got 'sum'
    # -> Cannot use ReduceOp.BAND with tinytorch.float32
    # -> Global rank 5 is not part of group [0]
    # -> expected 1 times tinytorch.Size([2]) of tinytorch.float32, got tinytor
    # -> Running all_reduce on global rank 0 which does not b
    # -> Running broadcast on global rank 0 which does not be
    # -> Running reduce on global rank 0 which does not belon
    # -> Running barrier on global rank 0 which does not belo
    # -> Running all_gather_into_tensor on global rank 0 whic
    # -> Running reduce_scatter_tensor on global rank 0 which
    # -> -1
