"""Step zero01: ZeroRedundancyOptimizer in the package's dress

Step 96a built ZeRO: each process moves a part of the weights, keeps the moments of this part, and
sends the weights to all others. Here parameters are divided whole, the largest first, each to the
process that has least so far, and groups of parameters are kept. Inside is an ordinary optimizer,
which has only this process's parameters.

The trap: processes with different gradients would each be right about their own part only, and
nothing would tell. DistributedDataParallel has to come first.

(This is stage 1 of the paper. Stages 2 and 3, in PyTorch's FSDP, divide gradients and weights too.)

Changed: ZeroRedundancyOptimizer.
Try: leave out the broadcasts. Which parameters do the processes still agree on?
"""

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import broadcast
from tinytorch.distributed.group import get_process_group_ranks, get_rank, get_world_size
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class ZeroRedundancyOptimizer(Optimizer):
    """Divides the parameters among the processes. Each one moves its own, with an optimizer of the
    class optimizer_class, and sends them to the others: its state takes 1 / size of the memory.

        ZeroRedundancyOptimizer(model.parameters(), optimizer_class=Adam, lr=1e-3)

    The gradients have to be equal in all processes, as DistributedDataParallel makes them.
    Source: Rajbhandari et al., ZeRO, 2020 (its first stage).

    Args:
        parameters_as_bucket_view: accepted; each parameter is a message of its own.
        defaults: the options of optimizer_class.
    Raises:
        RuntimeError: overlap_with_ddp=True, which is not supported.
    """

    def __init__(
        self, params: Iterable, optimizer_class: type[Optimizer], process_group: Any = None,
        parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False, **defaults: Any,
    ):  # fmt: skip
        if overlap_with_ddp:
            raise RuntimeError("overlap_with_ddp=True is not supported")
        self.process_group = process_group
        self.rank, self.world_size = get_rank(process_group), get_world_size(process_group)
        self.owners: dict[Tensor, int] = {}  # which process moves a parameter
        self.sizes = [0] * self.world_size  # how many elements each process moves
        self.optim: Optimizer | None = None  # of this process's own parameters
        super().__init__(params, defaults)
        self.optim = optimizer_class([self.share(g) for g in self.param_groups], **defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for param in sorted(group["params"], key=Tensor.numel, reverse=True):
            rank = self.sizes.index(min(self.sizes))
            self.owners[param] = rank
            self.sizes[rank] += param.numel()

    def own(self, group: dict[str, Any], rank: int) -> list[Tensor]:
        """The parameters of a group that this rank moves."""
        return [param for param in group["params"] if self.owners[param] == rank]

    def share(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group with this process's own parameters only."""
        options = {k: v for k, v in group.items() if k not in ("params", "param_names")}
        return {**options, "params": self.own(group, self.rank)}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = self.optim.step(closure)
        group, ranks = self.process_group, get_process_group_ranks(self.process_group)
        owned = self.owners.items()
        for work in [broadcast(p.detach(), ranks[i], group, async_op=True) for p, i in owned]:
            work.wait()
        return loss


if __name__ == "__main__":
    from tinytorch.distributed.group import init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.nn.parallel.distributed import DistributedDataParallel
    from tinytorch.ops.random import manual_seed, randint, randn
    from tinytorch.optim.adam import Adam

    manual_seed(0)
    inputs, targets = randn(20, 24, 16), randint(0, 4, (20, 24))

    def train(divided):
        """Twenty steps. The weights, and the bytes of the moments kept here."""
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        manual_seed(0)
        ddp = DistributedDataParallel(Sequential(Linear(16, 64), ReLU(), Linear(64, 4)))
        if divided:
            optimizer = ZeroRedundancyOptimizer(ddp.parameters(), Adam, lr=0.01)
            states = optimizer.optim.state
        else:
            optimizer = Adam(ddp.parameters(), lr=0.01)
            states = optimizer.state
        for x, y in zip(inputs.chunk(size, 1)[rank], targets.chunk(size, 1)[rank], strict=True):
            optimizer.zero_grad()
            cross_entropy(ddp(x), y).backward()
            optimizer.step()
        kept = sum(s["exp_avg"].nbytes + s["exp_avg_sq"].nbytes for s in states.values())
        return [p.detach() for p in ddp.parameters()], kept

    ((expected, kept),) = simulate(1, train, False)
    print("Adam keeps", kept, "bytes in each process")  # -> Adam keeps 10784 bytes in each process
    for size in (2, 3):
        results = simulate(size, train, True)
        error = max(
            (a - b).abs().max().item()
            for weights, _ in results
            for a, b in zip(weights, expected, strict=True)
        )
        print(f"{size} processes: {[kept for _, kept in results]}, right: {error < 1e-5}")
    # -> 2 processes: [8192, 2592], right: True
    # -> 3 processes: [8192, 2048, 544], right: True

    def owners():
        init_process_group("mpi")
        params = [randn(n).requires_grad_() for n in (10, 70, 30, 40)]
        try:
            ZeroRedundancyOptimizer(params, Adam, overlap_with_ddp=True)
        except RuntimeError as error:
            text = str(error)
        optimizer = ZeroRedundancyOptimizer(params, Adam, lr=0.01)
        sizes = [[p.numel() for p, rank in optimizer.owners.items() if rank == r] for r in (0, 1)]
        return sizes, text

    print(*simulate(2, owners)[0])
    # -> [[70, 10], [40, 30]] overlap_with_ddp=True is not supported
