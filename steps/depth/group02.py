"""Step group02: Types that MPI cannot add, and other reductions

all_reduce of step group01 fails for float16 with most MPIs: MPI knows C's types, and C has neither
halves nor NumPy's bool. And a sum is not all that programs want: the largest loss, the mean of a
gradient.

Halves could be added by NumPy, but a sum should not be rounded after each addition: in float16 2048
+ 1 is 2048, and so is 2048 + 1 + 1, as the demo shows. So `reducible` makes float32 of halves; they
travel as float32, and the sum is rounded once. Booleans travel as bytes. `movable` is for calls
that only copy: there a type that MPI does not know goes as unsigned integers of the same size.

A ReduceOp names the reduction. MPI has no average: it is a sum, divided afterwards.

The trap: the size of what travels is that of float32. So halves save no time between processes,
only memory. (NCCL can add halves, see step nccl02.)

(PyTorch: ReduceOp.SUM, AVG, MAX and so on.)

Changed: MPIBackend, all_reduce. New: ReduceOp.
Try: let reducible return halves as movable does. What is the sum of 1.0 and 1.0?
"""

import enum
import importlib.util
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.simulator import here


class ReduceOp(enum.IntEnum):
    """How all_reduce and its kin make one element of those of all processes."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


def is_available() -> bool:
    """Whether mpi4py is installed: pip install mpi4py mpich."""
    return importlib.util.find_spec("mpi4py") is not None


class MPIBackend:
    """MPI's collectives, begun on arrays whose elements lie side by side.

    Each call returns a request at once. MPI works on it while Test() is being called.
    """

    device, xp = "cpu", np
    native = frozenset(map(np.dtype, "bBhHiIlLqQfd"))  # the types that all MPIs compute with

    def __init__(self, mpi: Any, comm: Any):
        self.mpi, self.comm, self.rank, self.size = mpi, comm, comm.rank, comm.size
        self.in_place = mpi.IN_PLACE
        # In the order of ReduceOp. An average is a sum that is divided afterwards.
        self.ops = [mpi.SUM, mpi.SUM, mpi.PROD, mpi.MIN, mpi.MAX, mpi.BAND, mpi.BOR, mpi.BXOR]

    def movable(self, array: np.ndarray) -> np.ndarray:
        """The elements side by side, as a type that MPI has; the memory of `array` if it can be."""
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        return array if array.dtype in self.native else array.view(f"u{array.itemsize}")

    def reducible(self, array: np.ndarray) -> np.ndarray:
        """The same to compute with: bytes for booleans, float32 for halves."""
        if array.itemsize != 2 or array.dtype in self.native:
            return self.movable(array)
        return np.asarray(array, np.float32, order="C")

    def all_reduce(self, array: np.ndarray, op: ReduceOp) -> Any:
        return self.comm.Iallreduce(self.in_place, array, self.ops[op])


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


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM) -> None:
    """Replace the tensor in all processes by the reduction of all of them, element by element.

    With MPI halves are added in float32 and rounded once.
    """
    group = here.group
    wire = group.backend.reducible(tensor.array)
    group.start("all_reduce", (wire, op))
    if op is ReduceOp.AVG:
        group.backend.xp.divide(wire, group.size(), out=wire)
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
        mean, largest = tensor(float(rank)), tensor([rank, -rank])
        all_reduce(mean, ReduceOp.AVG)
        all_reduce(largest, ReduceOp.MAX)
        halves, found = tensor([2048.0 if rank == 0 else 1.0]).half(), tensor([rank > 0])
        all_reduce(halves)
        all_reduce(found, ReduceOp.MAX)
        return size, x.tolist(), mean.item(), largest.tolist(), halves, found

    size, x, mean, largest, halves, found = simulate(3, program)[2]
    print(size, "ranks:", x, mean, largest)
    # -> 3 ranks: [[111.0, 333.0], [222.0, 444.0]] 1.0 [2, 0]
    print(halves, found)  # -> tensor([2050.], dtype=tinytorch.float16) tensor([True])
    total = np.float16(2048)
    for _ in range(2):
        total += np.float16(1)
    print("rounded after each addition:", total)  # -> rounded after each addition: 2.048e+03
