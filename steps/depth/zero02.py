"""Step zero02: ZeRO: two sets of options

With step zero01 a schedule has no effect. It changes lr in optimizer.param_groups, which is what it
sees; the optimizer inside has groups of its own, with this process's parameters, and an lr of its
own. The demo compares with one process: the weights differ, and nothing fails.

So the options are copied, in both directions:

    before a step    outside -> inside    what a schedule or the program has changed
    after a step     inside -> outside    what the optimizer itself changes in its groups

All options but "params": these differ on purpose.

A group that is added later is divided in the same way, and the optimizer inside gets its share.

The trap: a group may have no parameter in this process. It is there all the same, with an empty
list, so that the groups inside and outside have the same numbers.

Changed: ZeroRedundancyOptimizer. New: its method copy_options.
Try: copy "params" as well. Who moves what then?
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
        self.copy_options(self.optim.param_groups, self.param_groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for param in sorted(group["params"], key=Tensor.numel, reverse=True):
            rank = self.sizes.index(min(self.sizes))
            self.owners[param] = rank
            self.sizes[rank] += param.numel()
        if self.optim is not None:
            self.optim.add_param_group(self.share(group))
            self.copy_options(self.optim.param_groups, self.param_groups)

    def own(self, group: dict[str, Any], rank: int) -> list[Tensor]:
        """The parameters of a group that this rank moves."""
        return [param for param in group["params"] if self.owners[param] == rank]

    def share(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group with this process's own parameters only."""
        options = {k: v for k, v in group.items() if k not in ("params", "param_names")}
        return {**options, "params": self.own(group, self.rank)}

    def copy_options(self, source: list[dict], target: list[dict]) -> None:
        """Copies lr and so on: schedulers change the groups of this object, not of self.optim."""
        for ours, theirs in zip(source, target, strict=True):
            theirs.update({k: v for k, v in ours.items() if k not in ("params", "param_names")})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        self.copy_options(self.param_groups, self.optim.param_groups)
        loss = self.optim.step(closure)
        group, ranks = self.process_group, get_process_group_ranks(self.process_group)
        owned = self.owners.items()
        for work in [broadcast(p.detach(), ranks[i], group, async_op=True) for p, i in owned]:
            work.wait()
        self.copy_options(self.optim.param_groups, self.param_groups)
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
    from tinytorch.optim.lr_scheduler.base import StepLR

    manual_seed(0)
    inputs, targets = randn(20, 24, 16), randint(0, 4, (20, 24))

    def train(divided):
        """Twenty steps with a schedule."""
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        manual_seed(0)
        ddp = DistributedDataParallel(Sequential(Linear(16, 64), ReLU(), Linear(64, 4)))
        made = (ZeroRedundancyOptimizer, Adam) if divided else (Adam,)
        optimizer = made[0](ddp.parameters(), *made[1:], lr=0.01)
        schedule = StepLR(optimizer, 5)
        for x, y in zip(inputs.chunk(size, 1)[rank], targets.chunk(size, 1)[rank], strict=True):
            optimizer.zero_grad()
            cross_entropy(ddp(x), y).backward()
            optimizer.step()
            schedule.step()
        return [p.detach() for p in ddp.parameters()], optimizer.param_groups[0]["lr"]

    def off(a, b):
        return (a - b).abs().max().item()

    def compare(size):
        weights, rate = simulate(size, train, True)[0]
        pairs = zip(weights, expected, strict=True)
        right = max(off(a, b) for a, b in pairs) < 1e-5
        print(f"{size} processes: lr {rate:.0e}, right: {right}")

    expected, _ = simulate(1, train, False)[0]
    compare(2)  # -> 2 processes: lr 1e-06, right: True
    compare(3)  # -> 3 processes: lr 1e-06, right: True
    copied = ZeroRedundancyOptimizer.copy_options
    ZeroRedundancyOptimizer.copy_options = lambda self, source, target: None  # as in step zero01
    compare(2)  # -> 2 processes: lr 1e-06, right: False
    ZeroRedundancyOptimizer.copy_options = copied

    def added():
        init_process_group("mpi")
        params = [randn(n).requires_grad_() for n in (10, 70, 30, 40)]
        optimizer = ZeroRedundancyOptimizer(params, Adam, lr=0.01)
        optimizer.add_param_group({"params": [randn(20).requires_grad_()], "lr": 0.5})
        sizes = [[p.numel() for p, rank in optimizer.owners.items() if rank == r] for r in (0, 1)]
        return sizes, [group["lr"] for group in optimizer.optim.param_groups]

    print(*simulate(2, added)[0])  # -> [[70, 10], [40, 30, 20]] [0.01, 0.5]
