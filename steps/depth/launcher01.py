"""Step launcher01: Objects: all_gather_object and gather_object

Processes have more to tell one another than tensors: a dictionary of settings, a path, the number
of samples that each has read. A collective wants tensors of one known size, but the sizes of
objects differ.

Objects are sent as bytes: they are pickled (step pickle04), and two collectives follow.

    sizes        how many bytes each process has            all_gather of one number
    everything   the bytes, all padded to the longest       all_gather of max(sizes) bytes

A receiver cannot make room before it knows how much is coming, so the sizes go first. And MPI's
all_gather moves equal parts, so short objects are padded: one long object makes each process
allocate its size for every rank.

The bytes go through group.host, which is MPI even where the tensors are on GPUs.

The trap is pickle's: loading runs code, so use it only among your own processes.

New: exchange, all_gather_object, gather_object.
Try: print everything.shape in exchange, and let rank 1 send "long " * 1000 in the demo.
"""

import pickle
from typing import Any

import numpy as np

from tinytorch.distributed.collectives import member
from tinytorch.distributed.group import ProcessGroup, get_group_rank


def exchange(thing: Any, group: ProcessGroup) -> list:
    """The objects of all processes, by rank."""
    data = np.frombuffer(pickle.dumps(thing), np.uint8)
    sizes = np.empty(group.size(), np.int64)
    group.start("all_gather", (sizes, np.array([data.size])), backend=group.host)
    padded, everything = np.zeros(sizes.max(), np.uint8), np.empty((sizes.size, sizes.max()), "u1")
    padded[: data.size] = data
    group.start("all_gather", (everything, padded), backend=group.host)
    return [pickle.loads(row[:n].tobytes()) for row, n in zip(everything, sizes, strict=True)]


def all_gather_object(object_list: list, obj: Any, group: Any = None) -> None:
    """Fill object_list with the objects of all processes, in the order of their ranks."""
    if (group := member("all_gather_object", group)) is not None:
        object_list[: group.size()] = exchange(obj, group)


def gather_object(
    obj: Any, object_gather_list: list | None = None, dst: int = 0, group: Any = None
) -> None:
    """Like all_gather_object, but only process `dst` gets the result."""
    if (group := member("gather_object", group)) is None:
        return
    wanted = get_group_rank(group, dst) == group.rank()
    if wanted and not object_gather_list:
        raise ValueError("object_gather_list must be specified on the destination rank")
    found = exchange(obj, group)
    if wanted:
        object_gather_list[: group.size()] = found


if __name__ == "__main__":
    import warnings

    from tinytorch.distributed.group import GroupMember, get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate

    def program():
        init_process_group("mpi")
        rank, found, collected = get_rank(), [None] * 2, [None] * 2 if get_rank() == 1 else None
        all_gather_object(found, {"rank": rank, "text": "long " * rank})
        gather_object(rank * 10, collected, 1)
        return found, collected

    for found, collected in simulate(2, program):
        print(found, collected)
    # -> [{'rank': 0, 'text': ''}, {'rank': 1, 'text': 'long '}] None
    # -> [{'rank': 0, 'text': ''}, {'rank': 1, 'text': 'long '}] [0, 10]

    def mistakes():
        init_process_group("mpi")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gather_object(1, group=GroupMember.NON_GROUP_MEMBER)
        try:
            gather_object(1)
        except ValueError as error:
            return str(error)

    print(simulate(1, mistakes)[0])
    # -> object_gather_list must be specified on the destination rank
