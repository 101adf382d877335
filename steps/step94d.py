"""Step 94d: All-reduce in a ring

In step 94c rank 0 sends n - 1 arrays while the others wait. Can all ranks work alike? In a ring
each rank sends to the next one, and receives from the one before. The array is cut into n chunks.
First round: each rank sends a chunk on, adds what has come to its own, and sends this sum on in the
next step. Then each rank has one chunk of the total. Second round: the complete chunks go round.
With chunks a, b, c (b2 is the sum of b over two ranks, b3 over all):

               at first    step 1      step 2      step 3      step 4
    rank 0     a  b  c     a  b2 c     a3 b2 c     a3 b2 c3    a3 b3 c3
    rank 1     a  b  c     a  b  c2    a  b3 c2    a3 b3 c2    a3 b3 c3
    rank 2     a  b  c     a2 b  c     a2 b  c3    a2 b3 c3    a3 b3 c3

Each rank sends 2 (n - 1) chunks of 1/n array: less than two arrays, for any number of ranks. The
price is latency: 2 (n - 1) messages one after the other, however short the array is.

Each round is useful by itself, and has a name: reduce-scatter leaves rank r with chunk r of the
sum, all-gather puts the chunks together. all_reduce adds zeros where the length is not divisible.

The trap is in the indices: a rank that sends a chunk before it has added to it sends too little.

PyTorch has both rounds under these names. NCCL makes such rings of GPUs.

New: reduce_scatter_tensor, all_gather_into_tensor. Changed: all_reduce.
Try: send chunks[(rank - step) % size] in reduce_scatter_tensor, as all_gather_into_tensor does.
In depth: simulator01 to simulator08.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its methods)
from tinytorch.core.tensor import tensor
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

    def total():
        """Two rounds by hand, and all_reduce of a matrix whose size is not divisible by three."""
        init_process_group("mpi")
        part, whole = zeros(2), zeros(6)
        reduce_scatter_tensor(part, tensor([1.0, 2, 3, 4, 5, 6]) * 10 ** get_rank())
        all_gather_into_tensor(whole, part)
        x = tensor([[1.0, 2.0], [3.0, 4.0]]) + get_rank()
        all_reduce(x)
        return part.tolist(), whole.tolist(), x.tolist()

    for part, whole, x in simulate(3, total):
        print(part, whole, x)
    # -> [111.0, 222.0] [111.0, 222.0, 333.0, 444.0, 555.0, 666.0] [[6.0, 9.0], [12.0, 15.0]]
    # -> [333.0, 444.0] [111.0, 222.0, 333.0, 444.0, 555.0, 666.0] [[6.0, 9.0], [12.0, 15.0]]
    # -> [555.0, 666.0] [111.0, 222.0, 333.0, 444.0, 555.0, 666.0] [[6.0, 9.0], [12.0, 15.0]]

    def arrays_sent():
        """How many arrays each of six ranks sends in an all_reduce, at most."""
        init_process_group("mpi")
        x = arange(1200.0)
        all_reduce(x)
        return here.group.sent / x.array.nbytes

    print(f"{max(simulate(6, arrays_sent)):.3f}")  # here: the package does not count
    # -> 1.667
