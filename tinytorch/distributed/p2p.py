"""Messages from one process to another."""

from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import arrival, ready
from tinytorch.distributed.group import ProcessGroup, Work, get_group_rank
from tinytorch.distributed.types import DistBackendError


class Message:
    """A message that is on its way to this process: a request that knows its sender."""

    def __init__(self, mpi: Any, request: Any, nbytes: int):
        self.mpi, self.request, self.nbytes, self.status = mpi, request, nbytes, mpi.Status()

    def Test(self) -> bool:
        if not self.request.Test(self.status):
            return False
        sent = self.status.Get_count(self.mpi.BYTE)
        if sent != self.nbytes:
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


def isend(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> Work | None:
    """Begin to send the tensor to process `dst`."""
    if (group := ready("isend", group, tensor)) is None:
        return None
    wire = group.backend.movable(tensor.array)
    return group.start("send", (wire, other(group, dst), tag), None, True)


def send(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> None:
    """Send the tensor to process `dst`, and wait until it may be changed."""
    if (work := isend(tensor, dst, group, tag)) is not None:
        work.wait()


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> Work | None:
    """Begin to receive a tensor from process `src`, or from any."""
    if (group := ready("irecv", group, tensor)) is None:
        return None
    source = None if src is None else other(group, src)
    wire = group.backend.movable(tensor.array)
    work = group.start("recv", (wire, source, tag), arrival(tensor, wire), True)
    if group.backend is group.host:
        work.request = Message(group.host.mpi, work.request, wire.nbytes)
    return work


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> int:
    """Receive a tensor from process `src`, or from any.

    Returns the rank of the sender; -1 where this process does not belong to the group.
    """
    if (work := irecv(tensor, src, group, tag)) is None:
        return -1
    work.wait()
    return work.group.ranks[work.request.status.Get_source()] if src is None else src
