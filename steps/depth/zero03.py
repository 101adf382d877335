"""Step zero03: ZeRO: a state that is in pieces, saved and loaded

A checkpoint needs the state of the optimizer, and with step zero01 no process has it. If process 0
saved what it has, a third or a hundredth of the moments would be in the file, under numbers that
mean other parameters: each optimizer counts its own from 0.

consolidate_state_dict(to=0) has all processes send theirs to one, and must be called by all of
them. Then state_dict() there gives what one Adam with all parameters would: the pieces with their
numbers changed.

    number in process r        0  1            0  1  2
    parameter (number of all)  1  4            0  2  3        numbers(r)

So the file does not depend on the number of processes. It can be loaded on another number, and by
a plain Adam, and the reverse: load_state_dict takes the pieces that this process owns, and drops
the others.

The trap: state_dict() in a process that has nothing refuses, with PyTorch's words, instead of
saving a part. And what was consolidated is the state of that moment: call it again before the next
checkpoint.

Changed: ZeroRedundancyOptimizer. New: its methods consolidate_state_dict, state_dict, numbers,
load_state_dict.
Try: call consolidate_state_dict in process 0 only, with a timeout of a second for the group.
"""

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import broadcast
from tinytorch.distributed.group import get_process_group_ranks, get_rank, get_world_size
from tinytorch.distributed.objects import gather_object
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
        RuntimeError: overlap_with_ddp=True, which is not supported; state_dict() without
            consolidate_state_dict().
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
        self.state_dicts: list[dict] = []  # of all processes, after consolidate_state_dict
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

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Sends the state of all processes to one, whose state_dict() then has all of it."""
        found: list | None = [None] * self.world_size if self.rank == to else None
        ranks = get_process_group_ranks(self.process_group)
        gather_object(self.optim.state_dict(), found, ranks[to], self.process_group)
        self.state_dicts = found or []

    def state_dict(self) -> dict[str, Any]:
        """The state_dict that one optimizer_class with all parameters would have.

        Raises:
            RuntimeError: consolidate_state_dict() has not sent the state here.
        """
        if not self.state_dicts:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to "
                "save the global state."
            )
        whole = super().state_dict()
        for rank, part in enumerate(self.state_dicts):
            numbers = self.numbers(rank)
            whole["state"].update({numbers[i]: kept for i, kept in part["state"].items()})
        whole["state"] = dict(sorted(whole["state"].items()))
        return whole

    def numbers(self, rank: int) -> list[int]:
        """The numbers that the parameters of this rank have among all."""
        params = [param for group in self.param_groups for param in group["params"]]
        return [i for i, param in enumerate(params) if self.owners[param] == rank]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over the state of this process's own parameters from the state of all."""
        super().load_state_dict({**state_dict, "state": {}})
        self.copy_options(self.param_groups, self.optim.param_groups)
        kept = enumerate(self.numbers(self.rank))
        state = {i: state_dict["state"][n] for i, n in kept if n in state_dict["state"]}
        self.optim.load_state_dict({**self.optim.state_dict(), "state": state})
        self.state_dicts = []


if __name__ == "__main__":
    from tinytorch.distributed.group import init_process_group
    from tinytorch.distributed.objects import broadcast_object_list
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn
    from tinytorch.optim.adam import Adam

    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    inputs = randn(12, 4, 3)

    def network():
        manual_seed(1)
        return Sequential(Linear(3, 4), Linear(4, 2))

    def train(model, optimizer, batches):
        for x in batches:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return [param.detach() for param in model.parameters()]

    def begin():
        """Six steps. What each process could save alone, and what process 0 has in the end."""
        init_process_group("mpi")
        model = network()
        optimizer = ZeroRedundancyOptimizer(model.parameters(), Adam, lr=0.01)
        train(model, optimizer, inputs[:6])
        alone = list(optimizer.optim.state_dict()["state"]), optimizer.numbers(get_rank())
        try:
            optimizer.state_dict()
        except RuntimeError as error:
            alone += (str(error)[:55],)
        optimizer.consolidate_state_dict()
        return alone, optimizer.state_dict() if get_rank() == 0 else None, model.state_dict()

    results = simulate(2, begin)
    for alone, _, _ in results:
        print(alone)
    # -> ([0, 1], [0, 3], 'Optimizer state has not been consolidated on this rank.')
    # -> ([0, 1], [1, 2], 'Optimizer state has not been consolidated on this rank.')
    _, saved, weights = results[0]
    model = network()
    plain = Adam(model.parameters(), lr=0.01)
    expected = train(model, plain, inputs[:6])
    for number, state in saved["state"].items():
        same = (state["exp_avg"] - plain.state_dict()["state"][number]["exp_avg"]).abs().max()
        print("parameter", number, "as Adam has it:", same.item() < 1e-7)
    # -> parameter 0 as Adam has it: True
    # -> parameter 1 as Adam has it: True
    # -> parameter 2 as Adam has it: True
    # -> parameter 3 as Adam has it: True

    def resume():
        """Six more steps, on any number of processes. Rank 0 has read the file."""
        init_process_group("mpi")
        state = [saved if get_rank() == 0 else None]
        broadcast_object_list(state, 0)
        model = network()
        model.load_state_dict(weights)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), Adam, lr=0.5)
        optimizer.load_state_dict(state[0])
        return train(model, optimizer, inputs[6:])

    expected = train(model, plain, inputs[6:])
    for size in (1, 3):
        pairs = zip(simulate(size, resume)[0], expected, strict=True)
        print(f"resumed on {size}:", max((a - b).abs().max().item() for a, b in pairs) < 1e-6)
    # -> resumed on 1: True
    # -> resumed on 3: True
