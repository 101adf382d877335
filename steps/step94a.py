"""Step 94a: Two processes and a message

One machine is too slow for a large network: how do two work on it together? Start with two
processes on this one. Each is a Python of its own, and they share nothing. A list that one process
changes is unchanged in the other: the demo appends to `notes` in both, and finds one entry.

So what one process has to know of the other must be sent as a message, and it arrives as a copy. A
pipe has two ends. What is put in at one end by send comes out at the other by recv, which waits
until something is there.

Each process has a number, its rank. All of them run the same function, and the rank decides what a
process does:

    rank 0:  links[1].send(x)    ->    rank 1:  links[0].recv()

`connect` makes a pipe for each pair of ranks. `start` starts the processes; this one is rank 0.

The trap: two ranks that both wait first wait for ever, and no error is raised. This is a deadlock.
The demo asks poll(0.2) before it waits, which gives up after 0.2 seconds.

PyTorch: torch.multiprocessing.spawn starts processes, and calls function(rank, *args) in each.

New: connect, start, swap.
Try: write recv() for poll(0.2), so that both really wait. (Ctrl-C ends it.)
"""

from multiprocessing import Pipe, Process


def connect(size):
    """The pipes between all ranks: links[0][1] is the end that rank 0 has of its pipe to rank 1."""
    links = [{} for _ in range(size)]
    for a in range(size):
        for b in range(a):
            links[a][b], links[b][a] = Pipe()
    return links


def start(size, function, *args):
    """Call function(rank, its links, *args) in `size` processes; what rank 0 returns."""
    links = connect(size)
    others = [Process(target=function, args=(r, links[r], *args)) for r in range(1, size)]
    for other in others:
        other.start()
    result = function(0, links[0], *args)
    for other in others:
        other.join()  # waits until it has ended
    return result


def swap(rank, links, notes, wait_first):
    """Two ranks write a number down, and send it to each other."""
    notes.append(10 + rank)
    if wait_first and not links[1 - rank].poll(0.2):
        return "nothing has come"
    links[1 - rank].send(10 + rank)
    return links[1 - rank].recv()


if __name__ == "__main__":
    notes = []
    print("rank 0 has received:", start(2, swap, notes, False))  # -> rank 0 has received: 11
    print("rank 0 has written down:", notes)  # -> rank 0 has written down: [10]
    print("both wait first:", start(2, swap, notes, True))  # -> both wait first: nothing has come
