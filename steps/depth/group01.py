"""Step group01: Process groups in the package's dress

Step 94e called MPI for an all_reduce of tensors. The package has three layers for it:

    all_reduce(x)       a tensor; in the group of all processes
    ProcessGroup        which processes talk to one another, and how
    MPIBackend          begins MPI's call, on an array as MPI wants it

init_process_group makes the group of all processes. It is kept in `here`, as a global variable of
the process, so that all_reduce finds it without an argument.

MPI wants the elements side by side in memory. A transposed matrix is a view whose elements are not.
So it is copied, and the result is copied back.

The trap: `if rank == 0: all_reduce(loss)` waits for ever, for ranks that never come. Step group14
gives it a time limit.

(PyTorch: torch.distributed, with the same names. MPI is one of its backends, too.)

Changed: init_process_group, get_rank, get_world_size, all_reduce. New: is_available, MPIBackend,
ProcessGroup.
Try: call all_reduce of x in the ranks above 0 only. (Ctrl-C ends it.)
"""

import importlib.util
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.simulator import here


def is_available() -> bool:
    """Whether mpi4py is installed: pip install mpi4py mpich."""
    return importlib.util.find_spec("mpi4py") is not None


class MPIBackend:
    """MPI's collectives, begun on arrays whose elements lie side by side.

    Each call returns a request at once. MPI works on it while Test() is being called.
    """

    def __init__(self, mpi: Any, comm: Any):
        self.mpi, self.comm, self.rank, self.size = mpi, comm, comm.rank, comm.size
        self.in_place = mpi.IN_PLACE

    def all_reduce(self, array: np.ndarray) -> Any:
        return self.comm.Iallreduce(self.in_place, array)


class ProcessGroup:
    """Processes that make collective calls together.

    Attributes:
        name: the backend that was asked for.
        ranks: the global ranks of its members; a member's own rank is its place among them.
        host: what moves objects, which are never on a GPU.
        backend: what moves tensors.
    """

    def __init__(self, name: str, ranks: list[int], host: MPIBackend):
        self.name, self.ranks, self.host = name, ranks, host
        self.backend = host

    def rank(self) -> int:
        return self.host.rank

    def size(self) -> int:
        return self.host.size

    def start(self, name: str, args: tuple) -> None:
        """Begin a call of the backend, and wait for its result."""
        getattr(self.backend, name)(*args).Wait()


def init_process_group(backend: str | None = None) -> None:
    """Make the group of all processes.

    Raises:
        ValueError: there is a group already.
    """
    if here.group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    name = (backend or "mpi").lower()
    mpi, comm = here.mpi, here.comm
    here.group = ProcessGroup(name, list(range(comm.size)), MPIBackend(mpi, comm))


def get_rank() -> int:
    """The number of this process in the group of all."""
    return here.group.rank()


def get_world_size() -> int:
    """The number of processes in the group of all."""
    return here.group.size()


def all_reduce(tensor: Tensor) -> None:
    """Replace the tensor in all processes by the sum of all of them, element by element."""
    wire = np.ascontiguousarray(tensor.array)
    here.group.start("all_reduce", (wire,))
    tensor.array[...] = wire.reshape(tensor.shape)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.simulator import simulate

    for name in "core.printing ops.arithmetic ops.conversion ops.shape".split():
        importlib.import_module(f"tinytorch.{name}")

    def program():
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        x = tensor([[1.0, 2.0], [3.0, 4.0]]).T * 10**rank
        all_reduce(x)
        try:
            init_process_group("mpi")
        except ValueError as error:
            return size, x.tolist(), str(error)

    size, x, error = simulate(3, program)[2]
    print(size, "ranks:", x)  # -> 3 ranks: [[111.0, 333.0], [222.0, 444.0]]
    print(error)  # -> trying to initialize the default process group twice!
    print("MPI, too:", is_available())  # -> ...
