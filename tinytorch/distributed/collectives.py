"""Collectives: calls that all processes of a group make together."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
from tinytorch.distributed.group import (
    GroupMember,
    ProcessGroup,
    Work,
    default_group,
    get_group_rank,
)
from tinytorch.distributed.types import ReduceOp

SUM, AVG = ReduceOp.SUM, ReduceOp.AVG  # an attribute of an enumeration takes 0.15 us each time


def check_tensor(tensor: Any, name: str, group: ProcessGroup) -> None:
    """Raises:
    TypeError: it is not a Tensor.
    RuntimeError: the group's backend does not serve its device.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} should be a tinytorch.Tensor, not {type(tensor)}")
    if tensor.device.type != group.backend.device:
        raise RuntimeError(f"No backend type associated with device type {tensor.device.type}")


def check_list(tensors: Any, name: str, group: ProcessGroup, model: Tensor | None = None) -> None:
    """Check a list that has a tensor for each process; with `model`, of its shape and dtype.

    Raises:
        TypeError: it is not a list of Tensors.
        ValueError: dtypes differ.
        RuntimeError: there are not as many as processes, or shapes differ.
    """
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name} should be a list of tensors, not {type(tensors)}")
    if len(tensors) != group.size():
        raise RuntimeError(f"{name}: {len(tensors)} tensors for {group.size()} processes")
    for tensor in tensors:
        check_tensor(tensor, name, group)
        if model is not None and tensor.dtype != model.dtype:
            raise ValueError(f"{name}: different dtypes, {tensor.dtype} and {model.dtype}")
        if model is not None and tensor.shape != model.shape:
            raise RuntimeError(
                f"{name}: invalid tensor size (expected {tuple(model.shape)}, got "
                f"{tuple(tensor.shape)})"
            )


def check_whole(whole: Tensor, part: Tensor, name: str, group: ProcessGroup) -> None:
    """Raises:
    RuntimeError: `whole` is not of the dtype of `part`, or not as large as those of all processes.
    """
    check_tensor(whole, name, group)
    if whole.dtype != part.dtype or whole.numel() != part.numel() * group.size():
        raise RuntimeError(
            f"{name}: invalid tensor size or type (expected {group.size()} times "
            f"{tuple(part.shape)} of {part.dtype}, got {tuple(whole.shape)} of {whole.dtype})"
        )


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
    if op is AVG and not tensor.dtype.is_floating_point:
        raise RuntimeError(f"Cannot use ReduceOp.AVG with {tensor.dtype}")
    if op.name.startswith("B") and tensor.dtype.is_floating_point:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")
    return op


def member(name: str, group: Any) -> ProcessGroup | None:
    """The group of a call; None, with a warning, where this process does not belong to it."""
    if group is None:
        return default_group()
    if group is GroupMember.NON_GROUP_MEMBER:
        warnings.warn(
            f"Running {name} on global rank {default_group().rank()} which does not belong to the "
            f"given group.",
            stacklevel=3,
        )
        return None
    return group


def store(tensor: Tensor, wire: np.ndarray) -> None:
    """Write what has come over the wire into the tensor, unless it is its memory."""
    array = tensor.array
    if wire is not array:
        if wire.nbytes == array.nbytes:  # the same bits, under the name of another type
            wire = wire.view(array.dtype)
        array[...] = wire.reshape(array.shape)
    bump_version(array)


def arrival(tensor: Tensor, wire: np.ndarray) -> Callable | None:
    """What writes the wire into the tensor, when it has come."""
    if wire is not tensor.array:
        return partial(store, tensor, wire)
    bump_version(wire)
    return None


def stored(tensors: list[Tensor], flat: np.ndarray) -> Callable:
    """What divides one array among the tensors, when it has come."""

    def finish() -> None:
        parts = flat.reshape(len(tensors), -1)
        for tensor, part in zip(tensors, parts, strict=True):
            store(tensor, part)

    return finish


def reduced(tensor: Tensor, wire: np.ndarray, op: ReduceOp, group: ProcessGroup) -> Callable | None:
    """What writes a reduction into the tensor, when it has come."""
    if op is AVG:

        def finish() -> None:
            group.backend.xp.divide(wire, group.size(), out=wire)
            store(tensor, wire)

        return finish
    return arrival(tensor, wire)


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Replace the tensor in all processes by the reduction of all of them, element by element.

    Halves are added in float32 and rounded once.
    """
    if (group := member("all_reduce", group)) is None:
        return None
    check_tensor(tensor, "tensor", group)
    wire_op = check_op(op, tensor)
    wire = group.backend.reducible(tensor.array)
    finish = reduced(tensor, wire, op, group)
    return group.start("all_reduce", (wire, wire_op), finish, async_op)


def broadcast(
    tensor: Tensor,
    src: int,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send the tensor of process `src` to all others, into theirs."""
    if (group := member("broadcast", group)) is None:
        return None
    check_tensor(tensor, "tensor", group)
    root = get_group_rank(group, src)
    wire = group.backend.movable(tensor.array)
    return group.start("broadcast", (wire, root), arrival(tensor, wire), async_op)


def reduce(
    tensor: Tensor,
    dst: int,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """all_reduce of which only process `dst` gets the result."""
    if (group := member("reduce", group)) is None:
        return None
    check_tensor(tensor, "tensor", group)
    wire_op = check_op(op, tensor)
    root = get_group_rank(group, dst)
    wire = group.backend.reducible(tensor.array)
    finish = reduced(tensor, wire, op, group) if group.rank() == root else None
    return group.start("reduce", (wire, wire_op, root), finish, async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Collect the tensors of all processes in each of them: tensor_list[rank]."""
    if (group := member("all_gather", group)) is None:
        return None
    check_tensor(tensor, "tensor", group)
    check_list(tensor_list, "tensor_list", group, tensor)
    wire = group.backend.movable(tensor.array)
    out = group.backend.empty(group.size() * wire.size, wire.dtype)
    return group.start("all_gather", (out, wire), stored(tensor_list, out), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """all_gather into one tensor: along dimension 0, or along a new one in front."""
    if (group := member("all_gather_into_tensor", group)) is None:
        return None
    check_tensor(input_tensor, "input_tensor", group)
    check_whole(output_tensor, input_tensor, "output_tensor", group)
    wire = group.backend.movable(input_tensor.array)
    out = group.backend.movable(output_tensor.array)
    return group.start("all_gather", (out, wire), arrival(output_tensor, out), async_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Collect the tensors of all processes in process `dst` (0): gather_list[rank]."""
    if (group := member("gather", group)) is None:
        return None
    check_tensor(tensor, "tensor", group)
    root = get_group_rank(group, dst)
    wire = group.backend.movable(tensor.array)
    if group.rank() != root:
        if gather_list:
            raise ValueError("gather_list must NOT be specified on non-destination ranks")
        return group.start("gather", (None, wire, root), None, async_op)
    if not gather_list:
        raise ValueError("gather_list must be specified on the destination rank")
    check_list(gather_list, "gather_list", group, tensor)
    out = group.backend.empty(group.size() * wire.size, wire.dtype)
    return group.start("gather", (out, wire, root), stored(gather_list, out), async_op)


def side_by_side(tensors: list[Tensor], prepare: Callable, xp: Any) -> np.ndarray:
    """The elements of all tensors in one array."""
    return xp.concatenate([prepare(tensor.array).reshape(-1) for tensor in tensors])


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int = 0,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send scatter_list[rank] of process `src` (0) to each process, into its tensor."""
    if (group := member("scatter", group)) is None:
        return None
    check_tensor(tensor, "tensor", group)
    root = get_group_rank(group, src)
    parts = None
    if group.rank() == root:
        if not scatter_list:
            raise ValueError("scatter_list must be specified on the source rank")
        check_list(scatter_list, "scatter_list", group, tensor)
        parts = side_by_side(scatter_list, group.backend.movable, group.backend.xp)
    elif scatter_list:
        raise ValueError("scatter_list must NOT be specified on non-source ranks")
    wire = group.backend.movable(tensor.array)
    return group.start("scatter", (wire, parts, root), arrival(tensor, wire), async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce a list, of which each process gets the tensor at its place."""
    if (group := member("reduce_scatter", group)) is None:
        return None
    check_tensor(output, "output", group)
    wire_op = check_op(op, output)
    check_list(input_list, "input_list", group, output)
    whole = side_by_side(input_list, group.backend.reducible, group.backend.xp)
    wire = group.backend.empty(output.numel(), whole.dtype)
    finish = reduced(output, wire, op, group)
    return group.start("reduce_scatter", (wire, whole, wire_op), finish, async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """reduce_scatter of one tensor, which holds the parts one after the other."""
    if (group := member("reduce_scatter_tensor", group)) is None:
        return None
    check_tensor(output, "output", group)
    wire_op = check_op(op, output)
    check_whole(input, output, "input", group)
    whole = group.backend.reducible(input.array)
    wire = group.backend.empty(output.numel(), whole.dtype)
    finish = reduced(output, wire, op, group)
    return group.start("reduce_scatter", (wire, whole, wire_op), finish, async_op)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send the r-th tensor to process r; output_tensor_list[r] comes from process r."""
    if (group := member("all_to_all", group)) is None:
        return None
    check_list(output_tensor_list, "output_tensor_list", group)
    check_list(input_tensor_list, "input_tensor_list", group)
    movable = group.backend.movable
    wire = side_by_side(input_tensor_list, movable, group.backend.xp)
    counts = [movable(tensor.array).size for tensor in input_tensor_list]
    sizes = [movable(tensor.array).size for tensor in output_tensor_list]
    out = group.backend.empty(sum(sizes), wire.dtype)

    def finish() -> None:
        place = 0
        for tensor, size in zip(output_tensor_list, sizes, strict=True):
            store(tensor, out[place : place + size])
            place += size

    return group.start("all_to_all", (out, sizes, wire, counts), finish, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """all_to_all of the parts of one tensor along dimension 0: equal ones, or of given sizes."""
    if (group := member("all_to_all_single", group)) is None:
        return None
    args: list = []
    for tensor, sizes, name in (
        (output, output_split_sizes, "output"),
        (input, input_split_sizes, "input"),
    ):
        check_tensor(tensor, name, group)
        rows = tensor.shape[0]
        if not sizes:
            if rows % group.size():
                raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
            sizes = [rows // group.size()] * group.size()
        if len(sizes) != group.size():
            raise RuntimeError("Number of tensor splits not equal to group size")
        if sum(sizes) != rows:
            raise RuntimeError("Split sizes doesn't match total dim 0 size")
        wire = group.backend.movable(tensor.array)
        args += wire, [size * (wire.size // max(rows, 1)) for size in sizes]
    return group.start("all_to_all", tuple(args), arrival(output, args[0]), async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all processes of the group have come here."""
    group = member("barrier", group)
    return None if group is None else group.start("barrier", (), None, async_op, group.host)
