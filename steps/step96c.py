"""Step 96c: A matrix divided by columns

What if one layer alone is too large for a GPU? Then its matrix is divided: tensor parallelism. A
Linear is y = x W^T, and W has a row for each output. Give each rank some of the rows, which are
columns of W^T:

    rank 0:   y0 = x W0^T        all have x; each computes some of the outputs and keeps them:
    rank 1:   y1 = x W1^T        y = [y0 y1] is nowhere as a whole

No rank has all of W, nor of its gradient, nor of its moments. Forward needs no message at all.

Backward does. x went into all outputs, and a rank knows only the part of dL/dx that comes through
its own. The demo shows these parts first; they have to be added up:

    CopyToAll     y = x                        backward: the sum of all gradients     (SumOfAll)
    SumOfAll      y = the sum of all x         backward: the same gradient for all    (CopyToAll)

Each is the backward of the other, so derivatives of any order work.

The trap: this is not the all_reduce of step 96b. There each rank has a loss of its own, and the
losses are added. Here all compute one loss, in parts, and its gradient is counted once.

PyTorch: ColwiseParallel. The names here are those of Megatron-LM (Shoeybi et al., 2019). The
finished one, in tinytorch.distributed.megatron, gathers y unless it is told not to.

New: CopyToAll, SumOfAll, own_part, ColumnParallelLinear.
Try: give CopyToAll the backward of SumOfAll. Which line of the demo is wrong?
"""

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
from tinytorch.ops.random import manual_seed


class CopyToAll(Function):
    """y = x, which all ranks have;   dL/dx = the sum of dL/dy over all ranks: each has a part."""

    def forward(ctx, x):
        return x.copy()

    def backward(ctx, g):
        return ctx.call(SumOfAll, g)


class SumOfAll(Function):
    """y = the sum of x over all ranks, which go on with it alike;   dL/dx = dL/dy."""

    def forward(ctx, x):
        total = tensor(x)  # a copy
        collectives.all_reduce(total)
        return total.array

    def backward(ctx, g):
        return ctx.call(CopyToAll, g)


def own_part(whole, dim):
    """This rank's part of a tensor that is divided along dim."""
    return Parameter(whole.detach().chunk(get_world_size(), dim)[get_rank()].clone())


class ColumnParallelLinear(Module):
    """A Linear whose outputs are divided: this rank has out_features / n of them."""

    def __init__(self, in_features, out_features):
        super().__init__()
        whole = Linear(in_features, out_features)  # equal in all ranks, if their seeds are
        self.weight, self.bias = own_part(whole.weight, 0), own_part(whole.bias, 0)

    def forward(self, input):
        return linear(CopyToAll.apply(input), self.weight, self.bias)


if __name__ == "__main__":

    def run(layer_type, copied=True):
        """L is half the sum of y^2. The gradient of x, and that of the sum of this gradient."""
        init_process_group("mpi")
        manual_seed(1)
        layer, x = layer_type(2, 4), tensor([1.0, 2.0], requires_grad=True)
        y = layer(x) if copied else linear(x, layer.weight, layer.bias)
        (g,) = grad((y * y / 2).sum(), x, create_graph=True)
        g.sum().backward()
        first, second = ([f"{each:.4f}" for each in found.tolist()] for found in (g, x.grad))
        return f"weight {tuple(layer.weight.shape)}, dL/dx {first}, second {second}"

    print(*simulate(1, run, Linear))
    # -> weight (4, 2), dL/dx ['1.9977', '2.4670'], second ['1.6230', '1.9120']
    print(*simulate(2, run, ColumnParallelLinear, False), sep="\n")
    # -> weight (2, 2), dL/dx ['0.5076', '0.8660'], second ['0.3609', '0.6354']
    # -> weight (2, 2), dL/dx ['1.4901', '1.6010'], second ['1.2621', '1.2766']
    print(*simulate(2, run, ColumnParallelLinear), sep="\n")
    # -> weight (2, 2), dL/dx ['1.9977', '2.4670'], second ['1.6230', '1.9120']
    # -> weight (2, 2), dL/dx ['1.9977', '2.4670'], second ['1.6230', '1.9120']
