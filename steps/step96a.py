"""Step 96a: ZeRO: the state of the optimizer divided

Ten GPUs have ten times the memory of one: why can they not train a network ten times as large? Data
parallelism divides the samples only. Weights, gradients and Adam's two moments are in all ranks. In
float32 these are 4 + 4 + 8 bytes for a weight. The moments are half of it, and each is needed in
one place only: where its weight is moved.

So let each rank own some of the parameters, keep the moments of these, and move these:

    gradients     averaged, in all ranks                          all_reduce, as before
    step          rank r moves the parameters that it owns        1/n of the moments
    weights       sent by their owner to all others               broadcast

Inside is an ordinary optimizer with only the rank's own parameters. They are divided whole, the
largest first, each to the rank that has least so far.

This is stage 1. Stage 2 divides the gradients, by reduce_scatter (step 94d), and stage 3 the
weights, which all_gather fetches before each layer. In mixed precision a weight has 2 bytes, its
gradient 2, and the optimizer's float32 weight and moments 12. With 64 ranks:

    stage                         none      1            2            3
    bytes for a parameter         16        4 + 12/64    2 + 14/64    16/64
    parameters in 80 GB           5         19           36           320 billion

The trap: if the gradients differ, each rank is right about its own part. Average them first (step
95b).

PyTorch: torch.distributed.optim.ZeroRedundancyOptimizer; stages 2 and 3 are FSDP, which the package
does not have. Source: Rajbhandari et al., ZeRO, 2020.

New: ZeroRedundancyOptimizer.
Try: leave out the broadcast. What do the lines say?
In depth: zero01 to zero03.
"""

import tinytorch.autograd.backward
import tinytorch.ops.sampling  # noqa: F401 (these give Tensor its methods)
from tinytorch.distributed.collectives import broadcast
from tinytorch.distributed.group import get_rank, get_world_size, init_process_group
from tinytorch.distributed.simulator import simulate
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.nn.parallel.distributed import DistributedDataParallel
from tinytorch.ops.random import manual_seed, randint, randn
from tinytorch.optim.adam import Adam


class ZeroRedundancyOptimizer:
    """Each rank moves some of the parameters, with an optimizer_class of its own, and sends them
    to the others."""

    def __init__(self, params, optimizer_class, **defaults):
        self.params, self.owners = list(params), {}
        sizes = [0] * get_world_size()  # how many elements each rank moves
        for param in sorted(self.params, key=lambda p: p.numel(), reverse=True):
            rank = sizes.index(min(sizes))
            self.owners[param] = rank
            sizes[rank] += param.numel()
        mine = [param for param in self.params if self.owners[param] == get_rank()]
        self.optim = optimizer_class(mine, **defaults)

    def zero_grad(self):
        for param in self.params:
            param.grad = None

    def step(self):
        self.optim.step()
        for param in self.params:
            broadcast(param.detach(), self.owners[param])


if __name__ == "__main__":
    manual_seed(0)
    inputs, targets = randn(20, 24, 16), randint(0, 4, (20, 24))

    def train():
        """Twenty steps. Bytes of the moments in this rank, and the sum of all weights' sizes."""
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        manual_seed(0)
        ddp = DistributedDataParallel(Sequential(Linear(16, 64), ReLU(), Linear(64, 4)))
        optimizer = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=Adam, lr=0.01)
        for x, t in zip(inputs.chunk(size, 1)[rank], targets.chunk(size, 1)[rank], strict=True):
            optimizer.zero_grad()
            cross_entropy(ddp(x), t).backward()
            optimizer.step()
        states = optimizer.optim.state.values()
        kept = sum(state["exp_avg"].nbytes + state["exp_avg_sq"].nbytes for state in states)
        return kept, sum(param.abs().sum().item() for param in ddp.parameters())

    for size in (1, 2, 3):  # one rank: plain Adam
        kept, sums = zip(*simulate(size, train), strict=True)
        print(f"{size}: bytes {kept}, weights {sums[0]:.3f}, in the last rank {sums[-1]:.3f}")
    # -> 1: bytes (10784,), weights 147.731, in the last rank 147.731
    # -> 2: bytes (8192, 2592), weights 147.731, in the last rank 147.731
    # -> 3: bytes (8192, 2048, 544), weights 147.731, in the last rank 147.731
