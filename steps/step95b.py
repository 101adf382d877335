"""Step 95b: DistributedDataParallel: one start, and hooks that average

How much of this must a program of mine change? average_gradients (step 95a) relies on two things
that nothing checks. All ranks must begin with the same weights: with seeds of their own they do
not, and equal gradients keep them different for ever. And the call must stand in the right place,
after each backward and before each step.

A wrapper around the network does both, and the program changes in one line:

    model = DistributedDataParallel(model)

    at the start      broadcast the parameters and buffers of rank 0
    each gradient     a hook averages it as soon as it is there

The hooks of step 65c see a gradient before it is added to .grad. Here the sum is wanted, so there
is a second kind: register_post_accumulate_grad_hook(f) calls f(param) when .grad is complete.

As the wrapper is a Module around a Module, all names in its state_dict begin with "module.". Save
model.module, and one process can load the file.

The trap: rank 0 is special at the start only. If a program changes the weights of rank 0 later, say
by a file that it loads, nothing sends the change to the others. (The finished one does send the
buffers before each call, as each rank's BatchNorm sees samples of its own.)

PyTorch: torch.nn.parallel.DistributedDataParallel.

New: DistributedDataParallel, in place of average_gradients.
Try: leave out the broadcast, and find the line of the demo that tells.
"""

import tinytorch.autograd.backward
import tinytorch.ops.sampling  # noqa: F401 (these give Tensor its methods)
from tinytorch.distributed.collectives import all_reduce, broadcast
from tinytorch.distributed.group import get_rank, get_world_size, init_process_group
from tinytorch.distributed.simulator import simulate
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.nn.modules.module import Module
from tinytorch.ops.random import manual_seed, randint, randn
from tinytorch.optim.sgd import SGD


class DistributedDataParallel(Module):
    """Calls `module`, and makes each gradient the mean of the gradients of all ranks."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for each in [*module.parameters(), *module.buffers()]:
            broadcast(each.detach(), 0)  # the same memory, outside of the graph
        for param in module.parameters():
            param.register_post_accumulate_grad_hook(self.average)

    def forward(self, *inputs):
        return self.module(*inputs)

    def average(self, param):
        """Make the gradient of `param`, which is complete, the mean of all ranks."""
        all_reduce(param.grad)
        param.grad.div_(get_world_size())


if __name__ == "__main__":
    manual_seed(7)
    inputs, targets = randn(20, 8, 16), randint(0, 4, (20, 8))  # 20 batches of 8 samples

    def train(wrapped):
        """Each rank draws weights of its own, and has its share of each batch."""
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        manual_seed(rank)
        model = Sequential(Linear(16, 32), ReLU(), Linear(32, 4))
        if wrapped:
            model = DistributedDataParallel(model)
        optimizer = SGD(model.parameters(), lr=0.5)
        for x, t in zip(inputs.chunk(size, 1)[rank], targets.chunk(size, 1)[rank], strict=True):
            optimizer.zero_grad()
            cross_entropy(model(x), t).backward()
            optimizer.step()
        return model.state_dict()

    one = simulate(1, train, False)[0]["0.weight"]
    a, b = simulate(2, train, False)
    print(f"without it: {(a['0.weight'] - b['0.weight']).abs().max():.2f} apart")
    # -> without it: 0.74 apart
    a, b = [states["module.0.weight"] for states in simulate(2, train, True)]
    equal = (a - one).abs().max().item() < 1e-5
    print(f"with it: {(a - b).abs().max().item()} apart, equal to one process: {equal}")
    # -> with it: 0.0 apart, equal to one process: True
