"""Step 95a: Gradients averaged: two ranks equal one with the whole batch

Does training on two processes give what training on one gives? Divide the batch: each rank has the
whole network and half of the samples, and computes the gradient of the mean loss of its half. If
each then moves its weights by its own gradient, the networks drift apart. After the ten steps of
the demo their weights differ by up to 0.14.

The loss of the whole batch is a mean over its B samples, and so is its gradient:

    g  =  1/B sum of all g_i  =  1/2 (2/B sum of the first half  +  2/B sum of the second)
       =  the mean of the two ranks' gradients

So one all_reduce for each gradient and a division make it right. All ranks then have the same
gradient. Weights that were equal stay equal, and so does the state of the optimizer: nothing else
has to be sent. This is data parallelism. Losses and weights agree with those of one process to
rounding, as the sum has another order.

From here on the steps import the finished tinytorch.distributed, with the functions of steps 94b to
94e.

The trap: the mean of two means is the mean only if the shares are equally large. With shares of 3
and 1 samples, the single one counts three times as much as each of the others.

New: average_gradients.
Try: leave the division out. Then take SGD in place of Adam. Why does only one of them notice?
"""

import tinytorch.autograd.backward
import tinytorch.nn.functional
import tinytorch.ops.sampling  # noqa: F401 (these give Tensor its methods)
from tinytorch.distributed.collectives import all_reduce
from tinytorch.distributed.group import get_rank, get_world_size, init_process_group
from tinytorch.distributed.simulator import simulate
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.ops.random import manual_seed, randint, randn
from tinytorch.optim.adam import Adam


def average_gradients(params):
    """Make each gradient the mean of the gradients of all ranks."""
    for param in params:
        all_reduce(param.grad)
        param.grad.div_(get_world_size())


if __name__ == "__main__":
    manual_seed(7)
    inputs, targets = randn(10, 64, 16), randint(0, 4, (10, 64))  # ten batches of 64 samples

    def train(averaged):
        """Ten steps, with this rank's share of each batch; the weights, and the last mean loss."""
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        manual_seed(0)
        model = Sequential(Linear(16, 32), ReLU(), Linear(32, 4))
        optimizer = Adam(model.parameters(), lr=0.01)
        for x, t in zip(inputs.chunk(size, 1)[rank], targets.chunk(size, 1)[rank], strict=True):
            loss = cross_entropy(model(x), t)
            optimizer.zero_grad()
            loss.backward()
            if averaged:
                average_gradients(model.parameters())
            optimizer.step()
        mean = loss.detach()
        all_reduce(mean)
        return model[0].weight.detach(), mean.item() / size

    one, loss = simulate(1, train, False)[0]
    print(f"1 rank: loss {loss:.5f}")  # -> 1 rank: loss 1.37173
    for size, averaged in ((2, False), (2, True), (4, True)):
        (a, loss), *_, (b, _) = simulate(size, train, averaged)
        apart, equal = (a - b).abs().max().item(), (a - one).abs().max().item() < 1e-5
        print(f"{size} ranks: loss {loss:.5f}, {apart:.2g} apart, equal to one: {equal}")
    # -> 2 ranks: loss 1.36188, 0.14 apart, equal to one: False
    # -> 2 ranks: loss 1.37173, 0 apart, equal to one: True
    # -> 4 ranks: loss 1.37173, 0 apart, equal to one: True
