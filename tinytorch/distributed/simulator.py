"""Ranks without MPI: threads of one process that take turns, and talk as MPI's processes do."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np


class Here(threading.local):
    """What a thread knows of its place: in a simulated rank its world, else None."""

    mpi: Any = None  # what stands for the module mpi4py.MPI
    comm: Any = None  # what stands for MPI.COMM_WORLD
    group: Any = None  # the default process group


here = Here()


class Turns:
    """Lets one thread run at a time, in the order of the ranks, so that each run is the same."""

    def __init__(self, size: int):
        self.changed, self.turn, self.running = threading.Condition(), 0, list(range(size))
        self.error: BaseException | None = None

    def wait(self, rank: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.turn == rank)

    def pass_on(self, rank: int) -> None:
        """Let the other ranks run until each of them waits, ends or fails.

        Raises:
            SystemExit: another rank has failed, and the job ends.
        """
        with self.changed:
            later = [other for other in self.running if other > rank]
            self.turn = (later or self.running or [rank])[0]
            self.changed.notify_all()
        if rank in self.running:
            self.wait(rank)
            if self.error is not None:
                raise SystemExit

    def leave(self, rank: int, error: BaseException | None = None) -> None:
        self.running.remove(rank)
        if self.error is None and not isinstance(error, SystemExit):
            self.error = error
        self.pass_on(rank)


class Request:
    """A call that has begun. Test() tells whether it is done, and lets the other ranks go on."""

    def __init__(self, turns: Turns, rank: int, attempt: Callable[[], bool]):
        self.turns, self.rank, self.attempt, self.done = turns, rank, attempt, False
        self.source, self.count = -1, 0  # of a message that was received

    def Test(self, status: Any = None) -> bool:
        if not self.done and not self.attempt(self):
            self.turns.pass_on(self.rank)
        elif not self.done:
            self.done = True
        if self.done and status is not None:
            status.source, status.count = self.source, self.count
        return self.done

    def Wait(self) -> None:
        while not self.Test():
            pass


class Status:
    """Who has sent a message, and how long it was."""

    source, count = -1, 0

    def Get_source(self) -> int:
        return self.source

    def Get_count(self, datatype: Any) -> int:
        return self.count


class MPI:
    """Stands for mpi4py.MPI: its constants. A reduction is a NumPy function of two arrays."""

    SUM, PROD, MIN, MAX = np.add, np.multiply, np.minimum, np.maximum
    BAND, BOR, BXOR = np.bitwise_and, np.bitwise_or, np.bitwise_xor
    IN_PLACE, UNDEFINED, COMM_NULL, ANY_SOURCE, BYTE = "in place", -1, None, -1, "byte"
    Status = Status
    Exception = RuntimeError


class Comm:
    """Stands for MPI.COMM_WORLD, or for a part of it: the ranks that can talk to one another."""

    def __init__(self, turns: Turns, board: dict, key: tuple, ranks: list[int], rank: int):
        self.turns, self.board, self.key, self.ranks = turns, board, key, ranks
        self.rank, self.size, self.calls = rank, len(ranks), 0

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def request(self, attempt: Callable[[], bool]) -> Request:
        return Request(self.turns, self.ranks[self.rank], attempt)

    # Messages: the board has a list for each receiver.

    def Isend(self, array: np.ndarray, dest: int, tag: int = 0) -> Request:
        letters = self.board.setdefault((self.key, "to", dest), [])
        letters.append((self.rank, tag, array.copy()))
        return self.request(lambda request: True)

    def Irecv(self, array: np.ndarray, source: int = -1, tag: int = 0) -> Request:
        letters = self.board.setdefault((self.key, "to", self.rank), [])

        def attempt(request: Request) -> bool:
            for i, (sender, its_tag, sent) in enumerate(letters):
                if source in (sender, MPI.ANY_SOURCE) and its_tag == tag:
                    fill(array, sent)
                    request.source, request.count = sender, sent.nbytes
                    del letters[i]
                    return True
            return False

        return self.request(attempt)

    def Send(self, array: np.ndarray, dest: int, tag: int = 0) -> None:
        self.Isend(array, dest, tag).Wait()

    def Recv(self, array: np.ndarray, source: int = -1, tag: int = 0) -> None:
        self.Irecv(array, source, tag).Wait()

    # Collectives: the board has the parts of all ranks, for each call.

    def meet(self, part: Any, finish: Callable[[list], None]) -> Request:
        """Put up this rank's part of a call; when all parts are there, finish(parts) is called."""
        place = (self.key, self.calls)
        self.calls += 1
        parts = self.board.setdefault(place, [None] * self.size)
        parts[self.rank] = (part,)
        if None not in parts:
            del self.board[place]  # all have it in hand

        def attempt(request: Request) -> bool:
            if None in parts:
                return False
            finish([part for (part,) in parts])
            return True

        return self.request(attempt)

    def Ibarrier(self) -> Request:
        return self.meet(0, lambda parts: None)

    def Ibcast(self, array: np.ndarray, root: int = 0) -> Request:
        return self.meet(array.copy(), lambda parts: fill(array, parts[root]))

    def Iallreduce(self, send: Any, out: np.ndarray, op: Any = np.add) -> Request:
        part = out if send is MPI.IN_PLACE else send
        return self.meet(part.copy(), lambda parts: fill(out, functools.reduce(op, parts)))

    def Ireduce(self, send: Any, out: Any, op: Any = np.add, root: int = 0) -> Request:
        part = out if send is MPI.IN_PLACE else send
        target = out if self.rank == root else np.empty_like(part)
        return self.meet(part.copy(), lambda parts: fill(target, functools.reduce(op, parts)))

    def Iallgather(self, send: np.ndarray, out: np.ndarray) -> Request:
        return self.meet(send.copy(), lambda parts: fill(out, np.stack(parts)))

    def Igather(self, send: np.ndarray, out: np.ndarray | None, root: int = 0) -> Request:
        target = out if self.rank == root else np.empty((self.size, send.size), send.dtype)
        return self.Iallgather(send, target)

    def Iscatter(self, send: np.ndarray | None, out: np.ndarray, root: int = 0) -> Request:
        part = None if send is None else send.reshape(self.size, -1).copy()
        return self.meet(part, lambda parts: fill(out, parts[root][self.rank]))

    def Ireduce_scatter_block(self, send: np.ndarray, out: np.ndarray, op: Any) -> Request:
        def finish(parts: list) -> None:
            fill(out, functools.reduce(op, parts).reshape(self.size, -1)[self.rank])

        return self.meet(send.copy(), finish)

    def Ialltoallv(self, send: list, out: list) -> Request:
        pieces = np.split(send[0].copy(), np.cumsum(send[1])[:-1])
        return self.meet(
            pieces, lambda parts: fill(out[0], np.concatenate([p[self.rank] for p in parts]))
        )

    def Allreduce(self, send: Any, out: np.ndarray, op: Any = np.add) -> None:
        self.Iallreduce(send, out, op).Wait()

    # Parts of a communicator.

    def Split(self, color: int = 0, key: int = 0) -> "Comm | None":
        """A communicator of those ranks that name the same color; they are ordered by key."""
        found: list = []
        name = (*self.key, self.calls, color)
        self.meet((color, key, self.rank), found.extend).Wait()
        members = [rank for its_color, _, rank in sorted(found) if its_color == color]
        if color == MPI.UNDEFINED:
            return MPI.COMM_NULL
        ranks = [self.ranks[rank] for rank in members]
        return Comm(self.turns, self.board, name, ranks, members.index(self.rank))

    def Dup(self) -> "Comm":
        return self.Split(0, self.rank)

    def Free(self) -> None:
        pass


def fill(array: np.ndarray, values: np.ndarray) -> None:
    """Write `values` over the first elements of `array`.

    Raises:
        RuntimeError: there are more values than elements.
    """
    if values.size > array.size:
        raise MPI.Exception(f"Message truncated: {values.size} elements for {array.size}")
    array.reshape(-1)[: values.size] = values.reshape(-1)


def simulate(size: int, function: Callable, *args: Any) -> list:
    """Call function(*args) in `size` threads, the ranks of a world; their results by rank.

    In each of them `here.comm` is the rank's communicator, and init_process_group("mpi") uses it.
    A rank runs until it waits for a message; then the next one does.

    Raises:
        Exception: what the first rank that failed has raised; the others end.
    """
    turns, board, results = Turns(size), {}, [None] * size

    def run(rank: int) -> None:
        turns.wait(rank)
        here.mpi, here.comm = MPI, Comm(turns, board, (), list(range(size)), rank)
        here.group = None
        error = None
        try:
            results[rank] = function(*args)
        except BaseException as raised:
            raised.add_note(f"raised by rank {rank} of {size}")
            error = raised
        turns.leave(rank, error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if turns.error is not None:
        raise turns.error
    return results
