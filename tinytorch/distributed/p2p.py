"""Messages from one process to another."""

from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import arrival, check_tensor, member
from tinytorch.distributed.group import ProcessGroup, Work, get_group_rank


def check_other(group: ProcessGroup, rank: int, word: str) -> None:
    if rank == group.rank():
        raise ValueError(f"Invalid {word} rank: it is the rank of the current process")


def isend(
    tensor: Tensor,
    dst: int,
    group: Any = None,
    tag: int = 0,
) -> Work | None:
    """Begin to send the tensor to process `dst`."""
    if (group := member("isend", group)) is None:
        return None
    check_tensor(tensor, "tensor", group)
    rank = get_group_rank(group, dst)
    check_other(group, rank, "destination")
    return group.start("send", (group.backend.movable(tensor.array), rank, tag), None, True)


def send(
    tensor: Tensor,
    dst: int,
    group: Any = None,
    tag: int = 0,
) -> None:
    """Send the tensor to process `dst`, and wait until it may be changed."""
    work = isend(tensor, dst, group, tag)
    if work is not None:
        work.wait()


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
) -> Work | None:
    """Begin to receive a tensor from process `src`, or from any."""
    if (group := member("irecv", group)) is None:
        return None
    check_tensor(tensor, "tensor", group)
    rank = None
    if src is not None:
        rank = get_group_rank(group, src)
        check_other(group, rank, "source")
    wire = group.backend.movable(tensor.array)
    return group.start("recv", (wire, rank, tag), arrival(tensor, wire), True)


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
) -> int:
    """Receive a tensor from process `src`, or from any; the rank of the sender, -1 outside."""
    work = irecv(tensor, src, group, tag)
    if work is None:
        return -1
    work.wait()
    return work.group.ranks[work.request.source]
