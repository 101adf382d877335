"""Step simulator03: The ring over pipes: who receives first

Step 94d built the ring: 2 (n - 1) chunks of 1/n array for each rank, in two rounds. Over pipes one
thing is added. A pipe holds some 64 KB; a longer message is sent only while the other side
receives. If all ranks of the ring send first, short arrays pass, and with long ones all wait for
each other. So odd ranks receive first.

(The first round is called reduce-scatter, the second all-gather. NCCL makes such rings of GPUs.)

Changed: check_total. New: pass_on, ring.
Try: let all ranks send first, with arrays of 10 numbers and then of 100,000. (Ctrl-C ends it.)
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


def pass_on(rank: int, links: dict, chunk: np.ndarray) -> np.ndarray:
    """Send a chunk to the next rank of the ring, and receive one from the rank before."""
    size = len(links) + 1
    received = links[(rank - 1) % size].recv() if rank % 2 else None
    links[(rank + 1) % size].send(chunk)
    return links[(rank - 1) % size].recv() if received is None else received


def ring(rank: int, links: dict, x: np.ndarray) -> tuple[np.ndarray, int]:
    """The same sum, and the bytes that this rank has moved."""
    size, moved = len(links) + 1, 0
    chunks = np.array_split(x, size)
    for step in range(2 * (size - 1)):
        sent, came = (rank - step) % size, (rank - step - 1) % size
        received = pass_on(rank, links, chunks[sent])
        moved += chunks[sent].nbytes + received.nbytes
        chunks[came] = chunks[came] + received if step < size - 1 else received
    return np.concatenate(chunks), moved


def check_total(rank: int, links: dict, length: int) -> list[tuple[bool, int]]:
    """Add up arrays of rank + 1 in both ways: whether it is right, and the bytes moved."""
    x, right = np.full(length, rank + 1.0), sum(range(len(links) + 2))
    found = [all_to_one(rank, links, x), ring(rank, links, x)]
    return [(bool((total == right).all()), moved) for total, moved in found]


if __name__ == "__main__":
    length = 120_000
    for size in (2, 3, 4, 6):
        (right, by_one), (also_right, by_ring) = run(size, check_total, length)
        by_one, by_ring = (moved / (8 * length) for moved in (by_one, by_ring))
        moved = f"rank 0 moves {by_one:g} or {by_ring:.3g} arrays"
        print(f"{size} ranks: {right and also_right}, {moved}, {2 * (size - 1)} steps")
    # -> 2 ranks: True, rank 0 moves 2 or 2 arrays, 2 steps
    # -> 3 ranks: True, rank 0 moves 4 or 2.67 arrays, 4 steps
    # -> 4 ranks: True, rank 0 moves 6 or 3 arrays, 6 steps
    # -> 6 ranks: True, rank 0 moves 10 or 3.33 arrays, 10 steps
