"""Collectives: calls that all processes of a group make together."""

import warnings
from collections.abc import Callable
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


def check_tensor(tensor: Any, name: str, group: ProcessGroup) -> None:
    """Raises:
    TypeError: it is not a Tensor.
    RuntimeError: the group's backend does not serve its device.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type tinytorch.Tensor but "
            f"got {type(tensor)} instead."
        )
    if tensor.device.type != group.backend.device:
        raise RuntimeError(f"No backend type associated with device type {tensor.device.type}")


def check_list(
    tensors: Any, name: str, group: ProcessGroup, model: Tensor | None = None
) -> list[Tensor]:
    """The list, of which each process has one. With `model`, all are of its shape and dtype.

    Raises:
        TypeError: it is not a list of Tensors.
        ValueError: dtypes differ.
        RuntimeError: there are not as many as processes, or shapes differ.
    """
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[Tensor] but got "
            f"{type(tensors)} instead."
        )
    for tensor in tensors:
        check_tensor(tensor, name, group)
    if len(tensors) != group.size():
        raise RuntimeError(
            f"{name}: expected one tensor for each of the {group.size()} processes, got "
            f"{len(tensors)}"
        )
    for tensor in tensors if model is not None else ():
        if tensor.dtype != model.dtype:
            raise ValueError(
                f"Invalid usage of tensors with different dtypes: found {model.dtype} and "
                f"{tensor.dtype}"
            )
        if tensor.shape != model.shape:
            raise RuntimeError(
                f"{name}: invalid tensor size (expected {tuple(model.shape)}, got "
                f"{tuple(tensor.shape)})"
            )
    return list(tensors)


def check_op(op: Any, tensor: Tensor) -> None:
    """Raises:
    TypeError: it is not a ReduceOp.
    RuntimeError: it does not suit the dtype.
    """
    if op is ReduceOp.SUM:
        return
    if not isinstance(op, ReduceOp):
        raise TypeError(f"expected a ReduceOp, got {op!r}")
    if op is ReduceOp.AVG and not tensor.dtype.is_floating_point:
        raise RuntimeError(f"Cannot use ReduceOp.AVG with {tensor.dtype}")
    if op.name.startswith("B") and tensor.dtype.is_floating_point:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")


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


def root_of(group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    """The rank in the group of the process that is named by its global rank or group rank.

    Raises:
        ValueError: both or none are given, or it is not in the group.
    """
    if (rank is None) == (group_rank is None):
        raise ValueError("Must specify one of global_rank and group_rank")
    if rank is not None:
        return get_group_rank(group, rank)
    if not 0 <= group_rank < group.size():
        raise ValueError(f"Group rank {group_rank} is not in the group {group.ranks}")
    return group_rank


def store(tensor: Tensor, result: np.ndarray) -> None:
    """Write what came over the wire into the tensor, which may have been its memory already."""
    array = tensor.array
    if result is not array:
        if result.dtype.kind == "u" and result.itemsize == array.itemsize:
            result = result.view(array.dtype)
        array[...] = result.reshape(array.shape)
    bump_version(array)


def stored(tensors: list[Tensor], flat: np.ndarray) -> Callable:
    """What divides one array among the tensors, when it has come."""

    def finish() -> None:
        parts = flat.reshape(len(tensors), -1)
        for tensor, part in zip(tensors, parts, strict=True):
            store(tensor, part)

    return finish


def wire_op(op: ReduceOp, array: np.ndarray) -> ReduceOp:
    """The sum of booleans is whether one of them is true: the largest byte, which cannot overflow."""
    return ReduceOp.MAX if op is ReduceOp.SUM and array.dtype == bool else op


def reduced(tensor: Tensor, wire: np.ndarray, op: ReduceOp, group: ProcessGroup) -> Callable:
    """What writes a reduction into the tensor, when it has come."""

    def finish() -> None:
        if op is ReduceOp.AVG:
            np.divide(wire, group.size(), out=wire)
        store(tensor, wire)

    return finish


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Replace the tensor in all processes by the reduction of all of them, element by element.

    Halves are added in float32 and rounded once.
    """
    group = member("all_reduce", group)
    if group is None:
        return None
    check_tensor(tensor, "tensor", group)
    check_op(op, tensor)
    wire = group.backend.reducible(tensor.array)
    args = wire, wire_op(op, tensor.array)
    return group.start("all_reduce", args, reduced(tensor, wire, op, group), async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Send the tensor of process `src` to all others, into theirs."""
    group = member("broadcast", group)
    if group is None:
        return None
    check_tensor(tensor, "tensor", group)
    root = root_of(group, src, group_src)
    wire = group.backend.movable(tensor.array)
    return group.start("broadcast", (wire, root), lambda: store(tensor, wire), async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """all_reduce of which only process `dst` gets the result."""
    group = member("reduce", group)
    if group is None:
        return None
    check_tensor(tensor, "tensor", group)
    check_op(op, tensor)
    root = root_of(group, dst, group_dst)
    wire = group.backend.reducible(tensor.array)
    finish = reduced(tensor, wire, op, group) if group.rank() == root else None
    args = wire, wire_op(op, tensor.array), root
    return group.start("reduce", args, finish, async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Collect the tensors of all processes in each of them: tensor_list[rank]."""
    group = member("all_gather", group)
    if group is None:
        return None
    check_tensor(tensor, "tensor", group)
    tensors = check_list(tensor_list, "tensor_list", group, tensor)
    wire = group.backend.movable(tensor.array)
    out = group.backend.empty(group.size() * wire.size, wire.dtype)
    return group.start("all_gather", (out, wire), stored(tensors, out), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """all_gather into one tensor: along dimension 0, or along a new one in front."""
    group = member("all_gather_into_tensor", group)
    if group is None:
        return None
    check_tensor(input_tensor, "input_tensor", group)
    check_whole(output_tensor, input_tensor, "output_tensor", group)
    wire = group.backend.movable(input_tensor.array)
    out = group.backend.movable(output_tensor.array)
    return group.start("all_gather", (out, wire), lambda: store(output_tensor, out), async_op)


def check_whole(whole: Tensor, part: Tensor, name: str, group: ProcessGroup) -> None:
    """Raises:
    ValueError: `whole` is not a tensor of the dtype and of the parts of all processes.
    """
    check_tensor(whole, name, group)
    if whole.dtype != part.dtype or whole.numel() != part.numel() * group.size():
        raise RuntimeError(
            f"{name}: invalid tensor size or type (expected {group.size()} times "
            f"{tuple(part.shape)} of {part.dtype}, got {tuple(whole.shape)} of {whole.dtype})"
        )


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Collect the tensors of all processes in process `dst` (0): gather_list[rank]."""
    group = member("gather", group)
    if group is None:
        return None
    check_tensor(tensor, "tensor", group)
    root = root_of(group, 0 if dst is None and group_dst is None else dst, group_dst)
    wire = group.backend.movable(tensor.array)
    if group.rank() != root:
        if gather_list:
            raise ValueError(
                "Argument ``gather_list`` must NOT be specified on non-destination ranks."
            )
        return group.start("gather", (None, wire, root), None, async_op)
    if not gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    tensors = check_list(gather_list, "gather_list", group, tensor)
    out = group.backend.empty(group.size() * wire.size, wire.dtype)
    return group.start("gather", (out, wire, root), stored(tensors, out), async_op)


def side_by_side(tensors: list[Tensor], prepare: Callable) -> np.ndarray:
    """The elements of all tensors in one array."""
    return np.concatenate([prepare(tensor.array).reshape(-1) for tensor in tensors])


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Send scatter_list[rank] of process `src` (0) to each process, into its tensor."""
    group = member("scatter", group)
    if group is None:
        return None
    check_tensor(tensor, "tensor", group)
    root = root_of(group, 0 if src is None and group_src is None else src, group_src)
    parts = None
    if group.rank() == root:
        if not scatter_list:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        tensors = check_list(scatter_list, "scatter_list", group, tensor)
        parts = side_by_side(tensors, group.backend.movable)
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    wire = group.backend.movable(tensor.array)
    return group.start("scatter", (wire, parts, root), lambda: store(tensor, wire), async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce a list, of which each process gets the tensor at its place."""
    group = member("reduce_scatter", group)
    if group is None:
        return None
    check_tensor(output, "output", group)
    check_op(op, output)
    tensors = check_list(input_list, "input_list", group, output)
    whole = side_by_side(tensors, group.backend.reducible)
    return start_reduce_scatter(output, whole, op, group, async_op)


def start_reduce_scatter(
    output: Tensor, whole: np.ndarray, op: ReduceOp, group: ProcessGroup, async_op: bool
) -> Work | None:
    wire = group.backend.empty(output.numel(), whole.dtype)
    args = wire, whole, wire_op(op, output.array)
    return group.start("reduce_scatter", args, reduced(output, wire, op, group), async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """reduce_scatter of one tensor, which holds the parts one after the other."""
    group = member("reduce_scatter_tensor", group)
    if group is None:
        return None
    check_tensor(output, "output", group)
    check_op(op, output)
    check_whole(input, output, "input", group)
    return start_reduce_scatter(output, group.backend.reducible(input.array), op, group, async_op)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send the r-th tensor to process r; output_tensor_list[r] comes from process r."""
    group = member("all_to_all", group)
    if group is None:
        return None
    outs = check_list(output_tensor_list, "output_tensor_list", group)
    tensors = check_list(input_tensor_list, "input_tensor_list", group)
    wire = side_by_side(tensors, group.backend.movable)
    sizes = [out.numel() for out in outs]
    out = group.backend.empty(sum(sizes), wire.dtype)

    def finish() -> None:
        place = 0
        for tensor, size in zip(outs, sizes, strict=True):
            store(tensor, out[place : place + size])
            place += size

    args = out, sizes, wire, [tensor.numel() for tensor in tensors]
    return group.start("all_to_all", args, finish, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """all_to_all of the parts of one tensor along dimension 0: equal ones, or of given sizes."""
    group = member("all_to_all_single", group)
    if group is None:
        return None
    counts = []
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
        counts.append([size * (tensor.numel() // max(rows, 1)) for size in sizes])
    out, wire = group.backend.movable(output.array), group.backend.movable(input.array)
    args = out, counts[0], wire, counts[1]
    return group.start("all_to_all", args, lambda: store(output, out), async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all processes of the group have come here."""
    group = member("barrier", group)
    return None if group is None else group.start("barrier", (), None, async_op, group.host)
