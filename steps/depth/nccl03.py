"""Step nccl03: NCCL: calls that begin together

A stream does one thing after the other. If two GPUs send to each other, each send waits in its
stream for a receive that stands behind the other's send: a deadlock. isend does not help here: it
keeps the program from waiting, and here it is the streams that wait.

NCCL has brackets for this. Calls between groupStart and groupEnd are one call, in which sends and
receives go on side by side:

    groupStart()
    send(x, 1); recv(y, 1)        noted, not begun
    groupEnd()                    begun, as one

`together` is these brackets as a context manager; batch_isend_irecv of step messages03 uses it.
all_to_all is n sends and n receives inside of them: CuPy has no such call of NCCL.

The trap: inside the brackets nothing has begun, so nothing is complete. A handle that said so would
store the result before it has come. So Queued asks its backend whether calls are being collected.

Changed: Queued, NCCLBackend.
Try: let Queued.Test return True. When would `finish` have stored a result?
"""

from collections.abc import Iterator
from contextlib import contextmanager
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

    def __init__(self, backend: "NCCLBackend"):
        self.backend = backend

    def Test(self, status: Any = None) -> bool:
        return not self.backend.collecting


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
        self.collecting = False  # whether calls are put together, and none has begun
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

    def empty(self, size: int, dtype: Any) -> Any:
        return self.xp.empty(size, dtype)

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
        return Queued(self)

    def op(self, op: ReduceOp) -> int:
        if op not in self.ops:
            raise ValueError(f"Cannot use ReduceOp.{op.name} with NCCL")
        return self.ops[op]

    def all_reduce(self, array: Any, op: ReduceOp) -> Queued:
        return self.call("allReduce", [array, array], array, self.op(op))

    def status(self) -> None:
        """NCCL tells neither the sender nor the length of a message."""

    def send(self, array: Any, rank: int, tag: int) -> Queued:
        return self.call("send", [array], array, rank)

    def recv(self, array: Any, rank: int | None, tag: int) -> Queued:
        if rank is None:
            raise ValueError("recv with NCCL needs a source")
        return self.call("recv", [array], array, rank)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Calls inside are one call. One after the other, two sends could wait for each other."""
        self.collecting = True
        self.nccl.groupStart()
        try:
            yield
        finally:
            self.nccl.groupEnd()
            self.collecting = False

    def all_to_all(self, out: Any, out_counts: list[int], array: Any, counts: list[int]) -> Queued:
        """Messages between all pairs, as one call."""
        out, array, place, out_place = out.reshape(-1), array.reshape(-1), 0, 0
        with self.together():
            for rank, (count, out_count) in enumerate(zip(counts, out_counts, strict=True)):
                if count:
                    self.send(array[place : place + count], rank, 0)
                if out_count:
                    self.recv(out[out_place : out_place + out_count], rank, 0)
                place, out_place = place + count, out_place + out_count
        return Queued(self)


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

        def send(self, source, count, kind, peer, stream):
            self.comm.Isend(source[:count], peer)

        def recv(self, target, count, kind, peer, stream):
            self.comm.Irecv(target[:count], peer).Wait()

    kinds = {f"NCCL_{name.upper()}": name for name in TYPES}
    reductions = {name: getattr(MPI, name.removeprefix("NCCL_")) for name in OPS.values()}
    nccl = types.SimpleNamespace(NcclCommunicator=Communicator, **kinds, **reductions)
    nccl.NcclError, nccl.get_unique_id = OSError, lambda: (7,) * 128
    stream = types.SimpleNamespace(ptr=0)
    cupy = types.SimpleNamespace(
        ascontiguousarray=lambda array: np.ascontiguousarray(array).view(Array),
        empty=lambda size, dtype: np.empty(size, dtype).view(Array),
        cuda=types.SimpleNamespace(
            nccl=nccl, get_current_stream=lambda: stream, Device=lambda number: nullcontext()
        ),
    )
    check_available = lambda: None  # noqa: E731 (there is a GPU, as far as the backend can see)

    def array(*numbers, dtype=np.float32):
        return np.array(numbers, dtype).view(Array)

    nccl.groupStart = lambda: order.append("begin")
    nccl.groupEnd = lambda: order.append("end")
    order = []

    def on_gpus():
        rank = here.comm.rank
        backend = NCCLBackend(MPIBackend(here.mpi, here.comm))
        came, done = array(0), []
        with backend.together():
            done.append(backend.send(array(rank + 3), 1 - rank, 0).Test())
            received = backend.recv(came, 1 - rank, 0)
            done.append(received.Test())
        done.append(received.Test())
        out = backend.empty(3, np.float32)
        counts = ([1, 2], [1, 2]) if rank == 0 else ([2, 1], [2, 1])
        backend.all_to_all(out, counts[1], array(rank, 10, 20 + rank), counts[0])
        try:
            backend.recv(array(1), None, 0)
        except ValueError as error:
            return done, came.tolist(), out.tolist(), str(error)

    for found in simulate(2, on_gpus):
        print(*found)
    # -> [False, False, True] [4.0] [0.0, 1.0, 10.0] recv with NCCL needs a source
    # -> [False, False, True] [3.0] [10.0, 20.0, 21.0] recv with NCCL needs a source
    print(order.count("begin"), order.count("end"))  # -> 4 4
