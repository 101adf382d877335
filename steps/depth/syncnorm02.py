"""Step syncnorm02: A sum over processes that has a derivative

all_reduce writes into a tensor and records nothing. That is right for gradients, after backward. It
is wrong inside a network: a layer that needs the mean over the whole batch (the next step), or that
has a part of a matrix in each process (step tensorpar01), puts its result into the loss, and the
chain rule has to go through it. The demo shows what happens without: the weight gets no gradient at
all.

What is the derivative? Process r has x_r, all get y = x_0 + x_1 + ... and compute losses with it,
and what is differentiated is the sum of all losses, L = L_0(y) + L_1(y) + ...:

    dL/dx_r  =  dL_0/dy + dL_1/dy + ...        the sum of the gradients of all processes

So backward is an all_reduce, too: a gradient has to come from wherever its value went. As a
Function calls itself in its backward, it can be differentiated any number of times.

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
for name in "comparison elementwise gather indexing matmul sampling shape softmax sorting".split():
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
