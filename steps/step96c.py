"""Step 96c: A matrix divided by columns

What if one layer alone is too large for a GPU, or takes too long? Then its matrix is divided. This
is tensor parallelism. A Linear is y = x W^T, and W has a row for each output. Give each rank some
of the rows, which are columns of W^T:

    rank 0:   y0 = x W0^T        all have x; each computes some of the outputs and keeps them:
    rank 1:   y1 = x W1^T        y = [y0 y1] is nowhere as a whole

No rank has all of W, nor of its gradient, nor of its moments. Forward needs no message at all.

Backward does. Each rank has the gradient of its own outputs, and from it the whole gradient of its
rows. But x went into all outputs, and a rank knows only the part of dL/dx that comes through its
own. The parts have to be added up:

    CopyToAll     y = x                        backward: the sum of all gradients     (SumOfAll)
    SumOfAll      y = the sum of all x         backward: the same gradient for all    (CopyToAll)

Each is the backward of the other, so derivatives of any order work. The demo leaves CopyToAll out
first: dL/dx is [4, 6] in one rank and [12, 14] in the other, where [16, 20] is right.

The trap: this is not the all_reduce of step 96b. There each rank has a loss of its own, and the
losses are added. Here all compute one loss, in parts, and its gradient is counted once.

PyTorch: ColwiseParallel, in torch.distributed.tensor.parallel, changes a Linear that is there. The
names here are those of Megatron-LM (Shoeybi et al., 2019). The finished ColumnParallelLinear, in
tinytorch.distributed.megatron, gathers y in all ranks unless it is told not to.

New: CopyToAll, SumOfAll, own_part, ColumnParallelLinear.
Try: give CopyToAll the backward of SumOfAll. Which line of the demo is wrong?
"""

import tinytorch.autograd.backward
import tinytorch.nn.functional
import tinytorch.ops.sampling  # noqa: F401 (these give Tensor its methods)
from tinytorch.autograd.backward import grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import tensor
from tinytorch.distributed import collectives
from tinytorch.distributed.group import get_rank, get_world_size, init_process_group
from tinytorch.distributed.simulator import simulate
from tinytorch.nn.modules.linear import Linear, linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.random import manual_seed, randn


def sum_of_all(x):
    """The sum of the arrays of all ranks, as a new array."""
    total = tensor(x)  # a copy
    collectives.all_reduce(total)
    return total.array


class CopyToAll(Function):
    """y = x, which all ranks have;   dL/dx = the sum of dL/dy over all ranks: each has a part."""

    def forward(ctx, x):
        return x.copy()

    def backward(ctx, g):
        return ctx.call(SumOfAll, g)


class SumOfAll(Function):
    """y = the sum of x over all ranks, which go on with it alike;   dL/dx = dL/dy."""

    def forward(ctx, x):
        return sum_of_all(x)

    def backward(ctx, g):
        return ctx.call(CopyToAll, g)


def own_part(whole, dim):
    """This rank's part of a tensor that is divided along dim."""
    part = whole.detach().chunk(get_world_size(), dim)[get_rank()]
    return Parameter(part.clone())


class ColumnParallelLinear(Module):
    """A Linear whose outputs are divided: this rank has out_features / n of them."""

    def __init__(self, in_features, out_features):
        super().__init__()
        whole = Linear(in_features, out_features)  # equal in all ranks, if their seeds are
        self.weight, self.bias = own_part(whole.weight, 0), own_part(whole.bias, 0)

    def forward(self, input):
        return linear(CopyToAll.apply(input), self.weight, self.bias)


if __name__ == "__main__":

    def by_hand(copied):
        """y = x W^T with four outputs, two in each rank, and L the sum of all outputs."""
        init_process_group("mpi")
        whole = tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
        weight, x = own_part(whole, 0), tensor([1.0, 1.0], requires_grad=True)
        y = linear(CopyToAll.apply(x) if copied else x, weight)
        y.sum().backward()
        return f"y {y.tolist()}, dL/dW {weight.grad.tolist()}, dL/dx {x.grad.tolist()}"

    print("\n".join(simulate(2, by_hand, False)))
    # -> y [3.0, 7.0], dL/dW [[1.0, 1.0], [1.0, 1.0]], dL/dx [4.0, 6.0]
    # -> y [11.0, 15.0], dL/dW [[1.0, 1.0], [1.0, 1.0]], dL/dx [12.0, 14.0]
    print("\n".join(simulate(2, by_hand, True)))
    # -> y [3.0, 7.0], dL/dW [[1.0, 1.0], [1.0, 1.0]], dL/dx [16.0, 20.0]
    # -> y [11.0, 15.0], dL/dW [[1.0, 1.0], [1.0, 1.0]], dL/dx [16.0, 20.0]

    manual_seed(0)
    inputs = randn(5, 8)

    def run(layer_type):
        """The shape of a layer's weight, the gradient of x, and a second derivative."""
        init_process_group("mpi")
        manual_seed(1)
        layer, x = layer_type(8, 6), inputs.clone().requires_grad_()
        y = layer(x)
        (g,) = grad((y**3).sum(), x, create_graph=True)
        (g**2).sum().backward()
        return tuple(layer.weight.shape), g.detach(), x.grad

    ((shape, *whole),) = simulate(1, run, Linear)
    part, *found = simulate(2, run, ColumnParallelLinear)[1]
    pairs = zip(found, whole, strict=True)
    error = max(((p - q).abs().max() / q.abs().max()).item() for p, q in pairs)
    print("weight", shape, "became", part)  # -> weight (6, 8) became (3, 8)
    print("dL/dx and the second derivative are right:", error < 1e-5)
    # -> dL/dx and the second derivative are right: True
