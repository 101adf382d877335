"""Step 96c: A matrix divided, by columns and by rows

What if one layer alone is too large for a GPU? Then its matrix is divided: tensor parallelism. A
Linear is y = x W^T, and W has a row for each output. Give each rank some of these rows, which are
columns of W^T. It computes some of the outputs, and keeps them:

    rank 0:   y0 = x W0^T          rank 1:   y1 = x W1^T

Must they be gathered for the next layer? No: a product is a sum over its inputs, and a sum can be
divided. The next layer has rows of its W^T in each rank, and ReLU between works on single elements:

    z = [y0 y1] V^T  =  y0 V0^T + y1 V1^T

So two layers need one message forward, which adds these parts up. And they need one backward: x
went into all outputs, and each rank knows only the part of dL/dx that comes through its own.

    SumOfAll      y = the sum of all x         backward: the same gradient for all    (CopyToAll)
    CopyToAll     y = x                        backward: the sum of all gradients     (SumOfAll)

This is the MLP of a Transformer. Of its attention, each rank has some of the heads.

This is not the all_reduce of step 96b. There each rank has a loss of its own, and the losses are
added. Here all compute one loss, in parts, and its gradient is counted once.

The trap is the bias of the second layer. If each rank added it to its part, it would count n times.

PyTorch: ColwiseParallel, RowwiseParallel. The names here are those of Megatron-LM (Shoeybi et al.,
2019), and of tinytorch.distributed.megatron.

New: CopyToAll, SumOfAll, own_part, ColumnParallelLinear, RowParallelLinear.
Try: give CopyToAll the backward of SumOfAll. Which numbers change, and why not the loss?
In depth: tensorpar01 to tensorpar03.
"""

import tinytorch.autograd.backward
import tinytorch.ops.sampling  # noqa: F401 (these give Tensor its methods)
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import tensor
from tinytorch.distributed import collectives
from tinytorch.distributed.group import default_group, get_rank, get_world_size, init_process_group
from tinytorch.distributed.simulator import simulate
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear, linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.adam import Adam


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


class RowParallelLinear(Module):
    """A Linear whose inputs are divided: this rank has in_features / n of them."""

    def __init__(self, in_features, out_features):
        super().__init__()
        whole = Linear(in_features, out_features)
        self.weight, self.bias = own_part(whole.weight, 1), whole.bias

    def forward(self, input):
        return SumOfAll.apply(linear(input, self.weight)) + self.bias


if __name__ == "__main__":
    manual_seed(0)
    inputs = randn(10, 5, 8)

    def train(first, second):
        """Ten steps of Adam: this rank's share of the parameters, the numbers of the last step."""
        init_process_group("mpi")
        manual_seed(1)
        model = Sequential(first(8, 32), ReLU(), second(32, 8))
        optimizer = Adam(model.parameters(), lr=0.01)
        for x in inputs:
            x = x.clone().requires_grad_()  # as if there were a layer before
            before = default_group().begun
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        count, slope = sum(p.numel() for p in model.parameters()), x.grad.square().sum().item()
        messages = default_group().begun - before
        return f"{count} parameters, loss {loss.item():.5f}, dL/dx {slope:.5f}, {messages} messages"

    for size in (1, 2, 4):
        pair = (ColumnParallelLinear, RowParallelLinear) if size > 1 else (Linear, Linear)
        print(f"{size}:", simulate(size, train, *pair)[0])
    # -> 1: 552 parameters, loss 0.96388, dL/dx 0.07957, 0 messages
    # -> 2: 280 parameters, loss 0.96388, dL/dx 0.07957, 2 messages
    # -> 4: 144 parameters, loss 0.96388, dL/dx 0.07957, 2 messages
