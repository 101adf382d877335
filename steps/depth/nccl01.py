"""Step nccl01: NCCL: all-reduce from GPU to GPU

With MPI a gradient on a GPU would be copied to the main memory, sent, and copied back. NCCL is
NVIDIA's library of collectives: it sends from GPU to GPU, in rings as in step simulator03. CuPy has
its calls. They take addresses, a number of elements, a type and a stream:

    comm.allReduce(source, target, count, type, op, stream)

NCCLBackend has the methods of MPIBackend, so everything above it stays as it is. The processes find
one another through MPI: rank 0 makes an identifier of 128 bytes and broadcasts it, and all make a
communicator with it. Objects and barriers stay with MPI.

A call is put into the current stream of a GPU, like a kernel (step streams03). What the program
computes next comes behind it in the stream. So the program does not have to wait: a Queued says at
once that it is complete. For the same reason no time limit sees whether the call ever ends.

The demo has no GPU: classes of a few lines stand for CuPy's arrays and for its NCCL, and an address
is the array itself. tests/distributed/test_nccl.py has a stand-in with true addresses.

New: TYPES, REDUCTIONS, OPS, is_nccl_available, Queued, NCCLBackend, BACKENDS["nccl"].
Try: ReduceOp.AVG instead of SUM gives the same numbers. Which function of step group08 divides
them?
"""

from typing import Any

import numpy as np

from tinytorch.cuda.backend import check_available, cupy, is_available
from tinytorch.distributed.group import BACKENDS
from tinytorch.distributed.mpi import MPIBackend
from tinytorch.distributed.types import ReduceOp

# The types that NCCL computes with, by NumPy's names.
TYPES = "int8 uint8 int32 int64 float16 bfloat16 float32 float64".split()


# Its reductions. An average is a sum that is divided afterwards.
REDUCTIONS = {"SUM": "SUM", "AVG": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX"}


OPS = {ReduceOp[name]: f"NCCL_{theirs}" for name, theirs in REDUCTIONS.items()}


def is_nccl_available() -> bool:
    """Whether there is a GPU for it."""
    return is_available()


class Queued:
    """A call in the current stream. What the program computes next comes behind it there."""

    def Test(self, status: Any = None) -> bool:
        return True


class NCCLBackend:
    """NCCL's collectives on CuPy arrays, in the current stream of one GPU: that with the number
    `gpu`, or the one that is current now.

    The processes find one another through MPI. A call returns when it is in the stream, so that no
    timeout sees whether it ends.
    """

    device = "cuda"

    def __init__(self, host: MPIBackend, gpu: int | None = None):
        check_available()
        self.xp, self.nccl = cupy, cupy.cuda.nccl
        self.gpu = cupy.cuda.Device(gpu)  # None: the current one
        self.error = self.nccl.NcclError
        self.rank, self.size, self.barrier = host.rank, host.size, host.barrier
        self.types = {name: getattr(self.nccl, f"NCCL_{name.upper()}") for name in TYPES}
        self.ops = {op: getattr(self.nccl, name) for op, name in OPS.items()}
        number = np.zeros(128, np.int64)  # of the new communicator: 128 bytes
        if self.rank == 0:
            number[:] = self.nccl.get_unique_id()
        host.broadcast(number, 0).Wait()
        with self.gpu:
            self.comm = self.nccl.NcclCommunicator(self.size, tuple(number.tolist()), self.rank)

    def call(self, name: str, arrays: list, counted: Any, *options: int) -> Queued:
        """comm.name(addresses, number of elements, their type, options, stream)."""
        places = [array.data.ptr for array in arrays]
        kind = self.types[counted.dtype.name]
        with self.gpu:
            stream = self.xp.cuda.get_current_stream().ptr
            getattr(self.comm, name)(*places, counted.size, kind, *options, stream)
        return Queued()

    def all_reduce(self, array: Any, op: ReduceOp) -> Queued:
        return self.call("allReduce", [array, array], array, self.ops[op])


BACKENDS["nccl"] = NCCLBackend


if __name__ == "__main__":
    import types
    from contextlib import nullcontext

    from tinytorch.distributed.simulator import MPI, here, simulate

    class Array(np.ndarray):
        """Stands for CuPy's arrays: its address is the array itself."""

        data = property(lambda self: types.SimpleNamespace(ptr=self))

    class Communicator:
        """Stands for NCCL's, with the simulated MPI of step simulator07."""

        def __init__(self, size, number, rank):
            self.comm = here.comm.Split(number[0], rank)

        def allReduce(self, source, target, count, kind, op, stream):
            self.comm.Iallreduce(MPI.IN_PLACE, target[:count], op).Wait()

    kinds = {f"NCCL_{name.upper()}": name for name in TYPES}
    reductions = {name: getattr(MPI, name.removeprefix("NCCL_")) for name in OPS.values()}
    nccl = types.SimpleNamespace(NcclCommunicator=Communicator, **kinds, **reductions)
    nccl.NcclError, nccl.get_unique_id = OSError, lambda: (7,) * 128
    stream = types.SimpleNamespace(ptr=0)
    cupy = types.SimpleNamespace(
        ascontiguousarray=lambda array: np.ascontiguousarray(array).view(Array),
        cuda=types.SimpleNamespace(
            nccl=nccl, get_current_stream=lambda: stream, Device=lambda number: nullcontext()
        ),
    )
    check_available = lambda: None  # noqa: E731 (there is a GPU, as far as the backend can see)

    def array(*numbers):
        return np.array(numbers, np.float32).view(Array)

    def on_gpus():
        backend = NCCLBackend(MPIBackend(here.mpi, here.comm))
        total = array(1, here.comm.rank)
        done = backend.all_reduce(total, ReduceOp.SUM).Test()
        return done, total.tolist()

    print("a GPU for NCCL:", is_nccl_available())  # -> ...
    print(*simulate(2, on_gpus))  # -> (True, [2.0, 1.0]) (True, [2.0, 1.0])
