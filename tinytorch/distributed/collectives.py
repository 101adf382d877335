"""Collectives: calls that all processes of a group make together."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.group import (
    GroupMember,
    ProcessGroup,
    Work,
    default_group,
    get_group_rank,
)
from tinytorch.distributed.simulator import here
from tinytorch.distributed.types import ReduceOp

SUM, AVG = ReduceOp.SUM, ReduceOp.AVG  # an attribute of an enumeration takes 0.15 us each time


def check_tensor(tensor: Any, group: ProcessGroup) -> None:
    """Raises:
    TypeError: it is not a Tensor.
    RuntimeError: the group's backend does not serve its device.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"Invalid function argument. Expected a tinytorch.Tensor, got {tensor!r}")
    if tensor.device.type != group.backend.device:
        raise RuntimeError(f"No backend type associated with device type {tensor.device.type}")


def member(name: str, group: Any, level: int = 3) -> ProcessGroup | None:
    """The group of a call; None, with a warning, if this process does not belong to it."""
    if group is not GroupMember.NON_GROUP_MEMBER:
        return default_group() if group is None else group
    warnings.warn(
        f"Running {name} on global rank {default_group().rank()} which does not belong to the "
        f"given group.",
        stacklevel=level,
    )
    return None


def ready(name: str, group: Any, tensor: Tensor) -> ProcessGroup | None:
    """The group of a call whose tensor has been checked; None as for member."""
    if group is None:
        group = here.group or default_group()
    elif (group := member(name, group, 4)) is None:
        return None
    # Most tensors have an array of the right type, and need no check of their device.
    if not isinstance(tensor, Tensor) or type(tensor.array) is not group.array_type:
        check_tensor(tensor, group)
    return group


def check_op(op: Any, tensor: Tensor) -> ReduceOp:
    """The reduction of what is on the wire.

    Raises:
        TypeError: it is not a ReduceOp.
        RuntimeError: it does not suit the dtype.
    """
    if op is SUM:
        # Whether one of several booleans is true: the largest byte. A sum of bytes would overflow.
        return ReduceOp.MAX if tensor.array.dtype.char == "?" else op
    if not isinstance(op, ReduceOp):
        raise TypeError(f"expected a ReduceOp, got {op!r}")
    if (tensor.dtype.is_floating_point and op.name.startswith("B")) or (
        op is AVG and not tensor.dtype.is_floating_point
    ):
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with {tensor.dtype}")
    return op


def store(tensor: Tensor, wire: Any) -> None:
    """Write what has come into the tensor, unless it has come into its own memory."""
    array = tensor.array
    if wire is not array:
        if wire.nbytes == array.nbytes:  # the same bits, under the name of another type
            wire = wire.view(array.dtype)
        array[...] = wire.reshape(array.shape)


def arrival(tensor: Tensor, wire: Any) -> Callable | None:
    """The function that stores a result in the tensor; None, if MPI writes into it directly."""
    return None if wire is tensor.array else partial(store, tensor, wire)


def reduced(tensor: Tensor, wire: Any, op: ReduceOp, group: ProcessGroup) -> Callable | None:
    """The function that stores a reduction in the tensor; None, as for arrival."""
    if op is not AVG:
        return arrival(tensor, wire)

    def finish() -> None:
        group.backend.xp.divide(wire, group.size(), out=wire)
        store(tensor, wire)

    return finish


def all_reduce(
    tensor: Tensor, op: ReduceOp = SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Replace the tensor in all processes by the reduction of all of them, element by element.

    With MPI halves are added in float32 and rounded once.
    """
    if (group := ready("all_reduce", group, tensor)) is None:
        return None
    wire = group.backend.reducible(tensor.array)
    if op is SUM and wire is tensor.array:  # as most calls are: nothing is converted
        return group.start("all_reduce", (wire, op), None, async_op, wire)
    args, finish = (wire, check_op(op, tensor)), reduced(tensor, wire, op, group)
    return group.start("all_reduce", args, finish, async_op, tensor.array)


def broadcast(tensor: Tensor, src: int, group: Any = None, async_op: bool = False) -> Work | None:
    """Send the tensor of process `src` to all others, into theirs."""
    if (group := ready("broadcast", group, tensor)) is None:
        return None
    wire, root = group.backend.movable(tensor.array), get_group_rank(group, src)
    finish = arrival(tensor, wire)
    return group.start("broadcast", (wire, root), finish, async_op, tensor.array)


def reduce(
    tensor: Tensor, dst: int, op: ReduceOp = SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Like all_reduce, but only process `dst` gets the result."""
    if (group := ready("reduce", group, tensor)) is None:
        return None
    root, wire = get_group_rank(group, dst), group.backend.reducible(tensor.array)
    args = wire, check_op(op, tensor), root
    if group.rank() != root:
        return group.start("reduce", args, None, async_op)
    return group.start("reduce", args, reduced(tensor, wire, op, group), async_op, tensor.array)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all processes of the group have come here."""
    group = member("barrier", group)
    return None if group is None else group.start("barrier", (), None, async_op)


def check_whole(whole: Tensor, part: Tensor, group: ProcessGroup) -> None:
    """Raises:
    RuntimeError: dtypes differ, or `whole` is not as large as the parts of all processes.
    """
    if whole.dtype != part.dtype or whole.numel() != part.numel() * group.size():
        raise RuntimeError(
            f"expected {group.size()} times {part.shape} of {part.dtype}, got {whole.shape} of "
            f"{whole.dtype}"
        )


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """all_gather into one tensor: along dimension 0, or along a new one in front."""
    if (group := ready("all_gather_into_tensor", group, output_tensor)) is None:
        return None
    check_tensor(input_tensor, group)
    check_whole(output_tensor, input_tensor, group)
    args = tuple(group.backend.movable(tensor.array) for tensor in (output_tensor, input_tensor))
    finish = arrival(output_tensor, args[0])
    return group.start("all_gather", args, finish, async_op, output_tensor.array)


def start_reduce_scatter(
    output: Tensor, whole: Any, op: ReduceOp, group: ProcessGroup, async_op: bool
) -> Work | None:
    wire = group.backend.empty(output.numel(), whole.dtype)
    args, finish = (wire, whole, check_op(op, output)), reduced(output, wire, op, group)
    return group.start("reduce_scatter", args, finish, async_op, output.array)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """reduce_scatter of one tensor, which holds the parts one after the other."""
    if (group := ready("reduce_scatter_tensor", group, output)) is None:
        return None
    check_tensor(input, group)
    check_whole(input, output, group)
    whole = group.backend.reducible(input.array)
    return start_reduce_scatter(output, whole, op, group, async_op)
