"""Step simulator05: Messages with MPI's names: Isend, Irecv, Test, Wait

A message between the ranks of step simulator04 is a copy on a board that all of them see. Its calls
have the names and arguments of mpi4py, so that the same lines run with MPI as well. There the
communicator is MPI.COMM_WORLD, and each rank is a process:

    pip install mpi4py mpich; mpiexec -n 3 python program.py

A call that begins with I only begins (I: immediate). It returns a request:

    request = comm.Irecv(array, source=0)    begin; the array is filled later
    request.Test()                           has it come? If not, the other ranks go on meanwhile
    request.Wait()                           ask until it has come

Send and Recv are the same with a Wait. The tag is a number that tells messages between the same two
ranks apart: a receiver that asks for tag 7 does not get tag 0.

MPI moves memory, not Python objects: the receiver has to provide an array that is large enough.

The trap: the array of Irecv belongs to the call until Test has said True. What is read before is
old.

Changed: simulate. New: Here, here, Request, fill, Comm.
Try: let rank 1 ask for tag=3, and then for no tag. Which message does it get?
"""

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
        self.rank, self.size = rank, len(ranks)

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
        comm, x = here.comm, np.zeros(2)
        if comm.rank == 0:
            comm.Send(np.array([1.0, 2.0]), 1, tag=3)
            comm.Send(np.array([5.0, 6.0]), 1, tag=7)
            comm.Recv(x, 1)
            return x.tolist()
        request = comm.Irecv(x, 0, tag=7)
        before = x.tolist()
        done = request.Test()
        comm.Send(x + 1, 0)
        return before, done, x.tolist()

    for result in simulate(2, program):
        print(result)
    # -> [6.0, 7.0]
    # -> ([0.0, 0.0], True, [5.0, 6.0])

    def too_short():
        comm = here.comm
        if comm.rank == 0:
            comm.Isend(np.zeros(3), 1)
            return None
        early = comm.Irecv(np.zeros(3), 0, tag=9).Test()
        try:
            comm.Recv(np.zeros(2), 0)
        except ValueError as error:
            return early, str(error)

    print(simulate(2, too_short)[1])
    # -> (False, 'could not broadcast input array from shape (3,) into shape (2,)')
