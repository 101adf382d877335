"""Collectives through which gradients flow: what is sent forward has a gradient to send back."""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.distributed import collectives
from tinytorch.distributed.collectives import all_gather_into_tensor
from tinytorch.distributed.group import get_rank, get_world_size
from tinytorch.distributed.types import ReduceOp


class GroupFunction(Function):
    """Base of Functions whose last argument is a process group; forward puts it into ctx.group."""

    def sum_of_all(ctx, x: Any) -> Any:
        """The sum of the arrays of all processes, as a new array."""
        total = wrap(ctx.xp.array(x), ctx.device)
        collectives.all_reduce(total, group=ctx.group)
        return total.array

    def gather_last(ctx, x: Any) -> Any:
        """The arrays of all processes, joined along the last dimension."""
        x, size = ctx.xp.ascontiguousarray(x), get_world_size(ctx.group)
        out = ctx.xp.empty((size, *x.shape), x.dtype)
        all_gather_into_tensor(wrap(out, ctx.device), wrap(x, ctx.device), group=ctx.group)
        return ctx.xp.concatenate(list(out), axis=-1)

    def part_of_last(ctx, x: Any) -> Any:
        """This process's part of the last dimension."""
        size = x.shape[-1] // get_world_size(ctx.group)
        start = get_rank(ctx.group) * size
        return ctx.xp.ascontiguousarray(x[..., start : start + size])


class AllReduce(GroupFunction):
    """y = the sum of x over all processes. Each x counts in the y of each process, so dL/dx is the
    sum of dL/dy over all processes, if L is the sum of their losses."""

    def forward(ctx, x: Any, group: Any) -> Any:
        ctx.group = group
        return ctx.sum_of_all(x)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(AllReduce, g, ctx.group)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum of the tensors of all processes, as a new tensor. Its gradient is the sum of theirs.

    Raises:
        NotImplementedError: for another operation.
    """
    if op != ReduceOp.SUM:
        raise NotImplementedError(f"only the sum has a gradient here, not {op}")
    return AllReduce.apply(tensor, group)
