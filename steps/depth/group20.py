"""Step group20: Who waits for a process that has ended

A process that waits for a result looks for farewells (step group19) ten times a second. If rank 1
has ended, and has begun fewer calls in this group than this process, the result will never come:

    DistBackendError: rank 0, all_reduce: rank 1 has ended without making this call

That is an error that nobody catches, so the job ends with it, and not with status 0.

The number of a call is the count of its group when it began; `start` gives it to the handle.

The trap: a rank may end early and still have done its part. Its tensor is on the way, and another
rank is late. A limit of some seconds after a farewell would fail that job; counting does not.

Changed: Work, ProcessGroup. New: ended_before. It completes farewell.py.
Try: in the demo, let rank 1 of `early` say farewell with [1]. How long does rank 0 wait now?
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


def ended_before(number: int, place: int, status: Any) -> list[int]:
    """The ranks that have ended before they made call `number` of the group at this place."""
    comm, come = Farewell.comm, Farewell.come
    while comm is not None and Farewell.ready.Test() and comm.Iprobe(status=status):
        calls = np.empty(status.count // 8, np.int64)
        comm.Recv(calls, status.source)
        come[status.source] = calls.tolist()
    return [rank for rank, calls in come.items() if sum(calls[place : place + 1]) < number]


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
    number = 0  # of this call, among those that all processes of the group make

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
            DistBackendError: it has not come within the timeout, a process has ended that should
                make this call too, or MPI has reported an error.
        """
        seconds = self.group.timeout if timeout is None else check_timeout(timeout)
        deadline, look = time.monotonic() + seconds, time.monotonic() + 0.1
        while not self.is_completed():
            give_way()
            if time.monotonic() > look:
                self.group.check_presence(self.name, self.number)
                look += 0.1
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

    def check_presence(self, name: str, number: int) -> None:
        """Raises:
        DistBackendError: a process of the group has ended before it made this call.
        """
        for rank in ended_before(number, self.place, self.host.status()):
            if rank in self.ranks:
                raise self.failure(name, f"rank {rank} has ended without making this call")

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
        call = 0
        if name not in P2P:
            call = self.begun = self.begun + 1
        if number is not None:
            array, options = args[number], [x for x in args if isinstance(x, int)]
            kind = array.nbytes, array.dtype.char, *options
            if kind not in seen:
                check = self.compare(name, array, options)
                check.number = call
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
        work.check, work.status, work.number = check, status, call
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
    import importlib
    import types

    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.collectives import all_reduce
    from tinytorch.distributed.simulator import MPI, simulate

    for name in "core.printing ops.arithmetic ops.conversion ops.shape".split():
        importlib.import_module(f"tinytorch.{name}")

    # Simulated ranks are threads, which have no end of their own. These are the letters of rank 1.
    letters, asked = [], []

    def probe(status):
        asked.append(time.monotonic())
        status.source, status.count = 1, 8
        return len(asked) > 1 and len(letters) > 0  # the first time it is not there yet

    done = types.SimpleNamespace(Test=lambda status=None: True)
    Farewell.ready = done
    Farewell.comm = types.SimpleNamespace(
        Iprobe=probe, Recv=lambda calls, source: np.copyto(calls, letters.pop())
    )

    def early():
        init_process_group("mpi")
        if get_rank() == 1:
            letters.append([0])  # no call of the default group
            return
        all_reduce(tensor([1.0]))

    def last():
        init_process_group("mpi")
        x = tensor([1.0])
        work = all_reduce(x, async_op=True)
        if get_rank() == 1:
            letters.append([1])
        work.wait()
        return x.item()

    begun = time.monotonic()
    try:
        simulate(2, early)
    except DistBackendError as error:
        print(error)  # -> rank 0, all_reduce: rank 1 has ended without making this call
    print("within two seconds:", time.monotonic() - begun < 2)  # -> within two seconds: True
    Farewell.come.clear()
    print(simulate(2, last))  # -> [2.0, 2.0]

    # A process outside of a new group keeps a place for it.
    Farewell.comm = None
    comm = types.SimpleNamespace(rank=0, size=2, Ibarrier=lambda: done, Split=lambda *args: None)
    whole = ProcessGroup("mpi", [0, 1], MPIBackend(MPI, comm), 1.0)
    print(whole.part("mpi", [1], 1.0) is GroupMember.NON_GROUP_MEMBER, len(Farewell.groups))
    # -> True 2
