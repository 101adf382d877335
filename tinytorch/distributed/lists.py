"""Collectives of lists, which have a tensor for each process, and of unequal parts."""

from collections.abc import Callable
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version
from tinytorch.distributed.collectives import (
    SUM,
    arrival,
    check_tensor,
    member,
    ready,
    start_reduce_scatter,
    store,
)
from tinytorch.distributed.group import ProcessGroup, Work, get_group_rank
from tinytorch.distributed.types import ReduceOp


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
