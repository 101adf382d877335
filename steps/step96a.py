"""Step 96a: ZeRO: the state of the optimizer divided

Ten GPUs have ten times the memory of one: why can they not train a network ten times as large? Data
parallelism divides the samples, and nothing else. Weights, gradients and Adam's two moments are in
all ranks, equal to the last bit. For a weight in float32 these are 4 + 4 + 8 bytes. The moments are
half of it, and each is needed in one place only: where its weight is moved.

So let each rank own some of the parameters, keep the moments of these, and move these:

    gradients     averaged, in all ranks                          all_reduce, as before
    step          rank r moves the parameters that it owns        1/n of the moments
    weights       sent by their owner to all others               broadcast

Inside is an ordinary optimizer that has only the rank's own parameters. They are divided whole, the
largest first, each to the rank that has least so far.

This is stage 1. Stage 2 divides the gradients: a rank needs the mean of its own part only, by
reduce_scatter (step 94d) in place of all_reduce. Stage 3 divides the weights: an all_gather fetches
them before each layer. The demo ends with what a parameter costs in mixed precision: 2 bytes for
the weight, 2 for the gradient, 12 for the optimizer's float32 weight and moments.

The trap: if the gradients differ, each rank is right about its own part, and no error is raised.
Average them first (step 95b).

PyTorch: torch.distributed.optim.ZeroRedundancyOptimizer; stages 2 and 3 are FSDP, which the package
does not have. Source: Rajbhandari et al., ZeRO, 2020.

New: ZeroRedundancyOptimizer.
Try: leave out the broadcast. Which parameters of rank 0 are wrong then?
In depth: zero01 to zero03.
"""

import tinytorch.autograd.backward
import tinytorch.nn.functional
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

    def train(divided):
        """Twenty steps. The weights, and the bytes of the moments that this rank keeps."""
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        manual_seed(0)
        ddp = DistributedDataParallel(Sequential(Linear(16, 64), ReLU(), Linear(64, 4)))
        if divided:
            optimizer = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=Adam, lr=0.01)
            states = optimizer.optim.state
        else:
            optimizer = Adam(ddp.parameters(), lr=0.01)
            states = optimizer.state
        for x, t in zip(inputs.chunk(size, 1)[rank], targets.chunk(size, 1)[rank], strict=True):
            optimizer.zero_grad()
            cross_entropy(ddp(x), t).backward()
            optimizer.step()
        kept = sum(s["exp_avg"].nbytes + s["exp_avg_sq"].nbytes for s in states.values())
        return [p.detach() for p in ddp.parameters()], kept

    ((expected, kept),) = simulate(1, train, False)
    print("Adam keeps", kept, "bytes in each rank")  # -> Adam keeps 10784 bytes in each rank
    for size in (2, 3):
        results = simulate(size, train, True)
        pairs = [(a, b) for weights, _ in results for a, b in zip(weights, expected, strict=True)]
        error = max((a - b).abs().max().item() for a, b in pairs)
        print(f"{size} ranks keep {[kept for _, kept in results]}, right: {error < 1e-5}")
    # -> 2 ranks keep [8192, 2592], right: True
    # -> 3 ranks keep [8192, 2048, 544], right: True

    n = 64  # ranks
    stages = {"none": 16, "1": 4 + 12 / n, "2": 2 + 14 / n, "3": 16 / n}
    for stage, size in stages.items():
        print(f"stage {stage:4} {size:5.2f} bytes, so {80e9 / size / 1e9:5.1f} billion in 80 GB")
    # -> stage none 16.00 bytes, so   5.0 billion in 80 GB
    # -> stage 1     4.19 bytes, so  19.1 billion in 80 GB
    # -> stage 2     2.22 bytes, so  36.1 billion in 80 GB
    # -> stage 3     0.25 bytes, so 320.0 billion in 80 GB
