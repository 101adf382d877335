"""Collectives of Python objects. They are pickled: use them among processes that you trust."""

import pickle
from typing import Any

import numpy as np

from tinytorch.distributed.collectives import member
from tinytorch.distributed.group import ProcessGroup, get_group_rank


def packed(thing: Any) -> np.ndarray:
    return np.frombuffer(bytearray(pickle.dumps(thing)), np.uint8)


def exchange(thing: Any, group: ProcessGroup) -> list:
    """The objects of all processes."""
    data = packed(thing)
    sizes = np.empty(group.size(), np.int64)
    group.start("all_gather", (sizes, np.array([data.size])), backend=group.host)
    padded = np.zeros(sizes.max(), np.uint8)
    padded[: data.size] = data
    everything = np.empty((group.size(), padded.size), np.uint8)
    group.start("all_gather", (everything, padded), backend=group.host)
    return [pickle.loads(row[:n].tobytes()) for row, n in zip(everything, sizes, strict=True)]


def all_gather_object(object_list: list, obj: Any, group: Any = None) -> None:
    """Fill object_list with the objects of all processes, in the order of their ranks."""
    group = member("all_gather_object", group)
    if group is not None:
        object_list[: group.size()] = exchange(obj, group)


def gather_object(
    obj: Any,
    object_gather_list: list | None = None,
    dst: int = 0,
    group: Any = None,
) -> None:
    """all_gather_object of which only process `dst` (0) gets the result."""
    if (group := member("gather_object", group)) is None:
        return
    root = get_group_rank(group, dst)
    if group.rank() == root and not object_gather_list:
        raise ValueError("object_gather_list must be specified on the destination rank")
    found = exchange(obj, group)
    if group.rank() == root:
        object_gather_list[: group.size()] = found


def broadcast_object(thing: Any, root: int, group: ProcessGroup) -> Any:
    """The object of the process `root`, in all of them."""
    data = packed(thing) if group.rank() == root else None
    size = np.array([0 if data is None else data.size])
    group.start("broadcast", (size, root), backend=group.host)
    if data is None:
        data = np.empty(size[0], np.uint8)
    group.start("broadcast", (data, root), backend=group.host)
    return pickle.loads(data.tobytes())


def broadcast_object_list(
    object_list: list,
    src: int = 0,
    group: Any = None,
    device: Any = None,
) -> None:
    """Replace the objects of the list by those of process `src` (0)."""
    group = member("broadcast_object_list", group)
    if group is not None:
        root = get_group_rank(group, src)
        object_list[:] = broadcast_object(object_list, root, group)


def scatter_object_list(
    scatter_object_output_list: list,
    scatter_object_input_list: list | None = None,
    src: int = 0,
    group: Any = None,
) -> None:
    """Put the rank-th object of the list of process `src` (0) into each output list, at place 0."""
    if (group := member("scatter_object_list", group)) is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size >= 1.")
    root = get_group_rank(group, src)
    things = scatter_object_input_list
    if group.rank() == root and len(things or ()) != group.size():
        raise ValueError("Argument scatter_object_input_list must have an object for each process.")
    scatter_object_output_list[0] = broadcast_object(things, root, group)[group.rank()]
