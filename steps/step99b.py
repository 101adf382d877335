"""Step 99b: The sum of all, by hand: all to one, then a ring

Every process has an array, and all need the sum: of their gradients, for example. The obvious
way is that all send to rank 0, which adds and sends the sum back. It is right, and it does not
scale: rank 0 moves 2 (n - 1) arrays while the others wait. With 100 processes it takes 99 times as
long as with two, and the demo counts it.

In a ring each rank talks only to its neighbours, and all work at the same time. Divide each array
into n chunks.

    first round, n - 1 steps      each adds the chunk that comes to its own, and sends the sum
                                  on in the next step: then each rank has one chunk complete
    second round, n - 1 steps     the complete chunks go round

    sent by each rank     2 (n - 1) / n arrays: less than two, however many ranks there are
    the price             2 (n - 1) messages one after the other, also for tiny arrays

The trap is in the pipe. It holds some 64 KB; a longer message is sent only while somebody receives.
If all ranks of the ring send at the same time, none receives: a deadlock, and only with large
arrays. So the even ranks send first and the odd ones receive first.

(This operation is called all-reduce; its two rounds are reduce-scatter and all-gather, and are
useful by themselves. Baidu brought the ring to deep learning in 2017; NCCL uses it. With MPI and
NCCL the messages are counted for you: next steps.)

New: Counted, all_to_one, ring.
Try: let all ranks send first, with arrays of 10 numbers and then of 100,000.
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
    """The sum of the arrays of all ranks, and how many messages of numbers this rank has moved."""
    if rank != 0:
        links[0].send(x)
        return links[0].recv(), 2 * x.nbytes
    total = x.copy()
    for other in links.values():
        total += other.recv()
    for other in links.values():
        other.send(total)
    return total, 2 * len(links) * x.nbytes


def pass_on(rank: int, links: dict, chunk: np.ndarray) -> np.ndarray:
    """Send a chunk to the next rank of the ring, and receive one from the rank before."""
    size = len(links) + 1
    after, before = links[(rank + 1) % size], links[(rank - 1) % size]
    if rank % 2 == 0:
        after.send(chunk)
        return before.recv()
    received = before.recv()
    after.send(chunk)
    return received


def ring(rank: int, links: dict, x: np.ndarray) -> tuple[np.ndarray, int]:
    """The same sum, and the bytes that this rank has moved."""
    size, moved = len(links) + 1, 0
    chunks = np.array_split(x.copy(), size)
    for step in range(2 * (size - 1)):
        sent, came = (rank - step) % size, (rank - step - 1) % size
        received = pass_on(rank, links, chunks[sent])
        moved += chunks[sent].nbytes + received.nbytes
        chunks[came] = chunks[came] + received if step < size - 1 else received
    return np.concatenate(chunks), moved


def compare(rank: int, links: dict, length: int) -> list[tuple[bool, int]]:
    """Sum up an array of rank + 1 in both ways: whether it is right, and the bytes moved."""
    x = np.full(length, rank + 1.0)
    size = len(links) + 1
    found = [all_to_one(rank, links, x), ring(rank, links, x)]
    right = size * (size + 1) / 2
    return [(bool((total == right).all()), moved) for total, moved in found]


if __name__ == "__main__":
    length = 120_000  # numbers of 8 bytes: as many arrays' worth of bytes as are moved
    for size in (2, 3, 4, 6):
        (right, by_one), (also_right, by_ring) = run(size, compare, length)
        by_one, by_ring = (moved / (8 * length) for moved in (by_one, by_ring))
        print(f"{size} ranks: {right and also_right}, rank 0 moves {by_one:g} or {by_ring:.3g}")
    # -> 2 ranks: True, rank 0 moves 2 or 2
    # -> 3 ranks: True, rank 0 moves 4 or 2.67
    # -> 4 ranks: True, rank 0 moves 6 or 3
    # -> 6 ranks: True, rank 0 moves 10 or 3.33
