"""Step simulator06: The sum of all ranks, from MPI

The ring of step simulator03 is 15 lines, and right for long arrays. For short ones other ways are
faster (a tree takes log2 n steps), and on one machine shared memory is faster than any message. MPI
libraries choose among a dozen ways, in C. From here on the sum is one call:

    comm.Iallreduce(MPI.IN_PLACE, x).Wait()      x is replaced by the sum of all, in all ranks

A call that all ranks of a communicator make together is a collective. The simulation needs one
method for all of them, `meet`: each rank puts up its part, and when all parts are there, each takes
its result. Ibcast gives all ranks the array of one; Ibarrier only waits until all have come.

The trap: nothing names a collective. The third call of one rank meets the third call of the others,
whatever it is. So all ranks must make the same calls in the same order, and `if rank == 0:` around
a collective is a deadlock.

(MPI_IN_PLACE: the array that is read is the one that is written.)

Changed: Comm, simulate. New: MPI.
Try: let rank 1 call Ibcast before Iallreduce. What do the ranks have?
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np


class Here(threading.local):
    """What a thread knows of its place."""

    comm: Any = None  # what stands for MPI.COMM_WORLD


here = Here()


class Turns:
    """Lets one thread run at a time, in the order of the ranks, so that all runs are the same."""

    def __init__(self, size: int):
        self.changed, self.turn, self.running = threading.Condition(), 0, list(range(size))

    def wait(self, rank: int) -> None:
        """Wait for this rank's turn."""
        with self.changed:
            self.changed.wait_for(lambda: self.turn == rank)

    def pass_on(self, rank: int) -> None:
        """Let the next rank run."""
        with self.changed:
            later = [other for other in self.running if other > rank]
            self.turn = (later or self.running or [rank])[0]
            self.changed.notify_all()

    def leave(self, rank: int) -> None:
        self.running.remove(rank)
        self.pass_on(rank)


class Request:
    """A call that has begun. Test() tells whether it is done; if not, the other ranks go on."""

    def __init__(self, turns: Turns, rank: int, attempt: Callable[["Request"], bool]):
        self.turns, self.rank, self.attempt, self.done = turns, rank, attempt, False

    def Test(self) -> bool:
        self.done = self.done or self.attempt(self)
        if not self.done:
            self.turns.pass_on(self.rank)
            self.turns.wait(self.rank)
        return self.done

    def Wait(self) -> None:
        while not self.Test():
            pass


class MPI:
    """Stands for mpi4py.MPI. A reduction is a NumPy function of two arrays."""

    SUM, MAX = np.add, np.maximum
    IN_PLACE = "in place"


def fill(array: np.ndarray, values: np.ndarray) -> None:
    """Write the values over the first elements of the array.

    Raises:
        ValueError: there are more values than elements.
    """
    array.reshape(-1)[: values.size] = values.reshape(-1)


class Comm:
    """Stands for MPI.COMM_WORLD: ranks that can talk to one another.

    A call that begins with I returns a Request at once. It has the name and arguments of mpi4py's.
    """

    def __init__(self, turns: Turns, board: dict, key: tuple, ranks: list[int], rank: int):
        self.turns, self.board, self.key, self.ranks = turns, board, key, ranks
        self.rank, self.size, self.calls = rank, len(ranks), 0

    def Isend(self, array: np.ndarray, dest: int, tag: int = 0) -> Request:
        letters = self.board.setdefault((self.key, "to", dest), [])
        letters.append((self.rank, tag, array.copy()))
        return Request(self.turns, self.ranks[self.rank], lambda request: True)

    def Irecv(self, array: np.ndarray, source: int, tag: int = 0) -> Request:
        letters = self.board.setdefault((self.key, "to", self.rank), [])

        def attempt(request: Request) -> bool:
            for i, (sender, its_tag, sent) in enumerate(letters):
                if source == sender and its_tag == tag:
                    fill(array, sent)
                    del letters[i]
                    return True
            return False

        return Request(self.turns, self.ranks[self.rank], attempt)

    def Send(self, array: np.ndarray, dest: int, tag: int = 0) -> None:
        self.Isend(array, dest, tag).Wait()

    def Recv(self, array: np.ndarray, source: int, tag: int = 0) -> None:
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


def simulate(size: int, function: Callable, *args: Any) -> list:
    """Call function(*args) in `size` threads, the ranks of a world; their results by rank.

    A rank runs until it waits for a message; then the next one does. In each of them `here.comm` is
    its communicator.
    """
    turns, board, results = Turns(size), {}, [None] * size

    def run(rank: int) -> None:
        turns.wait(rank)
        here.comm = Comm(turns, board, (), list(range(size)), rank)
        results[rank] = function(*args)
        turns.leave(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


if __name__ == "__main__":

    def program():
        comm = here.comm
        total, largest = np.array([1.0, 2.0]) * 10**comm.rank, np.array([comm.rank, -comm.rank])
        comm.Iallreduce(MPI.IN_PLACE, total).Wait()
        highest = np.zeros_like(largest)
        comm.Iallreduce(largest, highest, MPI.MAX).Wait()
        first = np.array([comm.rank + 5.0])
        comm.Ibcast(first, root=2).Wait()
        request = comm.Ibarrier()
        early = request.Test()  # the last rank finds all others there
        request.Wait()
        return total.tolist(), highest.tolist(), first.tolist(), early

    for result in simulate(3, program):
        print(*result)
    # -> [111.0, 222.0] [2, 0] [7.0] False
    # -> [111.0, 222.0] [2, 0] [7.0] False
    # -> [111.0, 222.0] [2, 0] [7.0] True
