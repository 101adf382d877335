"""Step simulator04: Ranks as threads that take turns

Step 94b made ranks threads, so that they can be looked into. But threads run in an order that
changes from run to run, and so would everything that demos print. So only one thread runs at a
time, in the order of the ranks. A rank runs until it has to wait; then it passes the turn on, and
the next one runs:

    turn     0        1        2        0        1        2
             rank 0   rank 1   rank 2   rank 0   rank 1   rank 2
             ...runs until it waits

threading.Condition is the tool: wait_for sleeps until its question is true, and notify_all wakes
all threads to ask again. No real parallelism is lost that matters here: these ranks show what is
sent, not how fast it is.

The trap: a rank that ends without passing the turn on leaves all others asleep. `leave` removes it
from the ranks that run, and gives the turn to the next.

New: Turns, simulate. (connect, run and the sums by pipes are dropped: MPI's calls replace them.)
Try: leave out notify_all. (Ctrl-C ends it.)
"""

import threading
from collections.abc import Callable
from typing import Any


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


def simulate(size: int, function: Callable, *args: Any) -> list:
    """Call function(rank, turns, *args) in `size` threads, the ranks; their results by rank."""
    turns, results = Turns(size), [None] * size

    def run(rank: int) -> None:
        turns.wait(rank)
        results[rank] = function(rank, turns, *args)
        turns.leave(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


if __name__ == "__main__":

    def program(rank, turns, written):
        for step in range(2):
            written.append((rank, step))
            turns.pass_on(rank)
            turns.wait(rank)
        return 10 * rank

    written = []
    print(simulate(3, program, written))  # -> [0, 10, 20]
    print(written)  # -> [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
