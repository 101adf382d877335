"""Step messages01: Messages between two processes: send, recv, isend, irecv

Not every message concerns all processes. In a pipeline a process sends the outputs of its layers to
the process with the next layers (step pipeline02), and only these two take part. A collective would
make all processes wait.

    send(x, dst)     recv(x, src)        wait until x may be changed, or has come
    isend(x, dst)    irecv(x, src)       return a handle at once

They are made like the collectives, with ready, movable and arrival of step group08. send and isend
do not share a function for what they have in common: two lines, and a call into it costs 0.1 us of
the 5 that a small message takes. dst and src are
global ranks, as in all calls. A tag tells messages apart (step simulator05).

MPI lets a process send to itself, if it also receives. But a `send` that waits would never reach
the receive, so it is refused.

The trap: send may return before the other process has received, if the message is short and MPI
keeps a copy; a long one waits. So two processes that both send first work with small tensors and
hang with large ones, as in step simulator03. Let one of them receive first, or use isend.

New: other, isend, send, irecv, recv.
Try: let both ranks send first: in the demo, where MPI is simulated and each message is a copy, and
under mpiexec -n 2 with a million numbers. (Ctrl-C)
"""

from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import arrival, ready
from tinytorch.distributed.group import ProcessGroup, Work, get_group_rank


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


def irecv(tensor: Tensor, src: int, group: Any = None, tag: int = 0) -> Work | None:
    """Begin to receive a tensor from process `src`."""
    if (group := ready("irecv", group, tensor)) is None:
        return None
    wire = group.backend.movable(tensor.array)
    args, finish = (wire, other(group, src), tag), arrival(tensor, wire)
    return group.start("recv", args, finish, True, tensor.array)


def recv(tensor: Tensor, src: int, group: Any = None, tag: int = 0) -> int:
    """Receive a tensor from process `src`.

    Returns the rank of the sender; -1 where this process does not belong to the group.
    """
    if (group := ready("recv", group, tensor)) is None:
        return -1
    wire = group.backend.movable(tensor.array)
    args, finish = (wire, other(group, src), tag), arrival(tensor, wire)
    group.start("recv", args, finish, False, tensor.array)
    return src


if __name__ == "__main__":
    import importlib
    import warnings

    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.group import GroupMember, get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.ops.creation import zeros

    for name in "core.printing ops.arithmetic ops.conversion ops.shape".split():
        importlib.import_module(f"tinytorch.{name}")

    def program():
        init_process_group("mpi")
        rank, x = get_rank(), zeros(2)
        if rank == 0:
            work = isend(tensor([1.0, 2.0]), 1)
            work.wait()
            recv(x, 1, tag=5)
            return x.tolist()
        work = irecv(x, 0)
        early = x.tolist()
        work.wait()
        send(x * 10, 0, tag=5)
        return early, x.tolist()

    print(simulate(2, program))  # -> [[10.0, 20.0], ([0.0, 0.0], [1.0, 2.0])]

    def mistakes():
        init_process_group("mpi")
        try:
            send(zeros(1), 0)
        except ValueError as error:
            found = str(error)
        outside, x = GroupMember.NON_GROUP_MEMBER, zeros(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            works = isend(x, 1, outside), irecv(x, 1, outside)
            return found, recv(x, 1, outside), send(x, 1, outside), works

    for found in simulate(1, mistakes)[0]:
        print(found)
    # -> Invalid rank 0: a process does not send messages to itself
    # -> -1
    # -> None
    # -> (None, None)
