"""Step 104k: Catalogue: messages between two, and NCCL

Skim this one. send and recv are a request each, like a collective. Two things are added to MPI's:
a process does not send to itself, and a message that is shorter than the tensor for it is an
error. monitored_barrier is made of messages: rank 0 waits for one from each of the others, so that
its error can name those who have not come.

NCCL is NVIDIA's library of collectives: all-reduce straight from GPU to GPU, in rings as in step
103c. CuPy has its calls. They take addresses, a number of elements, a type and a stream:

    comm.allReduce(source, target, count, type, op, stream)

The processes find one another through MPI, which also keeps objects and barriers. A call of NCCL
is put into the current stream, like a kernel (step 70c). What the program computes next comes
behind it in the stream. So nothing has to be waited for, and no time limit sees whether it ends.
NCCL knows bfloat16, but neither int16 nor bool: these are moved as bytes.

No GPU was there when this was written: the demo, and tests/distributed/test_nccl.py, run it
against a stand-in of CuPy's interface, on NumPy's memory.

New: Message, other, isend, send, irecv, recv, monitored_barrier; is_nccl_available, Queued,
NCCLBackend, which is BACKENDS["nccl"].
Try: let rank 0 of the demo send three numbers, for which rank 1 has room for two.
"""

import datetime
import time
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.cuda.backend import check_available, cupy, is_available
from tinytorch.distributed.collectives import arrival, ready
from tinytorch.distributed.group import BACKENDS, ProcessGroup, Work, check_timeout, get_group_rank
from tinytorch.distributed.mpi import MPIBackend
from tinytorch.distributed.types import DistBackendError, ReduceOp

BARRIER = 30_000  # the tag of the messages of monitored_barrier; MPI has 32,767 at least


class Message:
    """A message that is on its way to this process: a request that knows its sender."""

    done = False

    def __init__(self, host: MPIBackend):
        self.host, self.status = host, host.mpi.Status()

    def recv(self, wire: Any, source: int | None, tag: int) -> "Message":
        self.request, self.nbytes = self.host.recv(wire, source, tag), wire.nbytes
        return self

    def Test(self) -> bool:
        self.done = self.done or self.request.Test(self.status)
        if self.done and (sent := self.status.Get_count(self.host.mpi.BYTE)) != self.nbytes:
            raise DistBackendError(f"recv: a message of {sent} bytes for {self.nbytes} bytes")
        return self.done


def other(group: ProcessGroup, rank: int) -> int:
    """The rank in the group of another process.

    Raises:
        ValueError: it does not belong to the group, or is this process.
    """
    found = get_group_rank(group, rank)
    if found == group.rank():
        raise ValueError(f"Invalid rank {rank}: a process does not send messages to itself")
    return found


def start_send(tensor: Tensor, dst: int, group: ProcessGroup, tag: int, async_op: bool) -> Any:
    wire = group.backend.movable(tensor.array)
    return group.start("send", (wire, other(group, dst), tag), None, async_op)


def isend(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> Work | None:
    """Begin to send the tensor to process `dst`."""
    if (group := ready("isend", group, tensor)) is None:
        return None
    return start_send(tensor, dst, group, tag, True)


def send(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> None:
    """Send the tensor to process `dst`, and wait until it may be changed."""
    if (group := ready("send", group, tensor)) is not None:
        start_send(tensor, dst, group, tag, False)


def start_recv(tensor: Tensor, src: Any, group: ProcessGroup, tag: int, async_op: bool) -> tuple:
    wire = group.backend.movable(tensor.array)
    message = Message(group.host) if group.backend is group.host else None
    args = wire, None if src is None else other(group, src), tag
    return group.start("recv", args, arrival(tensor, wire), async_op, message), message


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> Work | None:
    """Begin to receive a tensor from process `src`, or from any."""
    if (group := ready("irecv", group, tensor)) is None:
        return None
    return start_recv(tensor, src, group, tag, True)[0]


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> int:
    """Receive a tensor from process `src`, or from any.

    Returns the rank of the sender; -1 where this process does not belong to the group.
    """
    if (group := ready("recv", group, tensor)) is None:
        return -1
    message = start_recv(tensor, src, group, tag, False)[1]
    return group.ranks[message.status.Get_source()] if src is None else src


def monitored_barrier(
    group: Any = None, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier whose error names the processes that have not come, all of them in any case.

    Raises:
        DistBackendError: in the first process of the group, with the global ranks that are missing;
            in the others, when that has ended or not come.
    """
    if (group := ready("monitored_barrier", group)) is None:
        return
    seconds = group.timeout if timeout is None else check_timeout(timeout)
    host, nothing, others = group.host, np.empty(0, np.uint8), range(1, group.size())
    if group.rank() != 0:
        group.start("send", (nothing, 0, BARRIER), backend=host)
        answer = Work(group, "monitored_barrier", host.recv(nothing, 0, BARRIER), None)
        answer.wait(datetime.timedelta(seconds=2 * seconds))  # the first process says more
        return
    waiting = {rank: host.recv(nothing, rank, BARRIER) for rank in others}
    deadline = time.monotonic() + seconds
    while waiting and time.monotonic() < deadline:
        waiting = {rank: request for rank, request in waiting.items() if not request.Test()}
        time.sleep(0.001)
    if waiting:
        missing = ", ".join(str(group.ranks[rank]) for rank in waiting)
        raise group.failure("monitored_barrier", f"rank {missing} has not come in {seconds:g} s")
    for rank in others:
        group.start("send", (nothing, rank, BARRIER), backend=host)


# The types that NCCL computes with, by NumPy's names.
TYPES = "int8 uint8 int32 int64 float16 bfloat16 float32 float64".split()
# Its reductions. An average is a sum that is divided afterwards.
REDUCTIONS = {"SUM": "SUM", "AVG": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX"}
OPS = {ReduceOp[name]: f"NCCL_{theirs}" for name, theirs in REDUCTIONS.items()}


def is_nccl_available() -> bool:
    """Whether there is a GPU for it."""
    return is_available()


class Queued:
    """A call in the current stream. What the program computes next comes after it, also there."""

    def Test(self) -> bool:
        return True


class NCCLBackend:
    """NCCL's collectives on CuPy arrays, in the current stream of the current GPU.

    The processes find one another through MPI. A call returns when it is in the stream, so that no
    timeout sees whether it ends.
    """

    device = "cuda"

    def __init__(self, host: MPIBackend):
        check_available()
        self.xp, self.nccl = cupy, cupy.cuda.nccl
        self.error = self.nccl.NcclError
        self.rank, self.size = host.rank, host.size
        self.types = {name: getattr(self.nccl, f"NCCL_{name.upper()}", None) for name in TYPES}
        self.ops = {op: getattr(self.nccl, name) for op, name in OPS.items()}
        number = np.zeros(128, np.int64)  # of the new communicator: 128 bytes
        if self.rank == 0:
            number[:] = self.nccl.get_unique_id()
        host.broadcast(number, 0).Wait()
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
        stream = self.xp.cuda.get_current_stream().ptr
        kind = self.types[counted.dtype.name]
        getattr(self.comm, name)(*places, counted.size, kind, *options, stream)
        return Queued()

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

    def send(self, array: Any, rank: int, tag: int) -> Queued:
        return self.call("send", [array], array, rank)

    def recv(self, array: Any, rank: int | None, tag: int) -> Queued:
        if rank is None:
            raise ValueError("recv with NCCL needs a source")
        return self.call("recv", [array], array, rank)

    def all_to_all(self, out: Any, out_counts: list[int], array: Any, counts: list[int]) -> Queued:
        """Messages between all pairs, as one call."""
        out, array, place, out_place = out.reshape(-1), array.reshape(-1), 0, 0
        self.nccl.groupStart()
        for rank, (count, out_count) in enumerate(zip(counts, out_counts, strict=True)):
            if count:
                self.send(array[place : place + count], rank, 0)
            if out_count:
                self.recv(out[out_place : out_place + out_count], rank, 0)
            place, out_place = place + count, out_place + out_count
        self.nccl.groupEnd()
        return Queued()

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
    import ctypes
    import importlib
    import types
    import warnings

    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.group import GroupMember, get_rank, init_process_group
    from tinytorch.distributed.simulator import MPI, here, simulate
    from tinytorch.ops.creation import zeros

    importlib.import_module("tinytorch.core.printing")

    def program():
        init_process_group("mpi")
        rank, x = get_rank(), zeros(2)
        if rank == 0:
            work = isend(tensor([1.0, 2.0]), 1)
            work.wait()
            recv(x, 1, tag=5)
        else:
            sender = recv(x)  # from any
            send(tensor([3.0, sender]), 0, tag=5)
        monitored_barrier()
        return x.tolist()

    print(simulate(2, program))  # -> [[3.0, 0.0], [1.0, 2.0]]

    def some_come():
        init_process_group("mpi")
        if get_rank() in (0, 2):
            monitored_barrier(timeout=datetime.timedelta(seconds=0.1))

    try:
        simulate(4, some_come)
    except DistBackendError as error:
        print(error)  # -> rank 0, monitored_barrier: rank 1, 3 has not come in 0.1 s

    def mistakes():
        init_process_group("mpi")
        if get_rank() == 1:
            return send(zeros(1), 0)
        found = []
        for mistake in (lambda: send(zeros(1), 0), lambda: recv(zeros(2), 1)):
            try:
                mistake()
            except (ValueError, DistBackendError) as error:
                found.append(str(error))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outside = GroupMember.NON_GROUP_MEMBER
            monitored_barrier(outside)
            return *found, recv(zeros(1), 1, outside), send(zeros(1), 1, outside)

    for found in simulate(2, mistakes)[0]:
        print(found)
    # -> Invalid rank 0: a process does not send messages to itself
    # -> recv: a message of 4 bytes for 8 bytes
    # -> -1
    # -> None

    # A stand-in of CuPy: arrays with addresses, and a NCCL that gets nothing else.
    class Array(np.ndarray):
        @property
        def data(self):
            return types.SimpleNamespace(ptr=self.__array_interface__["data"][0])

    NAMES = "int8 uint8 int32 int64 float16 float32 float64".split()

    def at(address, count, kind):
        """The elements at an address."""
        dtype = np.dtype(NAMES[kind])
        return np.ndarray(
            count, dtype, (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
        )

    class Communicator:
        def __init__(self, size, number, rank):
            self.comm = here.comm.Split(number[0], rank)

        def allReduce(self, source, target, count, kind, op, stream):
            self.comm.Iallreduce(MPI.IN_PLACE, at(target, count, kind), op).Wait()

        def broadcast(self, source, target, count, kind, root, stream):
            self.comm.Ibcast(at(target, count, kind), root).Wait()

        def reduce(self, source, target, count, kind, op, root, stream):
            part = at(source, count, kind).copy()
            self.comm.Ireduce(part, at(target, count, kind), op, root).Wait()

        def allGather(self, source, target, count, kind, stream):
            out = at(target, count * self.comm.size, kind)
            self.comm.Iallgather(at(source, count, kind), out).Wait()

        def reduceScatter(self, source, target, count, kind, op, stream):
            whole = at(source, count * self.comm.size, kind)
            self.comm.Ireduce_scatter_block(whole, at(target, count, kind), op).Wait()

        def send(self, source, count, kind, peer, stream):
            self.comm.Isend(at(source, count, kind), peer)

        def recv(self, target, count, kind, peer, stream):
            self.comm.Irecv(at(target, count, kind), peer).Wait()

        def destroy(self):
            print("destroyed")

    kinds = {f"NCCL_{name.upper()}": i for i, name in enumerate(NAMES)}
    reductions = {"NCCL_SUM": MPI.SUM, "NCCL_PROD": MPI.PROD, "NCCL_MIN": MPI.MIN}
    nccl = types.SimpleNamespace(
        NcclCommunicator=Communicator, NcclError=OSError, NCCL_MAX=MPI.MAX, **kinds, **reductions
    )
    nccl.get_unique_id = lambda: (7,) * 128
    nccl.groupStart = nccl.groupEnd = lambda: None
    cupy = types.SimpleNamespace(empty=lambda size, dtype: np.empty(size, dtype).view(Array))
    cupy.ascontiguousarray = lambda array: np.ascontiguousarray(array).view(Array)
    stream = types.SimpleNamespace(ptr=0)
    cupy.cuda = types.SimpleNamespace(nccl=nccl, get_current_stream=lambda: stream)

    def check_available():
        """There is a GPU, as far as the backend can see."""

    def on_gpus():
        rank = here.comm.rank
        backend = NCCLBackend(MPIBackend(here.mpi, here.comm))
        call, calls = backend.call, []

        def noted(name, *args):
            calls.append(name)
            return call(name, *args)

        backend.call = noted

        def array(*numbers, dtype=np.float32):
            return np.array(numbers, dtype).view(Array)

        total, first, largest = array(1, rank), array(rank + 5), array(rank)
        backend.all_reduce(backend.reducible(total), ReduceOp.SUM).Test()
        backend.broadcast(backend.movable(first), 1)
        backend.reduce(largest, ReduceOp.MAX, 0)
        whole, part = backend.empty(2, np.float32), array(0)
        backend.all_gather(whole, array(rank))
        backend.reduce_scatter(part, array(rank, 10), ReduceOp.SUM)
        collected, given = backend.empty(2, np.float32), array(0)
        backend.gather(collected if rank == 0 else None, array(rank + 3), 0)
        backend.scatter(given, array(8, 9) if rank == 0 else None, 0)
        truth = backend.reducible(array(rank, dtype=bool))
        short = backend.movable(array(rank, dtype=np.int16))
        results = total, first, whole, part, given
        found = [calls, [result.tolist() for result in results], truth.dtype, short.size]
        for mistake in (
            lambda: backend.reducible(array(1, dtype=np.int16)),
            lambda: backend.all_reduce(array(1), ReduceOp.BAND),
            lambda: backend.recv(array(1), None, 0),
        ):
            try:
                mistake()
            except (RuntimeError, ValueError) as error:
                found.append(error)
        return found, backend

    print("a GPU for NCCL:", is_nccl_available())  # -> ...
    results = simulate(2, on_gpus)
    for found in results[1][0]:
        print(found)
    # -> ['allReduce', 'broadcast', 'reduce', 'allGather', 'reduceScatter', 'send', 'recv']
    # -> [[2.0, 1.0], [6.0], [0.0, 1.0], [20.0], [9.0]]
    # -> uint8
    # -> 2
    # -> NCCL does not compute with int16
    # -> Cannot use ReduceOp.BAND with NCCL
    # -> recv with NCCL needs a source
    results[0][1].close()
