"""Step simulator08: Random numbers of its own for each rank

Real processes share no random numbers: what one draws changes nothing for another. Ranks that are
threads share the default generators, which belong to the process. In the demo both ranks seed with
0 and draw two numbers, with a barrier in between, where the turn passes on. Until now rank 0 got
the first number and the third, since rank 1 had drawn the second by then.

So the generators change with the turn:

    pass_on    keeps those of the rank that has run
    wait       puts those of the next rank in their place

Each rank begins with a copy of what the program has when it calls simulate: the processes that
mpiexec starts have all run the same program up to there. Afterwards the program goes on with its
own. manual_seed also sets the seed of generators that are made later, first_seed, which is kept
with them.

The trap: a copy of the dictionary holds the same generators. They have to be copied, too.

Changed: Turns, simulate.
Try: g in place of copy.copy(g). Which two numbers does rank 0 get?
"""

import copy
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.ops.random import Generator


class Here(threading.local):
    """What a thread knows of its place. Only a simulated rank has mpi and comm."""

    mpi: Any = None  # what stands for the module mpi4py.MPI
    comm: Any = None  # what stands for MPI.COMM_WORLD
    group: Any = None  # the default process group


here = Here()


class Turns:
    """Lets one thread run at a time, in the order of the ranks, so that all runs are the same."""

    def __init__(self, size: int):
        self.changed, self.turn, self.running = threading.Condition(), 0, list(range(size))
        self.error: BaseException | None = None
        # Each rank begins with a copy of the generators that the program has by now.
        self.random = [
            ({k: copy.copy(g) for k, g in Generator.default.items()}, Generator.first_seed)
            for _ in range(size)
        ]

    def wait(self, rank: int) -> None:
        """Wait for this rank's turn.

        Raises:
            SystemExit: another rank has failed, so that all end.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.turn == rank)
        Generator.default, Generator.first_seed = self.random[rank]
        if self.error is not None:
            raise SystemExit

    def pass_on(self, rank: int) -> None:
        """Let the next rank run."""
        self.random[rank] = Generator.default, Generator.first_seed
        with self.changed:
            later = [other for other in self.running if other > rank]
            self.turn = (later or self.running or [rank])[0]
            self.changed.notify_all()

    def leave(self, rank: int, error: BaseException | None) -> None:
        self.running.remove(rank)
        if self.error is None and not isinstance(error, SystemExit):
            self.error = error
        self.pass_on(rank)


class Request:
    """A call that has begun. Test() tells whether it is done; if not, the other ranks go on."""

    def __init__(self, turns: Turns, rank: int, attempt: Callable[["Request"], bool]):
        self.turns, self.rank, self.attempt, self.done = turns, rank, attempt, False

    def Test(self, status: Any = None) -> bool:
        self.status = status
        self.done = self.done or self.attempt(self)
        if not self.done:
            self.turns.pass_on(self.rank)
            self.turns.wait(self.rank)
        return self.done

    def Wait(self) -> None:
        while not self.Test():
            pass


class Status:
    """Who has sent a message, and how long it is."""

    source = count = 0


class MPI:
    """Stands for mpi4py.MPI. A reduction is a NumPy function of two arrays."""

    SUM, PROD, MIN, MAX = np.add, np.multiply, np.minimum, np.maximum
    BAND, BOR, BXOR = np.bitwise_and, np.bitwise_or, np.bitwise_xor
    IN_PLACE, UNDEFINED, ANY_SOURCE = "in place", -1, -1
    Status, Exception = Status, ValueError


def fill(array: np.ndarray, values: np.ndarray) -> None:
    """Write the values over the first elements of the array.

    Raises:
        ValueError: there are more values than elements.
    """
    array.reshape(-1)[: values.size] = values.reshape(-1)


class Comm:
    """Stands for MPI.COMM_WORLD, or for a part of it: ranks that can talk to one another.

    A call that begins with I returns a Request at once. It has the name and arguments of mpi4py's.
    """

    def __init__(self, turns: Turns, board: dict, key: tuple, ranks: list[int], rank: int):
        self.turns, self.board, self.key, self.ranks = turns, board, key, ranks
        self.rank, self.size, self.calls = rank, len(ranks), 0

    def Isend(self, array: np.ndarray, dest: int, tag: int = 0) -> Request:
        letters = self.board.setdefault((self.key, "to", dest), [])
        letters.append((self.rank, tag, array.copy()))
        return Request(self.turns, self.ranks[self.rank], lambda request: True)

    def Irecv(self, array: np.ndarray, source: int = -1, tag: int = 0) -> Request:
        letters = self.board.setdefault((self.key, "to", self.rank), [])

        def attempt(request: Request) -> bool:
            for i, (sender, its_tag, sent) in enumerate(letters):
                if source in (sender, MPI.ANY_SOURCE) and its_tag == tag:
                    fill(array, sent)
                    if request.status is not None:
                        request.status.source, request.status.count = sender, sent.nbytes
                    del letters[i]
                    return True
            return False

        return Request(self.turns, self.ranks[self.rank], attempt)

    def Send(self, array: np.ndarray, dest: int, tag: int = 0) -> None:
        self.Isend(array, dest, tag).Wait()

    def Recv(self, array: np.ndarray, source: int = -1, tag: int = 0) -> None:
        self.Irecv(array, source, tag).Wait()

    def meet(self, part: Any, finish: Callable[[list], None]) -> Request:
        """Put up this rank's part of a call that all make. When all are there: finish(parts)."""
        place = (self.key, self.calls)
        self.calls += 1
        parts = self.board.setdefault(place, {})
        parts[self.rank] = part
        if len(parts) == self.size:
            del self.board[place]  # each has it in hand

        def attempt(request: Request) -> bool:
            if len(parts) == self.size:
                finish([parts[rank] for rank in range(self.size)])
            return len(parts) == self.size

        return Request(self.turns, self.ranks[self.rank], attempt)

    def Iallreduce(self, send: Any, out: np.ndarray, op: Any = np.add) -> Request:
        part = out if send is MPI.IN_PLACE else send
        return self.meet(part.copy(), lambda parts: fill(out, functools.reduce(op, parts)))

    def Ibcast(self, array: np.ndarray, root: int = 0) -> Request:
        return self.meet(array.copy(), lambda parts: fill(array, parts[root]))

    def Ibarrier(self) -> Request:
        return self.meet(None, len)

    def Ireduce(self, send: Any, out: Any, op: Any = np.add, root: int = 0) -> Request:
        part = out if send is MPI.IN_PLACE else send
        target = out if self.rank == root else np.empty_like(part)
        return self.meet(part.copy(), lambda parts: fill(target, functools.reduce(op, parts)))

    def Iallgather(self, send: np.ndarray, out: np.ndarray) -> Request:
        return self.meet(send.copy(), lambda parts: fill(out, np.stack(parts)))

    def Igather(self, send: np.ndarray, out: Any, root: int = 0) -> Request:
        target = out if self.rank == root else np.empty((self.size, send.size), send.dtype)
        return self.Iallgather(send, target)

    def Iscatter(self, send: Any, out: np.ndarray, root: int = 0) -> Request:
        whole = send.reshape(self.size, -1).copy() if self.rank == root else None
        return self.meet(whole, lambda parts: fill(out, parts[root][self.rank]))

    def Ireduce_scatter_block(self, send: np.ndarray, out: np.ndarray, op: Any) -> Request:
        whole = send.reshape(self.size, -1).copy()
        return self.meet(whole, lambda parts: fill(out, functools.reduce(op, parts)[self.rank]))

    def Ialltoallv(self, send: list, out: list) -> Request:
        pieces = np.split(send[0].reshape(-1).copy(), np.cumsum(send[1])[:-1])

        def finish(parts: list) -> None:
            fill(out[0], np.concatenate([part[self.rank] for part in parts]))

        return self.meet(pieces, finish)

    def Split(self, color: int = 0, key: int = 0) -> "Comm | None":
        """A communicator of the ranks that name the same color, in the order of their keys."""
        name, found = (*self.key, self.calls, color), []
        self.meet((color, key, self.rank), found.extend).Wait()
        members = [rank for its_color, _, rank in sorted(found) if its_color == color]
        if color == MPI.UNDEFINED:
            return None
        ranks = [self.ranks[rank] for rank in members]
        return Comm(self.turns, self.board, name, ranks, members.index(self.rank))

    def Free(self) -> None:
        pass


def simulate(size: int, function: Callable, *args: Any) -> list:
    """Call function(*args) in `size` threads, the ranks of a world; their results by rank.

    A rank runs until it waits for a message; then the next one does. In each of them `here.comm` is
    its communicator, which init_process_group("mpi") uses. Random numbers are its own.

    Raises:
        Exception: what the first rank that failed has raised; the others end.
    """
    turns, board, results = Turns(size), {}, [None] * size
    random = Generator.default, Generator.first_seed

    def run(rank: int) -> None:
        error = None
        try:
            turns.wait(rank)
            here.mpi, here.group = MPI, None
            here.comm = Comm(turns, board, (), list(range(size)), rank)
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
    Generator.default, Generator.first_seed = random
    if turns.error is not None:
        raise turns.error
    return results


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed, rand

    def program():
        manual_seed(0)
        drawn = [rand(1).item()]
        here.comm.Ibarrier().Wait()
        drawn.append(rand(1).item())
        return [round(number, 4) for number in drawn]

    manual_seed(1)
    print(simulate(2, program))  # -> [[0.8506, 0.637], [0.8506, 0.637]]
    after = rand(1).item()
    print("the program draws its own:", after == rand(1, generator=manual_seed(1)).item())
    # -> the program draws its own: True
