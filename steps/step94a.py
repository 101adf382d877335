"""Step 94a: Two processes and a message

One machine is too slow for a large network: how do two work on it together? Start with two
processes on this one. Each is a Python of its own, and they share nothing. A list that one process
changes is unchanged in the other: the demo appends to `notes` in both, and finds one entry.

So what one process has to know of the other must be sent as a message, and it arrives as a copy.
What send puts into one end of a pipe comes out of the other by recv, which waits until something is
there.

Each process has a number, its rank. Both run the same function, and the rank decides what a process
does. `start` makes the pipe and the second process, rank 1; this one is rank 0.

The trap: two ranks that both wait first wait for ever, and no error is raised. This is a deadlock.
The demo asks poll(0.2) before it waits: whether something comes within 0.2 seconds.

PyTorch: torch.multiprocessing.spawn starts processes, and calls function(rank, *args) in each.

New: start, swap.
Try: write recv() for poll(0.2), so that both really wait. (Ctrl-C ends it.)
"""

from multiprocessing import Pipe, Process


def start(function, *args):
    """Call function(rank, its end of a pipe, *args) in two processes; what rank 0 returns."""
    mine, other = Pipe()
    process = Process(target=function, args=(1, other, *args))
    process.start()
    result = function(0, mine, *args)
    process.join()  # waits until it has ended
    return result


def swap(rank, pipe, notes, wait_first):
    """Two ranks write a number down, and send it to each other."""
    notes.append(10 + rank)
    if wait_first and not pipe.poll(0.2):
        return "nothing has come"
    pipe.send(10 + rank)
    return pipe.recv()


if __name__ == "__main__":
    notes = []
    print("rank 0 has received:", start(swap, notes, False))  # -> rank 0 has received: 11
    print("rank 0 has written down:", notes)  # -> rank 0 has written down: [10]
    print("both wait first:", start(swap, notes, True))  # -> both wait first: nothing has come
