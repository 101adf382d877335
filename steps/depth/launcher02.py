"""Step launcher02: Objects from one process: broadcast_object_list and scatter_object_list

Rank 0 has read a configuration, or a checkpoint, and all ranks need it. With all_gather_object of
step launcher01 each process would send an object of its own as well, and all would be padded to the
longest: each of 64 processes would make room for 64 checkpoints.

From one to all, two broadcasts are enough: the size, and then the bytes.

    root      data = pickle.dumps(thing)
    others    data = room for `size` bytes

scatter_object_list gives each process one object of a list. It sends the whole list to all, which
is simple, and enough for its usual objects: paths, seeds, names.

The trap: np.frombuffer of bytes is read-only. MPI only reads the root's array in a broadcast, but
the simulation writes into every array, also into the root's. So the bytes are copied.

New: distribute, broadcast_object_list, scatter_object_list. They complete objects.py.
Try: leave out the copy.
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


def distribute(thing: Any, root: int, group: ProcessGroup) -> Any:
    """The object of the process `root`, in all of them."""
    data = np.frombuffer(pickle.dumps(thing), np.uint8).copy()
    size = np.array([data.size])
    group.start("broadcast", (size, root), backend=group.host)
    if group.rank() != root:
        data = np.empty(size[0], np.uint8)
    group.start("broadcast", (data, root), backend=group.host)
    return pickle.loads(data.tobytes())


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


def broadcast_object_list(
    object_list: list, src: int = 0, group: Any = None, device: Any = None
) -> None:
    """Replace the objects of the list by those of process `src`."""
    if (group := member("broadcast_object_list", group)) is not None:
        object_list[:] = distribute(object_list, get_group_rank(group, src), group)


def scatter_object_list(
    scatter_object_output_list: list,
    scatter_object_input_list: list | None = None,
    src: int = 0,
    group: Any = None,
) -> None:
    """Put scatter_object_input_list[rank] of process `src` at place 0 of each output list."""
    if (group := member("scatter_object_list", group)) is None:
        return
    root, things = get_group_rank(group, src), scatter_object_input_list
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("scatter_object_output_list should be a list of size >= 1")
    if group.rank() == root and len(things or ()) != group.size():
        raise ValueError("scatter_object_input_list must have an object for each process")
    scatter_object_output_list[0] = distribute(things, root, group)[group.rank()]


if __name__ == "__main__":
    import warnings

    from tinytorch.distributed.group import GroupMember, get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate

    def program():
        init_process_group("mpi")
        rank = get_rank()
        settings, share = ["lr", 0.1 * (rank + 1)], [None]
        broadcast_object_list(settings)
        scatter_object_list(share, ["a", "b"] if rank == 0 else None)
        return settings, share

    for results in simulate(2, program):
        print(*results)
    # -> ['lr', 0.1] ['a']
    # -> ['lr', 0.1] ['b']

    def mistakes():
        init_process_group("mpi")
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scatter_object_list([], group=GroupMember.NON_GROUP_MEMBER)
        for mistake in (
            lambda: scatter_object_list([]),
            lambda: scatter_object_list([None], [1, 2]),
        ):
            try:
                mistake()
            except ValueError as error:
                found.append(str(error))
        return found

    for text in simulate(1, mistakes)[0]:
        print(text)
    # -> scatter_object_output_list should be a list of size >= 1
    # -> scatter_object_input_list must have an object for each process
