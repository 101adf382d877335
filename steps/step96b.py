"""Step 96b: A sum over ranks that has a derivative

Can a message stand in the middle of a network? Batch normalisation, for one, needs the mean over
the samples of all ranks. all_reduce writes into a tensor, and the graph does not know of it: each
rank gets the gradient of its own loss only, [3, 4] and [6, 8] in the demo, where [9, 12] is right.

What is the derivative? Rank r has x_r. All get y = x_0 + x_1 + ..., and compute losses with it.
What is differentiated is the sum of all losses, L = L_0(y) + L_1(y) + ...:

    dL/dx_r  =  dL_0/dy + dL_1/dy + ...       the sum of the gradients of all ranks

So backward is an all_reduce too: x_r has gone to all ranks, and from all of them a gradient comes
back. As the Function calls itself in its backward, it can be differentiated any number of times.

This all_reduce returns a new tensor. That of step 94c, which writes into its argument, is
collectives.all_reduce here.

The trap: backward sends messages now, in the same order in all ranks (step 94c). If one rank leaves
out the backward of this layer, the others wait.

PyTorch: torch.distributed.nn.functional.all_reduce.

New: AllReduce, all_reduce.
Try: let backward return g. Which line of the demo is wrong now?
In depth: syncnorm01 to syncnorm04.
"""

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its methods)
from tinytorch.autograd.backward import grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import tensor
from tinytorch.distributed import collectives
from tinytorch.distributed.group import get_rank, init_process_group
from tinytorch.distributed.simulator import simulate


class AllReduce(Function):
    """y = the sum of x over all ranks;   dL/dx = the sum of dL/dy over all ranks, if L is the sum
    of their losses."""

    def forward(ctx, x):
        total = tensor(x)  # a copy
        collectives.all_reduce(total)
        return total.array

    def backward(ctx, g):
        return ctx.call(AllReduce, g)


def all_reduce(tensor):
    """The sum of the tensors of all ranks, as a new tensor. Its gradient is the sum of theirs."""
    return AllReduce.apply(tensor)


if __name__ == "__main__":

    def losses(known):
        """Rank r has x = [r + 1, 2], and the loss (r + 1) y^2 / 2, with y the sum of all x."""
        init_process_group("mpi")
        x = tensor([get_rank() + 1.0, 2.0], requires_grad=True)
        if known:
            y = all_reduce(x)
        else:
            y = x * 1
            collectives.all_reduce(y)
        loss = ((get_rank() + 1) * y * y / 2).sum()
        (g,) = grad(loss, x, create_graph=True)
        g.sum().backward()
        return y.tolist(), g.tolist(), x.grad.tolist()

    print(*simulate(2, losses, False))
    # -> ([3.0, 4.0], [3.0, 4.0], [1.0, 1.0]) ([3.0, 4.0], [6.0, 8.0], [2.0, 2.0])
    # y = [3, 4] and L = (1 + 2) y^2 / 2, so g = dL/dx = 3 y. The sum of both g is 6 y: 6.
    print(*simulate(2, losses, True))
    # -> ([3.0, 4.0], [9.0, 12.0], [6.0, 6.0]) ([3.0, 4.0], [9.0, 12.0], [6.0, 6.0])
