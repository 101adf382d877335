"""Collectives through which gradients flow: what is sent forward has a gradient to send back."""

from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.distributed import collectives
from tinytorch.distributed.types import ReduceOp


class GroupFunction(Function):
    """Base of Functions whose last argument is a process group; forward puts it into ctx.group."""

    def sum_of_all(ctx, x: Any) -> Any:
        """The sum of the arrays of all processes, as a new array."""
        total = wrap(ctx.xp.array(x), ctx.device)
        collectives.all_reduce(total, group=ctx.group)
        return total.array


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
        raise NotImplementedError(f"only the sum has a gradient here, not {op.name}")
    return AllReduce.apply(tensor, group)
