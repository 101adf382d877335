"""Step simulator01: Real processes and pipes

Step 94a connected two processes by a pipe. Here `connect` makes a pipe for each pair of any number
of ranks, and `run` starts the processes. This one is rank 0.

The trap: two processes that wait for each other wait for ever, without an error. This is a
deadlock. The demo shows it with poll(0.2), which gives up after 0.2 seconds.

(MPI, the Message Passing Interface, gives programs a rank, send and recv. Step simulator05 uses its
names.)

Changed: connect, swap. New: run.
Try: remove the poll, and let both ranks wait first. (Ctrl-C ends it.)
"""

import itertools
from collections.abc import Callable
from multiprocessing import Pipe, Process
from typing import Any


def connect(size: int) -> list[dict]:
    """For each rank, its ends of the pipes to the others: links[0][1] is that of rank 0 to 1."""
    links: list[dict] = [{} for _ in range(size)]
    for a, b in itertools.combinations(range(size), 2):
        links[a][b], links[b][a] = Pipe()
    return links


def run(size: int, function: Callable, *args: Any) -> Any:
    """Call function(rank, its links, *args) in `size` processes. This one is rank 0.

    Returns what rank 0 does.
    """
    links = connect(size)
    others = [Process(target=function, args=(rank, links[rank], *args)) for rank in range(1, size)]
    for process in others:
        process.start()
    result = function(0, links[0], *args)
    for process in others:
        process.join()
    return result


def swap(rank: int, links: dict, notes: list, wait_first: bool) -> Any:
    """Two ranks send each other a number, and each writes its own down."""
    notes.append(10 + rank)
    if wait_first and not links[1 - rank].poll(0.2):  # a recv() would wait here for ever
        return "nothing has come"
    links[1 - rank].send(10 + rank)
    return links[1 - rank].recv()


if __name__ == "__main__":
    notes = []
    print("sent by rank 1:", run(2, swap, notes, False))  # -> sent by rank 1: 11
    print("written here:", notes)  # -> written here: [10]
    print("both wait first:", run(2, swap, notes, True))  # -> both wait first: nothing has come
