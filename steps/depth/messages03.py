"""Step messages03: Messages that belong together: batch_isend_irecv

In a ring each process sends to the next one and receives from the one before. With send and recv
all would send first, and a long message waits for its receiver: a deadlock. Odd ranks could receive
first, as in step simulator03; then half of the connections are idle at a time.

With isend and irecv all messages begin before the process waits for any. batch_isend_irecv does
this for a list of messages, in any order:

    to = P2POp(isend, x, (rank + 1) % size)
    at = P2POp(irecv, y, (rank - 1) % size)
    for work in batch_isend_irecv([to, at]):
        work.wait()

For MPI this is a loop. NCCL (step nccl02) has to know which messages belong together: it works on
one call after the other, and a send to a process that is sending too would never end. So step
nccl03 gives its backend the method `together`.

The trap: two messages between the same two ranks arrive in the order in which they were sent, so
both sides have to list them in the same order.

New: P2POp, batch_isend_irecv.
Try: let one rank give the list [at, to], and not [to, at]. Does the order matter?
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import ready, store
from tinytorch.distributed.group import (
    GroupMember,
    ProcessGroup,
    Work,
    default_group,
    get_group_rank,
)
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


class P2POp:
    """A message to send or receive, for batch_isend_irecv.

    Args:
        op: isend or irecv.
        peer: the global rank of the other process.
    Raises:
        ValueError: op is another function, or there is no group.
        TypeError: `tensor` is not a Tensor.
    """

    def __init__(
        self, op: Callable, tensor: Tensor, peer: int | None = None, group: Any = None, tag: int = 0
    ):
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be isend or irecv.")
        self.op, self.tensor, self.peer, self.tag = op, tensor, peer, tag
        self.group = default_group() if group is None else group


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin all these messages together, in any order: none of them waits for another one.

    Raises:
        ValueError: it is not a list of P2POp of one group.
    """
    if not isinstance(p2p_op_list, list) or not all(isinstance(x, P2POp) for x in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to be of type P2POp.")
    if len({x.group for x in p2p_op_list}) > 1:
        raise ValueError("All ops need to use the same group.")
    if not p2p_op_list or (group := p2p_op_list[0].group) is GroupMember.NON_GROUP_MEMBER:
        return []
    # MPI works on all that has begun. NCCL would work on one message after the other.
    with nullcontext() if group.backend is group.host else group.backend.together():
        return [x.op(x.tensor, x.peer, x.group, x.tag) for x in p2p_op_list]


if __name__ == "__main__":
    import importlib

    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.group import (
        get_rank,
        get_world_size,
        group,
        init_process_group,
        new_group,
    )
    from tinytorch.distributed.simulator import simulate
    from tinytorch.ops.creation import zeros

    for name in "core.printing ops.arithmetic ops.conversion ops.shape".split():
        importlib.import_module(f"tinytorch.{name}")

    def ring():
        """The sum of all ranks: each number goes round."""
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        mine = total = tensor([10.0**rank])
        for _ in range(size - 1):
            came = zeros(1)
            to, at = P2POp(isend, mine, (rank + 1) % size), P2POp(irecv, came, (rank - 1) % size)
            for work in batch_isend_irecv([to, at]):
                work.wait()
            mine, total = came, total + came
        return total.item()

    print(simulate(3, ring))  # -> [111.0, 111.0, 111.0]

    def mistakes():
        init_process_group("mpi")
        x, found = zeros(1), []
        whole, other = group.WORLD, new_group([0, 1])
        for mistake in (
            lambda: P2POp(send, x, 1),
            lambda: batch_isend_irecv([x]),
            lambda: batch_isend_irecv([P2POp(isend, x, 1, whole), P2POp(isend, x, 1, other)]),
        ):
            try:
                mistake()
            except ValueError as error:
                found.append(str(error))
        return *found, batch_isend_irecv([])

    for found in simulate(2, mistakes)[0]:
        print(found)
    # -> Invalid ``op``. Expected ``op`` to be isend or irecv.
    # -> Invalid ``p2p_op_list``. Each op is expected to be of type P2POp.
    # -> All ops need to use the same group.
    # -> []
