"""Step schedule03: Schedules: the initial rate of each group

LambdaLR needs the first rate, and takes the one that it finds. If another schedule has already
changed it, this is the wrong one: with the rate at 0.25, LambdaLR begins from 0.25. The optimizer
should know where its rates began.

So the first scheduler of an optimizer writes the rate of each group beside it, as "initial_lr", and
no later one writes over it: this is what setdefault does. As an option of the group it is saved
with the optimizer, and can be read by any program. `values_of` reads one option of all groups.

The trap: the option stays. If a program begins a second training with the same optimizer, and sets
a new group["lr"] for it, a new LambdaLR still begins from the old initial_lr; set both.

(PyTorch uses the same key.)

Changed: LRScheduler.__init__, LRScheduler.set_rates, GrowthLR.get_lr. New: values_of.
Try: write group["initial_lr"] = rate in place of setdefault. What does the second schedule begin
from?
"""

import importlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def values_of(optimizer: Optimizer, name: str) -> list[Any]:
    """This option of all groups."""
    return [group[name] for group in optimizer.param_groups]


class LRScheduler:
    """Base of the schedulers. Call `step` once an epoch (or a batch), after optimizer.step().

    A subclass writes `get_lr`: the rates of the groups in epoch `last_epoch`. It finds the first
    ones in `base_lrs`; each group keeps its own as "initial_lr".
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer, self.last_epoch = optimizer, -1
        for number, rate in enumerate(values_of(optimizer, "lr")):
            optimizer.param_groups[number].setdefault("initial_lr", rate)
        self.base_lrs = values_of(optimizer, "initial_lr")
        self.step()

    def get_lr(self) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def get_last_lr(self) -> list[Any]:
        """The rates that were set last, one for each group."""
        return self._last_lr

    def step(self) -> None:
        """Sets the rates of the next epoch."""
        self.last_epoch += 1
        self.set_rates(self.get_lr())

    def set_rates(self, rates: list[Any]) -> None:
        """Writes the rates into the groups."""
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = values_of(self.optimizer, "lr")


class GrowthLR(LRScheduler):
    """A schedule that multiplies the rates by a factor on the way from epoch - 1 to `epoch`.

    A subclass writes `growth`, the factor. The schedule goes on from the present rate, so several
    may work on one optimizer: their factors multiply.
    """

    def growth(self, epoch: int) -> float:
        raise NotImplementedError(f"{type(self).__name__} has no growth")

    def get_lr(self) -> list[Any]:
        growth, rates = self.growth(self.last_epoch), values_of(self.optimizer, "lr")
        return rates if growth == 1 else [rate * growth for rate in rates]


class StepLR(GrowthLR):
    """Times gamma, every step_size epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def growth(self, epoch: int) -> float:
        return self.gamma if epoch and epoch % self.step_size == 0 else 1.0


class MultiStepLR(GrowthLR):
    """Times gamma, at the epochs `milestones`."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
    ):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer)

    def growth(self, epoch: int) -> float:
        return self.gamma ** self.milestones[epoch]


class ExponentialLR(GrowthLR):
    """Times gamma, every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float):
        self.gamma = gamma
        super().__init__(optimizer)

    def growth(self, epoch: int) -> float:
        return self.gamma if epoch else 1.0


class LambdaLR(LRScheduler):
    """The first rate times lr_lambda(epoch)."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]):
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        return [base * self.lr_lambda(self.last_epoch) for base in self.base_lrs]


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.optim.sgd import SGD

    optimizer = SGD([tensor([1.0], requires_grad=True)], lr=1.0)
    first = ExponentialLR(optimizer, gamma=0.5)
    first.step()
    first.step()
    group = optimizer.param_groups[0]
    print(f"at first {group['initial_lr']}, now {group['lr']}")  # -> at first 1.0, now 0.25
    second = LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    print(second.get_last_lr(), second.base_lrs)  # -> [1.0] [1.0]

    # A second training with the same optimizer, and a rate that is set by hand.
    group["lr"] = 8.0
    print(LambdaLR(optimizer, lambda epoch: 1.0).get_last_lr())  # -> [1.0]
    group["lr"] = group["initial_lr"] = 8.0
    print(LambdaLR(optimizer, lambda epoch: 1.0).get_last_lr())  # -> [8.0]
