"""Step 94e: Real processes: MPI

Do these programs run on real processes? So far a rank is a thread, and its world is a few queues.
But all functions call only group.send and group.recv, and read the rank and the size. A second
class that has these is all that is needed to run them on many machines.

MPI, the Message Passing Interface, is a library for that. Its launcher starts the processes, on
this machine or on many, and tells each of them its rank. In Python it is the module mpi4py:

    pip install mpi4py mpich
    mpiexec -n 2 python steps/step94e.py

init_process_group takes the simulated world where there is one, and else MPI's. So one program runs
in both, and the ring of step 94d sends real messages. Start the demo in both ways: with mpiexec
each line names its process.

The trap: in a simulated world send never waits, as a queue holds anything. MPI's send may wait
until the other side receives, and in a ring all ranks send first: a deadlock, but only with long
arrays. So MPIWorld begins to send, with isend, and goes on. It has to keep the request that isend
returns for as long as MPI reads the memory; this simple one keeps all of them.

PyTorch: init_process_group("gloo"), "nccl" for GPUs, or "mpi". The launcher is torchrun. The
finished one here is python -m tinytorch.distributed.run, which ends all ranks when one fails.

Changed: init_process_group. New: MPIWorld.
Try: write comm.send in place of isend, and an x of 2,000,000 elements. Start it with mpiexec.
In depth: group01 to group22, launcher01 to launcher05, messages01 to messages04, nccl01 to nccl04.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its methods)
from tinytorch.ops.creation import arange, zeros, zeros_like

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


class MPIWorld:
    """The other processes that mpiexec has started."""

    def __init__(self):
        from mpi4py import MPI  # here, since importing it starts MPI

        self.comm = MPI.COMM_WORLD
        self.rank, self.size, self.requests = self.comm.rank, self.comm.size, []

    def send(self, array, dst):
        self.requests.append(self.comm.isend(array.copy(), dst))

    def recv(self, src):
        return self.comm.recv(source=src)


def simulate(size, function, *args):
    """Call function(*args) in `size` threads, the ranks of a world; their results by rank."""
    queues = {(a, b): Queue() for a in range(size) for b in range(size)}

    def run(rank):
        here.world = World(rank, size, queues)
        return function(*args)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


def init_process_group(backend=None):
    """Make the group of all ranks: of the simulated world, or of those that mpiexec started."""
    here.group = here.world if hasattr(here, "world") else MPIWorld()


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


def reduce_scatter_tensor(output, input):
    """Add up the input of all ranks; rank r gets chunk r of the sum."""
    rank, size = get_rank(), get_world_size()
    chunks, came = input.clone().chunk(size), zeros_like(output)
    for step in range(size - 1):
        send(chunks[(rank - step - 1) % size], (rank + 1) % size)
        recv(came, (rank - 1) % size)
        chunks[(rank - step - 2) % size].array += came.array
    output.array[...] = chunks[rank].array


def all_gather_into_tensor(output_tensor, input_tensor):
    """Put the input of rank r into chunk r of the output, in all ranks."""
    rank, size = get_rank(), get_world_size()
    chunks = output_tensor.chunk(size)  # views: to write them is to write the output
    chunks[rank].array[...] = input_tensor.array
    for step in range(size - 1):
        send(chunks[(rank - step) % size], (rank + 1) % size)
        recv(chunks[(rank - step - 1) % size], (rank - 1) % size)


def all_reduce(tensor):
    """Replace the tensor in all ranks by the sum of all of them, element by element."""
    size, n = get_world_size(), tensor.numel()
    flat = zeros(-(-n // size) * size, dtype=tensor.dtype)  # n rounded up to a multiple of size
    flat[:n] = tensor.flatten()
    part = zeros(len(flat) // size, dtype=tensor.dtype)
    reduce_scatter_tensor(part, flat)
    all_gather_into_tensor(flat, part)
    tensor.array[...] = flat.array[:n].reshape(tensor.shape)


if __name__ == "__main__":
    import os

    def program():
        init_process_group("mpi")
        x = (arange(3.0) + 1) * 10 ** get_rank()
        all_reduce(x)
        return f"rank {get_rank()} of {get_world_size()}: {x.tolist()}"

    if "PMI_RANK" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ:  # mpiexec started this
        print(f"{program()}, process {os.getpid()}", flush=True)
    else:
        print("\n".join(simulate(2, program)))
    # -> rank 0 of 2: [11.0, 22.0, 33.0]
    # -> rank 1 of 2: [11.0, 22.0, 33.0]
