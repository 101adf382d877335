"""Step messages04: A barrier that names the missing: monitored_barrier

A time limit says who waited (step group14). With 64 processes the interesting question is the other
one: who did not come? A collective cannot tell: in MPI's barrier no process knows which one is
missing.

Messages can. Each process sends an empty message to the first process of the group, which checks it
off a list:

    1, 2, 3 -> 0       "I am here"
    0 -> 1, 2, 3       "all are here": go on

After the time limit, the first process names the ranks that have not sent one:

    rank 0, monitored_barrier: rank 1, 3 has not come in 0.1 s

The others wait twice as long, so that this error, which says more, comes first.

The trap: all 2 (n - 1) messages of this barrier pass through one process. Put it where a program
hangs, and not into the training loop.

New: monitored_barrier, BARRIER. They complete p2p.py.
Try: let all ranks but rank 0 come. What does the error say, and after how many seconds?
"""

import datetime
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import member, ready, store
from tinytorch.distributed.group import (
    GroupMember,
    ProcessGroup,
    Work,
    check_timeout,
    default_group,
    get_group_rank,
)
from tinytorch.distributed.types import DistBackendError

BARRIER = 30_000  # the tag of the messages of monitored_barrier; MPI has 32,767 at least


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


def monitored_barrier(
    group: Any = None, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier whose error names all processes that have not come, whatever wait_all_ranks is.

    Raises:
        DistBackendError: in the first process of the group, with the global ranks that are missing;
            in the others, if the first process has failed or not come.
    """
    if (group := member("monitored_barrier", group)) is None:
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


if __name__ == "__main__":
    import warnings

    from tinytorch.distributed.group import get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate

    def all_come():
        init_process_group("mpi")
        monitored_barrier()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            monitored_barrier(GroupMember.NON_GROUP_MEMBER)
        return "went on"

    print(simulate(3, all_come))  # -> ['went on', 'went on', 'went on']

    def some_come():
        init_process_group("mpi")
        if get_rank() in (0, 2):
            monitored_barrier(timeout=datetime.timedelta(seconds=0.1))

    try:
        simulate(4, some_come)
    except DistBackendError as error:
        print(error)  # -> rank 0, monitored_barrier: rank 1, 3 has not come in 0.1 s
