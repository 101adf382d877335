"""Messages from one process to another."""

from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import check_tensor, member, root_of, store
from tinytorch.distributed.group import ProcessGroup, Work


def check_other(group: ProcessGroup, rank: int, word: str) -> None:
    if rank == group.rank():
        raise ValueError(
            f"Invalid {word} rank: {word} rank should not be the same as the rank of the current "
            f"process."
        )


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Begin to send the tensor to process `dst`."""
    group = member("isend", group)
    if group is None:
        return None
    check_tensor(tensor, "tensor", group)
    rank = root_of(group, dst, group_dst)
    check_other(group, rank, "destination")
    return group.start("send", (group.backend.movable(tensor.array), rank, tag), None, True)


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send the tensor to process `dst`, and wait until it may be changed."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Begin to receive a tensor from process `src`, or from any."""
    group = member("irecv", group)
    if group is None:
        return None
    check_tensor(tensor, "tensor", group)
    rank = None
    if src is not None or group_src is not None:
        rank = root_of(group, src, group_src)
        check_other(group, rank, "source")
    wire = group.backend.movable(tensor.array)
    return group.start("recv", (wire, rank, tag), lambda: store(tensor, wire), True)


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor from process `src`, or from any; the rank of the sender, -1 outside."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.group.ranks[work.request.source]
