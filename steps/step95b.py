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
by a file that it loads, nothing sends the change to the others. Buffers drift, too, as BatchNorm's
averages see half of the samples: the finished one sends those of rank 0 before each call.

PyTorch: torch.nn.parallel.DistributedDataParallel.

New: DistributedDataParallel, in place of average_gradients.
Try: leave out the broadcast, and find the line of the demo that tells.
"""

import tinytorch.autograd.backward
import tinytorch.nn.functional
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
        """Called when the gradient of `param` is complete."""
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
        return {name: value.detach() for name, value in model.state_dict().items()}

    def difference(a, b):
        """The largest one between two networks, in whatever names."""
        pairs = zip(a.values(), b.values(), strict=True)
        return max((p - q).abs().max().item() for p, q in pairs)

    (one,) = simulate(1, train, False)
    a, b = simulate(2, train, False)
    print(f"without the wrapper: {difference(a, b):.2f}")  # -> without the wrapper: 0.74
    a, b = simulate(2, train, True)
    print(f"with it: {difference(a, b)}, like one process: {difference(a, one) < 1e-5}")
    # -> with it: 0.0, like one process: True
    print(list(a))  # -> ['module.0.weight', 'module.0.bias', 'module.2.weight', 'module.2.bias']
