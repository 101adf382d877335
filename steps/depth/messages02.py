"""Step messages02: The sender and the length of a message: MPI's Status

A message may be shorter than the tensor that waits for it. MPI then fills the first elements, and
reports nothing: the rest keeps its old numbers, which look like a result. (A longer message is an
error of MPI.) The demo shows it with what recv of step messages01 did.

And sometimes any sender will do: a process that hands out work waits for the first one that is
ready. recv(x) without src takes the next message, and returns the rank of its sender.

MPI answers both questions with a Status, which is filled when the message has come:

    status.count     how many bytes have come
    status.source    from which rank, in the communicator of the group

So each Test() of the request gets the status to fill (step group13), and `received` looks at it
when the message is there: recv calls it itself, the handle of irecv calls it as its `finish`.

The trap: the rank in a Status is the one in the group. recv returns the global one.

Changed: irecv, recv. New: received.
Try: in `mistakes`, let rank 1 send three numbers. Is it `received` or MPI that finds the error?
"""

from functools import partial
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import ready, store
from tinytorch.distributed.group import ProcessGroup, Work, get_group_rank
from tinytorch.distributed.types import DistBackendError


def received(tensor: Tensor, wire: Any, status: Any) -> None:
    """Check the length of a message, and store it.

    Raises:
        DistBackendError: it is shorter than the tensor.
    """
    if status is not None and (sent := status.count) != wire.nbytes:
        raise DistBackendError(f"recv: a message of {sent} bytes for {wire.nbytes} bytes")
    if wire is not tensor.array:
        store(tensor, wire)


def other(group: ProcessGroup, rank: int) -> int:
    """The rank in the group of another process.

    Raises:
        ValueError: it does not belong to the group, or is this process.
    """
    found = get_group_rank(group, rank)
    if found == group.backend.rank:
        raise ValueError(f"Invalid rank {rank}: a process does not send messages to itself")
    return found


def isend(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> Work | None:
    """Begin to send the tensor to process `dst`."""
    if (group := ready("isend", group, tensor)) is None:
        return None
    args = group.backend.movable(tensor.array), other(group, dst), tag
    return group.start("send", args, None, True)


def send(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> None:
    """Send the tensor to process `dst`, and wait until it may be changed."""
    if (group := ready("send", group, tensor)) is not None:
        args = group.backend.movable(tensor.array), other(group, dst), tag
        group.start("send", args)


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> Work | None:
    """Begin to receive a tensor from process `src`, or from any."""
    if (group := ready("irecv", group, tensor)) is None:
        return None
    wire, status = group.backend.movable(tensor.array), group.backend.status()
    args = wire, None if src is None else other(group, src), tag
    finish = partial(received, tensor, wire, status)
    return group.start("recv", args, finish, True, tensor.array, status)


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> int:
    """Receive a tensor from process `src`, or from any.

    Returns the rank of the sender; -1 where this process does not belong to the group.
    """
    if (group := ready("recv", group, tensor)) is None:
        return -1
    wire, status = group.backend.movable(tensor.array), group.backend.status()
    args = wire, None if src is None else other(group, src), tag
    group.start("recv", args, None, False, tensor.array, status)
    received(tensor, wire, status)
    return group.ranks[status.source] if src is None else src


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
        here.group.host.recv(x.array, 1, 0).Wait()  # as step messages01 did
        return x.tolist()

    print("half of it is old:", simulate(2, short)[0])  # -> half of it is old: [1.0, 8.0]

    def program():
        init_process_group("mpi")
        rank, x = get_rank(), zeros(2)
        if rank == 0:
            return [recv(x) for _ in range(2)], x.tolist()
        send(tensor([1.0, 2.0]) * rank, 0)

    print(simulate(3, program)[0])  # -> ([1, 2], [2.0, 4.0])

    def turned():  # the elements of x do not lie side by side: a copy receives them
        init_process_group("mpi")
        if get_rank() == 1:
            return send(tensor([[1.0, 2.0], [3.0, 4.0]]), 0)
        x = zeros(2, 2).T
        recv(x, 1)
        return x.tolist()

    print(simulate(2, turned)[0])  # -> [[1.0, 2.0], [3.0, 4.0]]

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
