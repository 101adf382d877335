"""Step group19: A process says farewell when it ends

Step group18 ends the job when a process fails. A process can also end as if all were well, while
the others still wait for it: sys.exit(0) in one branch, or a loop that is shorter on one rank.

    sys.exit(0) on rank 1     rank 0 waits for the time limit: half an hour
    os._exit(0) on rank 1     no atexit runs; mpiexec ends rank 0, and calls the job a success

Nobody can see from outside whether rank 1 owes the others a call. So each group counts the calls of
all that this process has begun, and at its end the process sends these counts to all others. This
is its farewell; step group20 reads it. os._exit is replaced by a function that says farewell too,
if the status is 0: with another status mpiexec ends the job by itself.

Farewells have a communicator of their own; Idup makes it while the program goes on. The counts are
in the order in which the groups were made, which is the same in all processes: also one that is not
in a new group keeps a place for it. A send and its recv are calls of two processes: they do not
count (P2P).

The trap: a farewell needs that communicator, which is there when all processes have begun it. So
say_farewell waits for it. MPI would wait as well, at the end of the process.

Changed: ProcessGroup, init_process_group. New: Farewell, say_farewell, promise_farewell, P2P.
Try: in the demo, end by os._exit(3). Why is there no farewell?
"""

import atexit
import datetime
import os
import time
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from tinytorch.core.version import bump_version
from tinytorch.distributed.mpi import Job, MPIBackend, end_job, world
from tinytorch.distributed.simulator import Here, here
from tinytorch.distributed.types import DistBackendError


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


default_pg_timeout = datetime.timedelta(minutes=30)


SPINS = range(200)  # how often to look for a result before others may have the core


give_way = getattr(os, "sched_yield", lambda: time.sleep(0))  # to another process on this core


# By the name of a backend: a function that makes what moves tensors from what moves objects.
BACKENDS: dict[str, Callable] = dict.fromkeys(["mpi", "gloo"], lambda host: host)


# The calls of a backend, and which argument of each has the same size and type in all processes.
CALLS = {
    **dict.fromkeys("all_reduce broadcast reduce scatter reduce_scatter".split(), 0),
    **dict.fromkeys("all_gather gather".split(), 1),
    **dict.fromkeys("all_to_all barrier send recv".split()),
}


P2P = {"send", "recv"}  # the calls of two processes


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
        self.backend = BACKENDS[name](host)
        self.errors, self.array_type = (host.error, self.backend.error), self.backend.xp.ndarray
        # For each call: the backend's method, the argument to compare, the kinds that have been.
        self.calls = {c: (getattr(self.backend, c, None), n, set()) for c, n in CALLS.items()}
        self.running: list[Work] = []  # what has begun, and may not be complete
        self.detail = os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL"
        self.begun, self.place = 0, len(Farewell.groups)  # its calls so far; where it stands
        if here.comm is None:
            Farewell.groups.append(self)

    def rank(self) -> int:
        return self.host.rank

    def size(self) -> int:
        return self.host.size

    def failure(self, name: str, reason: Any) -> DistBackendError:
        """The error of a call. After it, this process can only end the job."""
        Job.broken = here.comm is None  # simulated ranks are threads, and end by themselves
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
        if name not in P2P:
            self.begun += 1
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
        """The group of some of its members, with a communicator of its own. All members call it.

        Raises:
            ValueError: there is no backend of this name.
        """
        if name not in BACKENDS:
            raise ValueError(f"Invalid backend: '{name}' is not one of {', '.join(BACKENDS)}")
        self.start("barrier", ())  # which a timeout ends
        host = self.host.part(self.ranks[self.rank()] in ranks)
        if host is None:
            Farewell.groups.append(None)
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
    backend: str | None = None,
    init_method: str | None = None,
    timeout: datetime.timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
) -> None:
    """Make the group of all processes that mpiexec, distributed.run or mp.spawn has started.

    Args:
        backend: "mpi"; "nccl" for tensors on GPUs; "gloo", which MPI serves here.
        init_method: "env://" or another way of PyTorch's; MPI itself finds the processes.
        timeout: how long a call waits for the other processes: 30 minutes.
        world_size, rank: checked, where they are given or in the environment; MPI knows them.

    Raises:
        ValueError: there is a group already, or world_size or rank are not what MPI says.
        RuntimeError: mpi4py or MPI is missing.
    """
    seconds = check_timeout(default_pg_timeout if timeout is None else timeout)
    if here.group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    name = (backend or "mpi").lower()
    mpi, comm = world()
    if here.comm is None:
        promise_farewell(mpi)
    for what, given, true in ("world_size", world_size, comm.size), ("rank", rank, comm.rank):
        if given == -1 and here.comm is None:
            given = int(os.environ.get(what.upper(), -1))
        if given not in (-1, true):
            raise ValueError(
                f"{what} is {given}, but MPI says {true}. Start the program with mpiexec or "
                f"python -m tinytorch.distributed.run"
            )
    if name == "gloo" and comm.rank == 0:
        warnings.warn("the backend gloo is served by MPI", stacklevel=2)
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
        ValueError: a rank occurs twice, or does not exist; there is no default group, or no such
            backend.
    """
    whole = default_group()
    seconds = whole.timeout if timeout is None else check_timeout(timeout)
    ranks = sorted(whole.ranks if ranks is None else ranks)
    if len(set(ranks)) < len(ranks) or not set(ranks) <= set(whole.ranks):
        raise ValueError(f"the ranks of a group should differ and exist, got {ranks}")
    return whole.part((backend or whole.name).lower(), ranks, seconds)


if __name__ == "__main__":
    import types

    from tinytorch.distributed.simulator import MPI

    # Stands for mpi4py with two processes: this one, which is rank 0, and another.
    noted, at_exit = [], []
    done = types.SimpleNamespace(Test=lambda status=None: True, Wait=lambda: None)
    comm = types.SimpleNamespace(
        rank=0,
        size=2,
        Idup=lambda: (comm, done),
        Isend=lambda calls, rank: noted.append(f"{calls} to rank {rank}"),
        Ibarrier=lambda: done,
        Split=lambda color, key: comm if color == 0 else None,
        Abort=lambda code: noted.append("Abort"),
        Free=lambda: None,
    )
    mpi = types.SimpleNamespace(
        COMM_WORLD=comm,
        Is_finalized=lambda: False,
        Finalize=lambda: noted.append("Finalize"),
        **{name: getattr(MPI, name) for name in dir(MPI) if name[0] != "_"},
    )
    # Notes what would end this process, and keeps what would run at its exit.
    real = os._exit, atexit.register
    os._exit, atexit.register = lambda status: noted.append(f"ends with {status}"), at_exit.append
    world = lambda: (mpi, comm)  # noqa: E731

    init_process_group("mpi")
    new_group([1])
    default_group().start("barrier", ())
    print([group and group.begun for group in Farewell.groups])  # -> [1, 2, None]
    os._exit(0)
    print(noted)  # -> ['[1 2 0] to rank 1', 'Finalize', 'ends with 0']
    destroy_process_group()
    init_process_group("mpi")  # it is promised already
    at_exit[0]()
    print(noted[3:], len(at_exit))  # -> ['[1 2 0 1 0] to rank 1'] 1
    Job.broken = True
    os._exit(0)
    print(noted[4:])  # -> ['Abort', 'Finalize', 'ends with 0']
    Job.broken, Farewell.comm, (os._exit, atexit.register) = False, None, real
