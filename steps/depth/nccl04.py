"""Step nccl04: Catalogue: the other calls of NCCL

Skim this one. broadcast, reduce, all_gather and reduce_scatter are calls of NCCL like all_reduce of
step nccl02. gather and scatter are all_to_all of step nccl03, in which the counts of all processes
but one are 0.

Changed: NCCLBackend, which is complete.
Try: in the demo, make the gather out of send, recv and together, without all_to_all.
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

    def broadcast(self, array: Any, root: int) -> Queued:
        return self.call("broadcast", [array, array], array, root)

    def reduce(self, array: Any, op: ReduceOp, root: int) -> Queued:
        return self.call("reduce", [array, array], array, self.op(op), root)

    def all_gather(self, out: Any, array: Any) -> Queued:
        return self.call("allGather", [array, out], array)

    def reduce_scatter(self, out: Any, array: Any, op: ReduceOp) -> Queued:
        return self.call("reduceScatter", [array, out], out, self.op(op))

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

    def gather(self, out: Any, array: Any, root: int) -> Queued:
        counts = [array.size if rank == root else 0 for rank in range(self.size)]
        out_counts = [array.size if self.rank == root else 0] * self.size
        return self.all_to_all(array if out is None else out, out_counts, array, counts)

    def scatter(self, out: Any, array: Any, root: int) -> Queued:
        out_counts = [out.size if rank == root else 0 for rank in range(self.size)]
        counts = [out.size if self.rank == root else 0] * self.size
        return self.all_to_all(out, out_counts, out if array is None else array, counts)

    def close(self) -> None:
        self.comm.destroy()


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

        def broadcast(self, source, target, count, kind, root, stream):
            self.comm.Ibcast(target[:count], root).Wait()

        def reduce(self, source, target, count, kind, op, root, stream):
            self.comm.Ireduce(source[:count].copy(), target[:count], op, root).Wait()

        def allGather(self, source, target, count, kind, stream):
            self.comm.Iallgather(source[:count], target[: count * self.comm.size]).Wait()

        def reduceScatter(self, source, target, count, kind, op, stream):
            whole = source[: count * self.comm.size]
            self.comm.Ireduce_scatter_block(whole, target[:count], op).Wait()

        def destroy(self):
            print("destroyed")

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

    nccl.groupStart = nccl.groupEnd = lambda: None

    def on_gpus():
        rank = here.comm.rank
        backend = NCCLBackend(MPIBackend(here.mpi, here.comm))
        largest, sent = array(rank), array(rank + 5)
        backend.broadcast(backend.movable(sent), 1)
        backend.reduce(largest, ReduceOp.MAX, 0)
        whole, part = backend.empty(2, np.float32), array(0)
        backend.all_gather(whole, array(rank))
        backend.reduce_scatter(part, array(rank, 10), ReduceOp.SUM)
        collected, given = backend.empty(2, np.float32), array(0)
        backend.gather(collected if rank == 0 else None, array(rank + 3), 0)
        backend.scatter(given, array(8, 9) if rank == 0 else None, 0)
        if rank == 0:
            backend.close()  # -> destroyed
        at_root = largest, collected
        results = [each.tolist() if rank == 0 else None for each in at_root]
        return results + [each.tolist() for each in (sent, whole, part, given)]

    names = "reduce", "gather", "broadcast", "all_gather", "reduce_scatter", "scatter"
    for name, *of_ranks in zip(names, *simulate(2, on_gpus), strict=True):
        print(f"{name:14}", *of_ranks)
    # -> reduce         [1.0] None
    # -> gather         [3.0, 4.0] None
    # -> broadcast      [6.0] [6.0]
    # -> all_gather     [0.0, 1.0] [0.0, 1.0]
    # -> reduce_scatter [1.0] [20.0]
    # -> scatter        [8.0] [9.0]
