"""Collectives: calls that all processes of a group make together, on tensors and on lists."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
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


def check_dtypes(*tensors: Tensor) -> None:
    """Raises ValueError: they differ, and MPI would take the bits of one for those of another."""
    if len({tensor.dtype for tensor in tensors}) > 1:
        found = ", ".join(str(tensor.dtype) for tensor in tensors)
        raise ValueError(f"tensors of different dtypes: {found}")


def check_list(tensors: Any, group: ProcessGroup, *model: Tensor) -> None:
    """Check a list that has a tensor for each process; with `model`, of its shape and dtype.

    Raises:
        TypeError: it is not a list of Tensors.
        ValueError: dtypes differ.
        RuntimeError: there are not as many as processes, or shapes differ.
    """
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"Invalid function argument. Expected a list of tensors, got {tensors!r}")
    if len(tensors) != group.size():
        raise RuntimeError(f"a list of {len(tensors)} tensors for {group.size()} processes")
    for tensor in tensors:
        check_tensor(tensor, group)
        if model and tensor.shape != model[0].shape:
            raise RuntimeError(f"expected a tensor of {model[0].shape}, got one of {tensor.shape}")
    check_dtypes(*tensors, *model)


def join(tensors: list[Tensor], prepare: Callable, group: ProcessGroup) -> Any:
    """The elements of all tensors in one array, as the backend wants them."""
    flat = [prepare(tensor.array).reshape(-1) for tensor in tensors]
    return group.backend.xp.concatenate(flat)


def divide(wire: Any, sizes: list[int], tensors: list[Tensor]) -> Callable:
    """The function that stores the parts of an array in the tensors."""

    def finish() -> None:
        end = 0
        for tensor, size in zip(tensors, sizes, strict=True):
            end += size
            store(tensor, wire[end - size : end])
            bump_version(tensor.array)

    return finish


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Collect the tensors of all processes in each of them: tensor_list[rank]."""
    if (group := ready("all_gather", group, tensor)) is None:
        return None
    check_list(tensor_list, group, tensor)
    wire = group.backend.movable(tensor.array)
    out = group.backend.empty(group.size() * wire.size, wire.dtype)
    finish = divide(out, [wire.size] * group.size(), tensor_list)
    return group.start("all_gather", (out, wire), finish, async_op)


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int = 0, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Collect the tensors of all processes in process `dst`: gather_list[rank]."""
    if (group := ready("gather", group, tensor)) is None:
        return None
    root, out, finish = get_group_rank(group, dst), None, None
    if bool(gather_list) != (group.rank() == root):
        raise ValueError("gather_list must be specified on the destination rank, and only there")
    wire = group.backend.movable(tensor.array)
    if gather_list:
        check_list(gather_list, group, tensor)
        out = group.backend.empty(group.size() * wire.size, wire.dtype)
        finish = divide(out, [wire.size] * group.size(), gather_list)
    return group.start("gather", (out, wire, root), finish, async_op)


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int = 0, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Send scatter_list[rank] of process `src` to each process, into its tensor."""
    if (group := ready("scatter", group, tensor)) is None:
        return None
    root, whole = get_group_rank(group, src), None
    if bool(scatter_list) != (group.rank() == root):
        raise ValueError("scatter_list must be specified on the source rank, and only there")
    if scatter_list:
        check_list(scatter_list, group, tensor)
        whole = join(scatter_list, group.backend.movable, group)
    wire = group.backend.movable(tensor.array)
    args, finish = (wire, whole, root), arrival(tensor, wire)
    return group.start("scatter", args, finish, async_op, tensor.array)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: ReduceOp = SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Reduce the lists of all processes; each process gets the tensor at its place."""
    if (group := ready("reduce_scatter", group, output)) is None:
        return None
    check_list(input_list, group, output)
    whole = join(input_list, group.backend.reducible, group)
    return start_reduce_scatter(output, whole, op, group, async_op)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send the r-th tensor to process r; output_tensor_list[r] comes from process r."""
    if (group := member("all_to_all", group)) is None:
        return None
    counts = []
    for tensors in output_tensor_list, input_tensor_list:
        check_list(tensors, group)
        counts.append([group.backend.movable(tensor.array).size for tensor in tensors])
    check_dtypes(output_tensor_list[0], input_tensor_list[0])
    wire = join(input_tensor_list, group.backend.movable, group)
    out = group.backend.empty(sum(counts[0]), wire.dtype)
    finish = divide(out, counts[0], output_tensor_list)
    return group.start("all_to_all", (out, counts[0], wire, counts[1]), finish, async_op)


def split(tensor: Tensor, sizes: list[int] | None, group: ProcessGroup) -> tuple[Any, list[int]]:
    """The tensor on the wire, and how many of its elements there belong to each process.

    Raises:
        RuntimeError: the sizes, or equal ones, do not add up to the first dimension.
    """
    rows, wire = tensor.shape[0], group.backend.movable(tensor.array)
    if not sizes:
        sizes = [rows // group.size()] * group.size()
    if len(sizes) != group.size() or sum(sizes) != rows:
        raise RuntimeError(f"parts of {sizes} of {rows} rows for {group.size()} processes")
    return wire, [size * (wire.size // max(rows, 1)) for size in sizes]


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """all_to_all of the parts of one tensor along dimension 0: equal ones, or of given sizes."""
    if (group := ready("all_to_all_single", group, output)) is None:
        return None
    check_tensor(input, group)
    check_dtypes(output, input)
    args = *split(output, output_split_sizes, group), *split(input, input_split_sizes, group)
    return group.start("all_to_all", args, arrival(output, args[0]), async_op, output.array)
