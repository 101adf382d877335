"""Step group16: Real processes in the package's dress

Step 94e ran ranks as processes under mpiexec. The groups of this run know only `here.comm`, which
simulated ranks have. The same program should run in both ways.

`world` returns MPI and its communicator: those of the simulation in a simulated rank, and mpi4py's
MPI and COMM_WORLD in a real process. mpi4py is imported inside the function, because importing it
starts MPI, which `import tinytorch` should not do. If it is missing, the error names the extra to
install.

is_mpi_available asks only whether mpi4py is installed: find_spec looks for the file, and does not
import it.

The trap: mpi4py may be installed where the MPI library is not. Then the import raises RuntimeError,
and `world` treats it as it treats ImportError.

Changed: init_process_group. New: world, is_mpi_available.
Try: with MPI installed, import init_process_group, get_rank and get_world_size from
tinytorch.distributed, print rank and size, and start the file with mpiexec -n 2 and without.
"""

import datetime
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.version import bump_version
from tinytorch.distributed.simulator import Here, here
from tinytorch.distributed.types import DistBackendError, ReduceOp


def is_available() -> bool:
    """Whether mpi4py is installed: pip install mpi4py mpich."""
    return importlib.util.find_spec("mpi4py") is not None


is_mpi_available = is_available


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


default_pg_timeout = datetime.timedelta(minutes=30)


SPINS = range(200)  # how often to look for a result before others may have the core


give_way = getattr(os, "sched_yield", lambda: time.sleep(0))  # to another process on this core


# The calls of a backend, and which argument of each has the same size and type in all processes.
CALLS = {
    **dict.fromkeys("all_reduce broadcast reduce scatter reduce_scatter".split(), 0),
    **dict.fromkeys("all_gather gather".split(), 1),
    **dict.fromkeys("all_to_all barrier send recv".split()),
}


def check_timeout(timeout: Any) -> float:
    """Seconds. Raises TypeError: it is not a timedelta."""
    if not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"Expected timeout of type datetime.timedelta, got {timeout!r}")
    return timeout.total_seconds()


class Work:
    """A collective that has begun. Its tensors are to be left alone until it is complete."""

    check: "Work | None" = None  # of what the others call: its error comes first
    status: Any = None  # where MPI writes who has sent a message, and how long it is

    def __init__(self, group: "ProcessGroup", name: str, request: Any, finish: Callable | None):
        self.group, self.name, self.request, self.finish = group, name, request, finish
        self.done = False

    def is_completed(self) -> bool:
        """Whether the result is there. Asking lets all calls of this process make progress."""
        if not self.done and (self.check is None or self.check.is_completed()):
            self.done = True  # also after an error
            try:
                self.done = self.request.Test(self.status)
            except self.group.errors as error:
                raise self.group.failure(self.name, error) from None
            if self.done and self.finish is not None:
                self.finish()
        return self.done

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Wait until the result is there.

        Raises:
            DistBackendError: it has not come within the timeout, or MPI has reported an error.
        """
        seconds = self.group.timeout if timeout is None else check_timeout(timeout)
        deadline = time.monotonic() + seconds
        while not self.is_completed():
            give_way()
            if time.monotonic() > deadline:
                raise self.group.failure(
                    self.name, f"timed out after {seconds:g} s: did all processes make this call?"
                )
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
        timeout: how long a call may wait for the others, in seconds.
    """

    def __init__(self, name: str, ranks: list[int], host: MPIBackend, timeout: float):
        self.name, self.ranks, self.host, self.timeout = name, ranks, host, timeout
        self.backend = host
        self.errors, self.array_type = (host.error, self.backend.error), self.backend.xp.ndarray
        # For each call: the backend's method, the argument to compare, the kinds that have been.
        self.calls = {c: (getattr(self.backend, c, None), n, set()) for c, n in CALLS.items()}
        self.running: list[Work] = []  # what has begun, and may not be complete
        self.detail = os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL"

    def rank(self) -> int:
        return self.host.rank

    def size(self) -> int:
        return self.host.size

    def failure(self, name: str, reason: Any) -> DistBackendError:
        """The error of a call. After it, this process can only end the job."""
        return DistBackendError(f"rank {self.ranks[self.rank()]}, {name}: {reason}")

    def compare(self, name: str, array: Any, options: list[int]) -> Work:
        """Begin to check that all processes make the same call."""
        # An integer among the arguments is a ReduceOp, which has a name, or the root.
        words = [getattr(x, "name", f"root {x}") for x in options]
        text = " ".join([f"{name} of {array.dtype.name} {array.shape}", *words]).encode()[:100]
        mine, texts = np.zeros(100, np.uint8), np.empty((self.size(), 100), np.uint8)
        mine[: len(text)] = memoryview(text)

        def finish() -> None:
            found = [bytes(row).rstrip(b"\0") for row in texts]
            if found.count(text) < self.size():
                shown = [row.decode() if row.isascii() else "something else" for row in found]
                calls = [f"rank {r} calls {c}" for r, c in zip(self.ranks, shown, strict=True)]
                raise self.failure(name, f"mismatch between the processes: {', '.join(calls)}")

        return Work(self, name, self.host.all_gather(texts, mine), finish)

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
        """Begin a call of the backend, and without async_op wait for its result.

        It is compared with the calls of the other processes when it is new to this one; with the
        environment variable TORCH_DISTRIBUTED_DEBUG=DETAIL each time.
        """
        check, (begin, number, seen) = None, self.calls[name]
        if number is not None:
            array, options = args[number], [x for x in args if isinstance(x, int)]
            kind = array.nbytes, array.dtype.char, *options
            if kind not in seen:
                check = self.compare(name, array, options)
                if not self.detail:
                    seen.add(kind)
                if not async_op:
                    check.wait()
        try:
            request = (begin if backend is None else getattr(backend, name))(*args)
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
        work.check, work.status = check, status
        # Keep the memory that MPI still reads or writes, also if the program drops the handle.
        self.running = [each for each in self.running if not each.is_completed()] + [work]
        if not async_op:
            work.wait()
        return work if async_op else None

    def part(self, name: str, ranks: list[int], timeout: float) -> "ProcessGroup | object":
        """The group of some of its members, with a communicator of its own. All members call it."""
        self.start("barrier", ())  # which a timeout ends
        host = self.host.part(self.ranks[self.rank()] in ranks)
        if host is None:
            return GroupMember.NON_GROUP_MEMBER
        return ProcessGroup(name, ranks, host, timeout)


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


def init_process_group(
    backend: str | None = None, timeout: datetime.timedelta | None = None
) -> None:
    """Make the group of all processes that mpiexec has started.

    Args:
        timeout: how long a call waits for the other processes: 30 minutes.

    Raises:
        ValueError: there is a group already.
        RuntimeError: mpi4py or MPI is missing.
    """
    seconds = check_timeout(default_pg_timeout if timeout is None else timeout)
    if here.group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    name = (backend or "mpi").lower()
    mpi, comm = world()
    whole = ProcessGroup("mpi", list(range(comm.size)), MPIBackend(mpi, comm), seconds)
    # A communicator of its own: messages of the program's own use of MPI do not come between.
    set_default_group(whole.part(name, whole.ranks, seconds))


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


def new_group(
    ranks: list[int] | None = None,
    timeout: datetime.timedelta | None = None,
    backend: str | None = None,
) -> ProcessGroup | object:
    """A group of the processes with these global ranks. All processes must call it, in one order.

    Returns GroupMember.NON_GROUP_MEMBER to the others.
    Raises:
        ValueError: a rank occurs twice, or does not exist; there is no default group.
    """
    whole = default_group()
    seconds = whole.timeout if timeout is None else check_timeout(timeout)
    ranks = sorted(whole.ranks if ranks is None else ranks)
    if len(set(ranks)) < len(ranks) or not set(ranks) <= set(whole.ranks):
        raise ValueError(f"the ranks of a group should differ and exist, got {ranks}")
    return whole.part((backend or whole.name).lower(), ranks, seconds)


if __name__ == "__main__":
    import sys
    import types

    from tinytorch.distributed.simulator import simulate

    # Stands for mpi4py with two processes: this one, and one that never answers.
    comm = types.SimpleNamespace(rank=1, size=2)
    mpi4py = types.ModuleType("mpi4py")
    mpi4py.MPI = types.SimpleNamespace(COMM_WORLD=comm)

    def with_mpi4py(package, call):
        """What the call returns or raises when `package` is mpi4py; None: it is not installed."""
        kept = sys.modules.get("mpi4py")
        sys.modules["mpi4py"] = package
        try:
            return call()
        except RuntimeError as error:
            return str(error).split(" (")[0]
        finally:
            sys.modules.pop("mpi4py")
            if kept is not None:
                sys.modules["mpi4py"] = kept

    def program():
        init_process_group("mpi")
        return get_rank(), get_world_size()

    print(simulate(2, program))  # -> [(0, 2), (1, 2)]
    print(with_mpi4py(None, world))  # -> process groups need mpi4py and an MPI library
    print(with_mpi4py(mpi4py, world)[1].rank)  # -> 1
    print("MPI is here:", is_mpi_available())  # -> ...
