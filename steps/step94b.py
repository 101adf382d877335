"""Step 94b: Ranks that can be looked into: send and recv of tensors

How do I find a mistake in a program of eight processes? Each prints when it likes, and a debugger
sees one of them. And every function of step 94a has to be handed its rank and its pipe.

For learning, ranks can be threads of one process. Threads share memory, but these must not: all
that passes between them goes through `send`, which puts a copy into a queue. There is one queue
from each rank to each other:

    send(tensor, dst)     a copy of the elements, to rank dst
    recv(tensor, src)     waits for those of rank src, and writes them into this tensor

simulate(3, program) runs a program as three ranks and returns what each of them returned. `here` is
a threading.local, whose attributes each thread has for itself. `simulate` writes there which rank
this is and how it reaches the others, its world. A program begins with init_process_group, as in
PyTorch. Here it has little to do; where ranks are processes, it finds the others (step 94e), by the
library that is named: "mpi".

The trap is the deadlock of step 94a. A rank that has waited for two seconds gives up with an error,
queue.Empty.

PyTorch: torch.distributed. Its ranks are always processes; simulate is not PyTorch's.

New: World, simulate, init_process_group, get_rank, get_world_size, send, recv.
Try: let rank 0 receive as well, from rank size - 1.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its methods)
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import zeros

here = threading.local()  # what a rank knows of its place


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
        """Each rank adds what has come to its own, and sends the sum to the next one."""
        init_process_group("mpi")
        rank = get_rank()
        x, came = tensor([float(rank), 10.0]), zeros(2)
        if rank > 0:
            recv(came, rank - 1)
        x += came
        if rank < get_world_size() - 1:
            send(x, rank + 1)
        x += 100  # not in the next rank: it has a copy
        return x.tolist()

    print(simulate(3, pass_on))  # -> [[100.0, 110.0], [101.0, 120.0], [103.0, 130.0]]
