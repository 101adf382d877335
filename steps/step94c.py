"""Step 94c: The sum of all ranks, through one of them

What do many processes need, to train one network? Above all the sum of an array of all ranks, in
all of them. The array will be the gradient (step 95a). This is called all-reduce. With send and
recv it can be written at once: all ranks send their tensor to rank 0, which adds them and sends the
sum back to all:

    rank 1  -> x1 ->                            -> sum -> rank 1
    rank 2  -> x2 ->   rank 0: x0 + x1 + x2     -> sum -> rank 2

The way back is a call of its own, broadcast: one rank has something that all should get. Calls that
all ranks make together are collectives.

The trap: nothing in a message says to which call it belongs. Messages are told apart by their order
alone, so all ranks have to make the same calls in the same order. `if get_rank() == 0:
all_reduce(loss)` is the best known mistake.

The sum is right, and it does not scale: rank 0 receives n - 1 arrays and sends n - 1, one after the
other, while the others wait for it. The demo counts what each of six ranks sends.

PyTorch: all_reduce and broadcast, which write into the tensor that they are given.

New: broadcast, all_reduce. Changed: World counts what it sends.
Try: let only the ranks above 0 call all_reduce in `total`. Which error comes, and why from there?
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its methods)
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import arange, zeros_like

here = threading.local()  # what a rank knows of its place


class World:
    """The other ranks, as one rank sees them. queues[a, b] holds what a has sent to b."""

    def __init__(self, rank, size, queues):
        self.rank, self.size, self.queues = rank, size, queues
        self.sent = 0  # bytes that this rank has sent

    def send(self, array, dst):
        self.sent += array.nbytes
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


def broadcast(tensor, src):
    """Send the tensor of rank src to all others, into theirs."""
    if get_rank() == src:
        for dst in range(get_world_size()):
            if dst != src:
                send(tensor, dst)
    else:
        recv(tensor, src)


def all_reduce(tensor):
    """Replace the tensor in all ranks by the sum of all of them, element by element."""
    if get_rank() == 0:
        came = zeros_like(tensor)
        for src in range(1, get_world_size()):
            recv(came, src)
            tensor.array += came.array
    else:
        send(tensor, 0)
    broadcast(tensor, 0)


if __name__ == "__main__":

    def total():
        """Rank r has r + 1 and 10 r; all get the sum. Then all get the y of rank 1."""
        init_process_group("mpi")
        x, y = tensor([get_rank() + 1.0, 10.0 * get_rank()]), arange(3.0) * get_rank()
        all_reduce(x)
        broadcast(y, 1)
        return x.tolist(), y.tolist()

    print(*simulate(3, total), sep="\n")
    # -> ([6.0, 30.0], [0.0, 1.0, 2.0])
    # -> ([6.0, 30.0], [0.0, 1.0, 2.0])
    # -> ([6.0, 30.0], [0.0, 1.0, 2.0])

    def arrays_sent():
        """How many arrays this rank sends in an all_reduce."""
        init_process_group("mpi")
        x = arange(1200.0)
        all_reduce(x)
        return here.group.sent / x.array.nbytes

    print(simulate(6, arrays_sent))  # here: the package does not count
    # -> [5.0, 1.0, 1.0, 1.0, 1.0, 1.0]
