"""ZeroRedundancyOptimizer: each process keeps the optimizer's state of a part of the parameters."""

from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import broadcast
from tinytorch.distributed.group import get_process_group_ranks, get_rank, get_world_size
from tinytorch.distributed.objects import gather_object
from tinytorch.optim.optimizer import Optimizer


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
