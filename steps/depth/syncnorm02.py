"""Step syncnorm02: all_reduce with a derivative, in the package's dress

Step 96b built it: y is the sum over all processes, and the gradient of x is the sum of the
gradients of all. Here it works in any group, and GroupFunction is the base class for such
Functions: it keeps the group.

The trap: backward sends messages now. If one process leaves out the backward of this layer, the
others wait. And the order must be the same in all; here it follows from the graphs being alike.

PyTorch's word for it: torch.distributed.nn.functional.all_reduce.

New: GroupFunction, AllReduce, all_reduce.
Try: let backward return g. Which line of the demo is wrong?
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.distributed import collectives
from tinytorch.distributed.types import ReduceOp

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.core.tensor import tensor
    from tinytorch.distributed.group import get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate

    importlib.import_module("tinytorch.core.printing")

    def without():
        """The sum of all x, squared: recorded for x, and then replaced behind the graph's back."""
        init_process_group("mpi")
        x = tensor([1.0, 2.0], requires_grad=True)
        y = tensor([0.0, 0.0]) + x.detach()
        collectives.all_reduce(y)
        return y, y.requires_grad

    print(*simulate(2, without)[0])  # -> tensor([2., 4.]) False

    def losses():
        """Process r has x = [r + 1, 2], and the loss (r + 1) * y^2 / 2 with y the sum of all x."""
        init_process_group("mpi")
        x = tensor([get_rank() + 1.0, 2.0], requires_grad=True)
        y = all_reduce(x)
        loss = ((get_rank() + 1) * y * y / 2).sum()
        (g,) = grad(loss, x, create_graph=True)
        g.sum().backward()
        return y.detach(), g.detach(), x.grad

    # y = [3, 4] and L = (1 + 2) y^2 / 2, so g = dL/dx = 3 y. The sum of both g is 6 y: 6.
    for y, g, second in simulate(2, losses):
        print(y, g, second)
    # -> tensor([3., 4.]) tensor([ 9., 12.]) tensor([6., 6.])
    # -> tensor([3., 4.]) tensor([ 9., 12.]) tensor([6., 6.])
    try:
        all_reduce(tensor([1.0]), ReduceOp.MAX)
    except NotImplementedError as error:
        print(error)  # -> only the sum has a gradient here, not MAX
