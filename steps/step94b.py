"""Step 94b: Ranks that can be looked into: send and recv of tensors

How do I find a mistake in a program of eight processes? Each prints when it likes, and a debugger
sees one of them. And every function of step 94a has to be handed its rank and its links.

For learning, ranks can be threads of one process. Threads share memory, but these must not: all
that passes between them goes through `send`, which puts a copy into a queue. There is one queue
from each rank to each other, so it does not matter which thread is faster:

    send(tensor, dst)     a copy of the elements, to rank dst
    recv(tensor, src)     waits for those of rank src, and writes them into this tensor

simulate(4, program) runs a program as four ranks and returns what each of them returned. Where a
rank stands, it asks `here`: a threading.local, whose attributes each thread has for itself. So no
function has to hand on rank and links any more. A program starts with init_process_group, by which
its processes find each other. "mpi" is what sends the messages between real ones (step 94e);
simulated ranks know each other already.

The trap is the deadlock of step 94a. Here a rank that has waited for two seconds gives up with an
error, queue.Empty.

PyTorch: torch.distributed. Its ranks are always processes, and they wait for half an hour; simulate
is not PyTorch's. In the finished simulate one rank runs at a time, in the order of the ranks, and
draws random numbers of its own. The finished recv, as PyTorch's, takes from any rank where src is
None.

New: Place, World, simulate, init_process_group, get_rank, get_world_size, send, recv.
Try: let rank 0 of `pass_on` receive before it sends.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its methods)
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import arange, zeros


class Place(threading.local):
    """What a rank knows of its place: its world, and the group once it has joined it."""

    world = group = None


here = Place()


class World:
    """The other ranks, as one rank sees them. queues[a, b] holds what a has sent to b."""

    def __init__(self, rank, size, queues):
        self.rank, self.size, self.queues = rank, size, queues

    def send(self, array, dst):
        self.queues[self.rank, dst].put(array.copy())

    def recv(self, src):
        return self.queues[src, self.rank].get(timeout=2)


def simulate(size, function, *args):
    """Call function(*args) in `size` threads, the ranks of a world; their results by rank."""
    queues = {(a, b): Queue() for a in range(size) for b in range(size)}

    def run(rank):
        here.world = World(rank, size, queues)
        return function(*args)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


def init_process_group(backend=None):
    """Make the group of all ranks, which the functions below use."""
    here.group = here.world


def get_rank():
    return here.group.rank


def get_world_size():
    return here.group.size


def send(tensor, dst):
    """Send the elements to rank dst."""
    here.group.send(tensor.array, dst)


def recv(tensor, src=None):
    """Wait for what rank src has sent, and write it into the tensor."""
    tensor.array[...] = here.group.recv(src)


if __name__ == "__main__":

    def pass_on():
        """Each rank sends its number to the next one; the last one to rank 0."""
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        x = tensor([float(rank), 10.0])
        if rank == 0:
            send(x, 1)
            recv(x, size - 1)
        else:
            came = zeros(2)
            recv(came, rank - 1)
            send(x + came, (rank + 1) % size)
        return x.tolist()

    for result in simulate(4, pass_on):
        print(result)
    # -> [6.0, 40.0]
    # -> [1.0, 10.0]
    # -> [2.0, 10.0]
    # -> [3.0, 10.0]

    def copies():
        """Rank 0 changes a tensor after it has sent it."""
        init_process_group("mpi")
        x = arange(3.0)
        if get_rank() == 0:
            send(x, 1)
            x += 100
        else:
            recv(x, 0)
        return x.tolist()

    print(simulate(2, copies))  # -> [[100.0, 101.0, 102.0], [0.0, 1.0, 2.0]]
