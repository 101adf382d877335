"""Step group13: Catalogue: the other collectives of lists

Skim this one. `divide` has a counterpart, `join`, which puts the tensors of a list side by side to
be sent. With these two, each of the calls is all_gather of step group12 in another direction:

    gather            out[rank] is the tensor of that rank, in one process only
    scatter           one process sends the tensor list[rank] to each rank
    reduce_scatter    each process gets the sum of what all have at its place of the list
    all_to_all        process r gets the r-th tensor of each list: rows and columns change places

all_to_all_single does the last one with the parts of one tensor. The parts have equal sizes, or
the sizes that are given. And MPIBackend gets its last two calls, which begin messages from one
process to another; step messages01 uses them. Test() fills the Status of step simulator07, which
tells who has sent a message: so `start` and Work hand it on.

Changed: MPIBackend, Work, ProcessGroup.start. New: join, gather, scatter, reduce_scatter,
all_to_all, split, all_to_all_single.
Try: call all_to_all twice, the second time with its own result. What comes back?
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


SPINS = range(200)  # how often to look for a result before others may have the core


give_way = getattr(os, "sched_yield", lambda: time.sleep(0))  # to another process on this core


class Work:
    """A collective that has begun. Its tensors are to be left alone until it is complete."""

    status: Any = None  # where MPI writes who has sent a message, and how long it is

    def __init__(self, group: "ProcessGroup", name: str, request: Any, finish: Callable | None):
        self.group, self.name, self.request, self.finish = group, name, request, finish
        self.done = False

    def is_completed(self) -> bool:
        """Whether the result is there. Asking lets all calls of this process make progress."""
        if not self.done:
            self.done = True  # also after an error
            try:
                self.done = self.request.Test(self.status)
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
        status: Any = None,
        backend: Any = None,
    ) -> Work | None:
        """Begin a call of the backend, and without async_op wait for its result."""
        try:
            request = getattr(backend or self.backend, name)(*args)
            if into is not None:  # the tensor's array: count its write while the message travels
                bump_version(into)
            for _ in () if async_op else SPINS:  # most results come soon
                if request.Test(status):
                    if finish is not None:
                        finish()
                    return None
        except self.errors as error:
            raise self.failure(name, error) from None
        work = Work(self, name, request, finish)
        work.status = status
        # Keep the memory that MPI still reads or writes, also if the program drops the handle.
        self.running = [each for each in self.running if not each.is_completed()] + [work]
        if not async_op:
            work.wait()
        return work if async_op else None

    def part(self, name: str, ranks: list[int]) -> "ProcessGroup | object":
        """The group of some of its members, with a communicator of its own. All members call it."""
        self.start("barrier", (), backend=self.host)
        host = self.host.part(self.ranks[self.rank()] in ranks)
        if host is None:
            return GroupMember.NON_GROUP_MEMBER
        return ProcessGroup(name, ranks, host)


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


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Free a group; without an argument, the one of all processes."""
    assert here.group is not None, "Process group cannot be None"
    found = here.group if group is None else group
    found.backend.close()
    if found is here.group:
        set_default_group(None)


def get_rank(group: Any = None) -> int:
    """The number of this process in the group, or -1 where it does not belong to it."""
    found = default_group() if group is None else group
    return -1 if found is GroupMember.NON_GROUP_MEMBER else found.rank()


def get_world_size(group: Any = None) -> int:
    """The number of processes in the group, or -1 where this one does not belong to it."""
    found = default_group() if group is None else group
    return -1 if found is GroupMember.NON_GROUP_MEMBER else found.size()


def get_backend(group: ProcessGroup | None = None) -> str:
    """The name of the backend that was asked for."""
    return (group or default_group()).name


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """The global ranks of the members."""
    return list((group or default_group()).ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank among all processes of the member with this rank in the group."""
    return group.ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in the group of the process with this rank among all.

    Raises:
        ValueError: it does not belong to the group.
    """
    try:
        return group.ranks.index(global_rank)
    except ValueError:
        text = f"Global rank {global_rank} is not part of group {group.ranks}"
        raise ValueError(text) from None


def new_group(ranks: list[int] | None = None, backend: str | None = None) -> ProcessGroup | object:
    """A group of the processes with these global ranks. All processes must call it, in one order.

    Returns GroupMember.NON_GROUP_MEMBER to the others.
    Raises:
        ValueError: a rank occurs twice, or does not exist; there is no default group.
    """
    whole = default_group()
    ranks = sorted(whole.ranks if ranks is None else ranks)
    if len(set(ranks)) < len(ranks) or not set(ranks) <= set(whole.ranks):
        raise ValueError(f"the ranks of a group should differ and exist, got {ranks}")
    return whole.part((backend or whole.name).lower(), ranks)


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


def member(name: str, group: Any, level: int = 3) -> ProcessGroup | None:
    """The group of a call; None, with a warning, if this process does not belong to it."""
    if group is not GroupMember.NON_GROUP_MEMBER:
        return default_group() if group is None else group
    warnings.warn(
        f"Running {name} on global rank {default_group().rank()} which does not belong to the "
        f"given group.",
        stacklevel=level,
    )
    return None


def ready(name: str, group: Any, tensor: Tensor) -> ProcessGroup | None:
    """The group of a call whose tensor has been checked; None as for member."""
    if group is None:
        group = here.group or default_group()
    elif (group := member(name, group, 4)) is None:
        return None
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
    if (group := ready("all_reduce", group, tensor)) is None:
        return None
    wire = group.backend.reducible(tensor.array)
    if op is SUM and wire is tensor.array:  # as most calls are: nothing is converted
        return group.start("all_reduce", (wire, op), None, async_op, wire)
    args, finish = (wire, check_op(op, tensor)), reduced(tensor, wire, op, group)
    return group.start("all_reduce", args, finish, async_op, tensor.array)


def broadcast(tensor: Tensor, src: int, group: Any = None, async_op: bool = False) -> Work | None:
    """Send the tensor of process `src` to all others, into theirs."""
    if (group := ready("broadcast", group, tensor)) is None:
        return None
    wire, root = group.backend.movable(tensor.array), get_group_rank(group, src)
    finish = arrival(tensor, wire)
    return group.start("broadcast", (wire, root), finish, async_op, tensor.array)


def reduce(
    tensor: Tensor, dst: int, op: ReduceOp = SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Like all_reduce, but only process `dst` gets the result."""
    if (group := ready("reduce", group, tensor)) is None:
        return None
    root, wire = get_group_rank(group, dst), group.backend.reducible(tensor.array)
    args = wire, check_op(op, tensor), root
    if group.rank() != root:
        return group.start("reduce", args, None, async_op)
    return group.start("reduce", args, reduced(tensor, wire, op, group), async_op, tensor.array)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all processes of the group have come here."""
    group = member("barrier", group)
    return None if group is None else group.start("barrier", (), None, async_op)


def check_whole(whole: Tensor, part: Tensor, group: ProcessGroup) -> None:
    """Raises:
    RuntimeError: dtypes differ, or `whole` is not as large as the parts of all processes.
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
    if (group := ready("all_gather_into_tensor", group, output_tensor)) is None:
        return None
    check_tensor(input_tensor, group)
    check_whole(output_tensor, input_tensor, group)
    args = tuple(group.backend.movable(tensor.array) for tensor in (output_tensor, input_tensor))
    finish = arrival(output_tensor, args[0])
    return group.start("all_gather", args, finish, async_op, output_tensor.array)


def start_reduce_scatter(
    output: Tensor, whole: Any, op: ReduceOp, group: ProcessGroup, async_op: bool
) -> Work | None:
    wire = group.backend.empty(output.numel(), whole.dtype)
    args, finish = (wire, whole, check_op(op, output)), reduced(output, wire, op, group)
    return group.start("reduce_scatter", args, finish, async_op, output.array)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """reduce_scatter of one tensor, which holds the parts one after the other."""
    if (group := ready("reduce_scatter_tensor", group, output)) is None:
        return None
    check_tensor(input, group)
    check_whole(input, output, group)
    whole = group.backend.reducible(input.array)
    return start_reduce_scatter(output, whole, op, group, async_op)


def check_dtypes(*tensors: Tensor) -> None:
    """Raises ValueError: they differ, and MPI would take the bits of one for those of another."""
    if len({tensor.dtype for tensor in tensors}) > 1:
        found = ", ".join(str(tensor.dtype) for tensor in tensors)
        raise ValueError(f"tensors of different dtypes: {found}")


def check_list(tensors: Any, group: ProcessGroup, *model: Tensor) -> None:
    """Check a list that has a tensor for each process; with `model`, of its shape and dtype.

    Raises:
        TypeError: it is not a list of Tensors.
        ValueError: dtypes differ.
        RuntimeError: there are not as many as processes, or shapes differ.
    """
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"Invalid function argument. Expected a list of tensors, got {tensors!r}")
    if len(tensors) != group.size():
        raise RuntimeError(f"a list of {len(tensors)} tensors for {group.size()} processes")
    for tensor in tensors:
        check_tensor(tensor, group)
        if model and tensor.shape != model[0].shape:
            raise RuntimeError(f"expected a tensor of {model[0].shape}, got one of {tensor.shape}")
    check_dtypes(*tensors, *model)


def join(tensors: list[Tensor], prepare: Callable, group: ProcessGroup) -> Any:
    """The elements of all tensors in one array, as the backend wants them."""
    flat = [prepare(tensor.array).reshape(-1) for tensor in tensors]
    return group.backend.xp.concatenate(flat)


def divide(wire: Any, sizes: list[int], tensors: list[Tensor]) -> Callable:
    """The function that stores the parts of an array in the tensors."""

    def finish() -> None:
        end = 0
        for tensor, size in zip(tensors, sizes, strict=True):
            end += size
            store(tensor, wire[end - size : end])
            bump_version(tensor.array)

    return finish


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Collect the tensors of all processes in each of them: tensor_list[rank]."""
    if (group := ready("all_gather", group, tensor)) is None:
        return None
    check_list(tensor_list, group, tensor)
    wire = group.backend.movable(tensor.array)
    out = group.backend.empty(group.size() * wire.size, wire.dtype)
    finish = divide(out, [wire.size] * group.size(), tensor_list)
    return group.start("all_gather", (out, wire), finish, async_op)


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int = 0, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Collect the tensors of all processes in process `dst`: gather_list[rank]."""
    if (group := ready("gather", group, tensor)) is None:
        return None
    root, out, finish = get_group_rank(group, dst), None, None
    if bool(gather_list) != (group.rank() == root):
        raise ValueError("gather_list must be specified on the destination rank, and only there")
    wire = group.backend.movable(tensor.array)
    if gather_list:
        check_list(gather_list, group, tensor)
        out = group.backend.empty(group.size() * wire.size, wire.dtype)
        finish = divide(out, [wire.size] * group.size(), gather_list)
    return group.start("gather", (out, wire, root), finish, async_op)


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int = 0, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Send scatter_list[rank] of process `src` to each process, into its tensor."""
    if (group := ready("scatter", group, tensor)) is None:
        return None
    root, whole = get_group_rank(group, src), None
    if bool(scatter_list) != (group.rank() == root):
        raise ValueError("scatter_list must be specified on the source rank, and only there")
    if scatter_list:
        check_list(scatter_list, group, tensor)
        whole = join(scatter_list, group.backend.movable, group)
    wire = group.backend.movable(tensor.array)
    args, finish = (wire, whole, root), arrival(tensor, wire)
    return group.start("scatter", args, finish, async_op, tensor.array)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: ReduceOp = SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce the lists of all processes; each process gets the tensor at its place."""
    if (group := ready("reduce_scatter", group, output)) is None:
        return None
    check_list(input_list, group, output)
    whole = join(input_list, group.backend.reducible, group)
    return start_reduce_scatter(output, whole, op, group, async_op)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send the r-th tensor to process r; output_tensor_list[r] comes from process r."""
    if (group := member("all_to_all", group)) is None:
        return None
    counts = []
    for tensors in output_tensor_list, input_tensor_list:
        check_list(tensors, group)
        counts.append([group.backend.movable(tensor.array).size for tensor in tensors])
    check_dtypes(output_tensor_list[0], input_tensor_list[0])
    wire = join(input_tensor_list, group.backend.movable, group)
    out = group.backend.empty(sum(counts[0]), wire.dtype)
    finish = divide(out, counts[0], output_tensor_list)
    return group.start("all_to_all", (out, counts[0], wire, counts[1]), finish, async_op)


def split(tensor: Tensor, sizes: list[int] | None, group: ProcessGroup) -> tuple[Any, list[int]]:
    """The tensor on the wire, and how many of its elements there belong to each process.

    Raises:
        RuntimeError: the sizes, or equal ones, do not add up to the first dimension.
    """
    rows, wire = tensor.shape[0], group.backend.movable(tensor.array)
    if not sizes:
        sizes = [rows // group.size()] * group.size()
    if len(sizes) != group.size() or sum(sizes) != rows:
        raise RuntimeError(f"parts of {sizes} of {rows} rows for {group.size()} processes")
    return wire, [size * (wire.size // max(rows, 1)) for size in sizes]


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """all_to_all of the parts of one tensor along dimension 0: equal ones, or of given sizes."""
    if (group := ready("all_to_all_single", group, output)) is None:
        return None
    check_tensor(input, group)
    check_dtypes(output, input)
    args = *split(output, output_split_sizes, group), *split(input, input_split_sizes, group)
    return group.start("all_to_all", args, arrival(output, args[0]), async_op, output.array)


if __name__ == "__main__":
    import warnings

    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.simulator import simulate
    from tinytorch.ops.creation import zeros

    for name in "core.printing ops.arithmetic ops.comparison ops.conversion ops.shape".split():
        importlib.import_module(f"tinytorch.{name}")

    def program():
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        x = tensor([float(rank)])
        lists = [[zeros(1) for _ in range(size)] for _ in range(2)]
        gather(x, lists[0] if rank == 1 else None, 1)
        part, total, columns = zeros(1), zeros(1), zeros(3)
        scatter(part, [x + i for i in range(size)] if rank == 2 else None, 2)
        reduce_scatter(total, [x * i for i in range(size)])
        all_to_all(lists[1], [x + 10 * i for i in range(size)])
        all_to_all_single(columns, tensor([10.0 * rank, 10 * rank + 1, 10 * rank + 2]))
        listed = [[tensor.item() for tensor in tensors] for tensors in lists]
        host, letter = group.WORLD.host, np.array([rank])
        host.send(letter, (rank + 1) % size, 0)
        letter, status = np.array([-1]), host.status()
        group.WORLD.start("recv", (letter, None, 0), status=status)
        assert letter == status.source == (rank - 1) % size
        return *listed, part.item(), total.item(), columns.tolist()

    names = "gather to 1", "all_to_all", "scatter from 2", "reduce_scatter", "all_to_all_single"
    for name, *of_ranks in zip(names, *simulate(3, program), strict=True):
        print(f"{name:17}", *of_ranks)
    # -> gather to 1       [0.0, 0.0, 0.0] [0.0, 1.0, 2.0] [0.0, 0.0, 0.0]
    # -> all_to_all        [0.0, 1.0, 2.0] [10.0, 11.0, 12.0] [20.0, 21.0, 22.0]
    # -> scatter from 2    2.0 3.0 4.0
    # -> reduce_scatter    0.0 3.0 6.0
    # -> all_to_all_single [0.0, 10.0, 20.0] [1.0, 11.0, 21.0] [2.0, 12.0, 22.0]

    def mistakes():
        init_process_group("mpi")
        x, found = zeros(2), []
        outside = GroupMember.NON_GROUP_MEMBER
        for mistake in (
            lambda: gather(x),
            lambda: scatter(x),
            lambda: all_to_all_single(x, x, [1]),
        ):
            try:
                mistake()
            except (ValueError, RuntimeError) as error:
                found.append(str(error)[:70])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(all_gather([x], x, outside) or gather(x, [x], 0, outside))
            found.append(scatter(x, [x], 0, outside) or reduce_scatter(x, [x], group=outside))
            found.append(all_to_all([x], [x], outside) or all_to_all_single(x, x, group=outside))
        return found

    for text in simulate(1, mistakes)[0]:
        print(text)
    # -> gather_list must be specified on the destination rank, and only there
    # -> scatter_list must be specified on the source rank, and only there
    # -> parts of [1] of 2 rows for 1 processes
    # -> None
    # -> None
    # -> None
