"""Step 99a: Two processes and a message

One core is not enough for a large network, and threads of one Python do not compute at the same
time. So several processes are needed, on one machine or on many. The first thing to see is that
they share nothing: the demo lets a second process write into a list, and here it stays empty.
Whatever one of them has to know of another must be sent, as a message, and arrives as a copy.

A pipe has two ends. What one process sends into its end, the other one receives from its own:

    rank 0                               rank 1
    links[1].send([1, 2])  -> -> -> ->   links[0].recv()  gives [1, 2]

Each process has a number, its rank, and the same program runs in all of them. It is the rank that
tells them apart: `if rank == 0: send ... else: receive ...`. `recv` waits until there is something.

The trap: two processes that both wait for the other to send first wait for ever. Nothing is wrong
with either of them, so no error is raised: this is a deadlock. The order of sending and receiving
is part of the program.

(MPI, the Message Passing Interface, gives programs just this: a rank, send and recv. PyTorch has
them in torch.distributed.)

New: connect, run.
Try: let both ranks call recv before they send. (Ctrl-C ends it.)
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


notes: list[int] = []


def note(rank: int, links: dict) -> list[int]:
    """Each rank writes its number down. Rank 0 looks what is there when all are done."""
    notes.append(rank)
    if rank != 0:
        links[0].send("done")
        return notes
    for other in links.values():
        other.recv()
    return notes


def swap(rank: int, links: dict, wait_first: bool) -> Any:
    """Two ranks give each other their squares."""
    other = links[1 - rank]
    if wait_first and not other.poll(0.2):  # a recv() would wait here for ever
        return "nothing has come"
    other.send(rank * rank + 10)
    return other.recv()


if __name__ == "__main__":
    print("notes of rank 0:", run(3, note))  # -> notes of rank 0: [0]

    print("sent by rank 1:", run(2, swap, False))  # -> sent by rank 1: 11
    print("both wait first:", run(2, swap, True))  # -> both wait first: nothing has come
