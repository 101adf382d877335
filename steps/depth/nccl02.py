"""Step nccl02: NCCL: types and reductions that it does not have

NCCL adds halves and bfloat16 itself, which MPI does not (step group02). It knows neither int16 nor
bool, and it has no reductions of bits. With step nccl01 each of these ends in a KeyError.

    movable      to send only           the elements as bytes, where NCCL does not have the type
    reducible    to compute with        bool as bytes; others that NCCL does not have are refused
    op           a reduction            BAND, BOR and BXOR are refused

Which types there are depends on the version: an old CuPy does not have bfloat16, so its number is
None.

The trap: as bytes, True + True is 2. So the sum of booleans comes here as MAX (step group07).

Changed: NCCLBackend. New: its methods movable, reducible, op.
Try: pass an int16 to all_reduce, without reducible.
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
        self.types = {name: getattr(self.nccl, f"NCCL_{name.upper()}", None) for name in TYPES}
        self.ops = {op: getattr(self.nccl, name) for op, name in OPS.items()}
        number = np.zeros(128, np.int64)  # of the new communicator: 128 bytes
        if self.rank == 0:
            number[:] = self.nccl.get_unique_id()
        host.broadcast(number, 0).Wait()
        with self.gpu:
            self.comm = self.nccl.NcclCommunicator(self.size, tuple(number.tolist()), self.rank)

    def movable(self, array: Any) -> Any:
        """The elements side by side; their bytes, where NCCL does not have the type."""
        array = self.xp.ascontiguousarray(array)
        known = self.types.get(array.dtype.name) is not None
        return array if known else array.reshape(-1).view(np.uint8)

    def reducible(self, array: Any) -> Any:
        """The same to compute with.

        Raises:
            RuntimeError: NCCL does not have the type, and it is not bool.
        """
        if self.types.get(array.dtype.name) is None and array.dtype != bool:
            raise RuntimeError(f"NCCL does not compute with {array.dtype.name}")
        return self.movable(array)

    def call(self, name: str, arrays: list, counted: Any, *options: int) -> Queued:
        """comm.name(addresses, number of elements, their type, options, stream)."""
        places = [array.data.ptr for array in arrays]
        kind = self.types[counted.dtype.name]
        with self.gpu:
            stream = self.xp.cuda.get_current_stream().ptr
            getattr(self.comm, name)(*places, counted.size, kind, *options, stream)
        return Queued()

    def op(self, op: ReduceOp) -> int:
        if op not in self.ops:
            raise ValueError(f"Cannot use ReduceOp.{op.name} with NCCL")
        return self.ops[op]

    def all_reduce(self, array: Any, op: ReduceOp) -> Queued:
        return self.call("allReduce", [array, array], array, self.op(op))


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

    def array(*numbers, dtype=np.float32):
        return np.array(numbers, dtype).view(Array)

    def on_gpus():
        backend = NCCLBackend(MPIBackend(here.mpi, here.comm))
        truth = backend.reducible(array(here.comm.rank, dtype=bool))
        short = backend.movable(array(here.comm.rank, dtype=np.int16))
        half = backend.reducible(array(0.5, dtype=np.float16))
        backend.all_reduce(half, ReduceOp.SUM)
        found = [truth.dtype.name, short.dtype.name, short.size, half.dtype.name, half.tolist()]
        for mistake in (
            lambda: backend.reducible(array(1, dtype=np.int16)),
            lambda: backend.all_reduce(array(1), ReduceOp.BAND),
        ):
            try:
                mistake()
            except (RuntimeError, ValueError) as error:
                found.append(error)
        return found

    print(*simulate(2, on_gpus)[1], sep="\n")
    # -> uint8
    # -> uint8
    # -> 2
    # -> float16
    # -> [1.0]
    # -> NCCL does not compute with int16
    # -> Cannot use ReduceOp.BAND with NCCL
