"""Step 96d: A matrix divided by rows, and the two together

After step 96c the outputs are divided: must they be gathered before the next layer? That would be a
message as long as they are. It need not be: a product is a sum over the inputs, and a sum can be
divided:

    x = [x0 x1]        x W^T  =  x0 W0^T + x1 W1^T        W0, W1: some of the columns of W

Rank r has x_r and W_r, and computes its part of the sum. SumOfAll adds the parts. An activation
between the two layers works on each element by itself, so it does not mind that they are divided.
Two layers then need one message forward, and one backward, by CopyToAll:

    x -> columns -> y_r -> ReLU -> rows -> the sum over r

This is the MLP of a Transformer. In its attention, each rank has some of the heads: the projection
to queries, keys and values is divided by columns, and the one behind the heads by rows.

The trap is the bias of the second layer. If each rank added it to its part, it would count n times.
It is added after the sum, in all ranks, where its gradient is the same.

PyTorch: RowwiseParallel.

New: RowParallelLinear.
Try: hand self.bias to linear, in place of adding it after the sum. Which losses change?
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
        """Ten steps of Adam. Parameters of this rank, the last loss, and messages in a step."""
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
        messages = default_group().begun - before
        return sum(p.numel() for p in model.parameters()), loss.item(), messages

    layers = {1: (Linear, Linear), 2: (ColumnParallelLinear, RowParallelLinear)}
    for size in (1, 2, 4):
        count, loss, messages = simulate(size, train, *layers[min(size, 2)])[0]
        print(f"{size}: {count} parameters each, loss {loss:.5f}, {messages} messages")
    # -> 1: 552 parameters each, loss 0.96388, 0 messages
    # -> 2: 280 parameters each, loss 0.96388, 2 messages
    # -> 4: 144 parameters each, loss 0.96388, 2 messages
