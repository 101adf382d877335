"""Step 104n: The sender and the length of a message: MPI's Status

A message may be shorter than the tensor that waits for it. MPI then fills the first elements, and
reports nothing: the rest keeps its old numbers, which look like a result. (A longer message is an
error of MPI.) The demo shows it with what recv of step 104m did.

And sometimes any sender will do: a process that hands out work waits for the first one that is
ready. recv(x) without src takes the next message, and returns the rank of its sender.

MPI answers both questions with a Status, which is filled when the message has come:

    status.Get_count(BYTE)    how many bytes have come
    status.Get_source()       from which rank, in the communicator of the group

So Message stands between the handle and MPI's request: its Test looks at the status.

The trap: the rank in a Status is the one in the group. recv returns the global one.

Changed: start_recv, irecv, recv. New: Message.
Try: in `mistakes`, let rank 1 send three numbers. Is it Message or MPI that finds the error?
"""

from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import arrival, ready
from tinytorch.distributed.group import ProcessGroup, Work, get_group_rank
from tinytorch.distributed.mpi import MPIBackend
from tinytorch.distributed.types import DistBackendError


class Message:
    """A message that is on its way to this process: a request that knows its sender."""

    def __init__(self, host: MPIBackend):
        self.host, self.status = host, host.mpi.Status()

    def recv(self, wire: Any, source: int | None, tag: int) -> "Message":
        self.request, self.nbytes = self.host.recv(wire, source, tag), wire.nbytes
        return self

    def Test(self) -> bool:
        if not self.request.Test(self.status):
            return False
        if (sent := self.status.Get_count(self.host.mpi.BYTE)) != self.nbytes:
            raise DistBackendError(f"recv: a message of {sent} bytes for {self.nbytes} bytes")
        return True


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


if __name__ == "__main__":
    import importlib
    import warnings

    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.group import GroupMember, get_rank, init_process_group
    from tinytorch.distributed.simulator import here, simulate
    from tinytorch.ops.creation import zeros

    for name in "core.printing ops.arithmetic ops.conversion ops.shape".split():
        importlib.import_module(f"tinytorch.{name}")

    def short():
        init_process_group("mpi")
        if get_rank() == 1:
            return send(tensor([1.0]), 0)
        x = tensor([7.0, 8.0])
        here.group.host.recv(x.array, 1, 0).Wait()  # as step 104m did
        return x.tolist()

    print("half of it is old:", simulate(2, short)[0])  # -> half of it is old: [1.0, 8.0]

    def program():
        init_process_group("mpi")
        rank, x = get_rank(), zeros(2)
        if rank == 0:
            return [recv(x) for _ in range(2)], x.tolist()
        send(tensor([1.0, 2.0]) * rank, 0)

    print(simulate(3, program)[0])  # -> ([1, 2], [2.0, 4.0])

    def mistakes():
        init_process_group("mpi")
        if get_rank() == 1:
            return send(zeros(1), 0)
        outside, x = GroupMember.NON_GROUP_MEMBER, zeros(2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [recv(x, 1, outside), irecv(x, 1, outside)]
        try:
            irecv(x).wait()
        except DistBackendError as error:
            return *found, str(error)

    print(simulate(2, mistakes)[0])
    # -> (-1, None, 'recv: a message of 4 bytes for 8 bytes')
