"""Step simulator02: The sum of all ranks, through one of them, over pipes

Step 94c made the sum by sending all to rank 0: right, and it does not scale. The demo counts the
arrays for processes with pipes: with six ranks rank 0 moves ten arrays, and with 1,000 ranks it
would move 1,998.

The trap: rank 0 has to receive from each rank before it sends to any. A rank that sends twice
before it receives would leave the second array in the pipe, for the next sum.

New: all_to_one, check_total.
Try: give rank 2 an array of another length. Which rank fails, and what do the others do? (Ctrl-C)
"""

import itertools
from collections.abc import Callable
from multiprocessing import Pipe, Process
from typing import Any

import numpy as np


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


def all_to_one(rank: int, links: dict, x: np.ndarray) -> tuple[np.ndarray, int]:
    """The sum of the arrays of all ranks, and how many bytes this rank has moved."""
    if rank != 0:
        links[0].send(x)
        return links[0].recv(), 2 * x.nbytes
    total = sum((other.recv() for other in links.values()), start=x)
    for other in links.values():
        other.send(total)
    return total, 2 * len(links) * x.nbytes


def check_total(rank: int, links: dict, length: int) -> tuple[bool, int]:
    """Add up arrays of rank + 1: whether the sum is right, and the bytes that this rank moved."""
    total, moved = all_to_one(rank, links, np.full(length, rank + 1.0))
    return bool((total == sum(range(len(links) + 2))).all()), moved


if __name__ == "__main__":
    length = 120_000
    for size in (2, 3, 4, 6):
        right, moved = run(size, check_total, length)
        print(f"{size} ranks: {right}, rank 0 moves {moved / (8 * length):g} arrays")
    # -> 2 ranks: True, rank 0 moves 2 arrays
    # -> 3 ranks: True, rank 0 moves 4 arrays
    # -> 4 ranks: True, rank 0 moves 6 arrays
    # -> 6 ranks: True, rank 0 moves 10 arrays
