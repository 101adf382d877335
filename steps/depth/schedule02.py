"""Step schedule02: Factors that multiply: StepLR, MultiStepLR, ExponentialLR

A LambdaLR computes each rate from the first one, and overwrites the present one. With two of them
on one optimizer only the second counts. And if the program halves a rate by hand in epoch 5, epoch
6 ignores it.

Most schedules are easier to describe by the change from epoch to epoch:

    StepLR          times gamma, every so many epochs        1   1   0.1   0.1   0.01
    MultiStepLR     times gamma, at each epoch of a list     1   0.1 0.1   0.1   0.01
    ExponentialLR   times gamma, in every epoch              1   0.1 0.01  ...

So they say by which factor the rate of the last epoch is to be multiplied (`growth`), and go on
from the present rate, whatever has set it. Several of them may work on one optimizer: their factors
multiply, in any order.

MultiStepLR counts its milestones: an epoch that is in the list twice multiplies twice, which is
gamma ** 2, and one that is not there is counted as 0, so gamma ** 0 = 1.

The trap: the factor of epoch 0 must be 1, though 0 % step_size is 0. Nothing has been trained yet.

(torch.optim.lr_scheduler has the same classes, except GrowthLR: there each class repeats its
lines.)

New: GrowthLR, StepLR, MultiStepLR, ExponentialLR.
Try: remove `epoch and` from StepLR.
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


class LRScheduler:
    """Base of the schedulers. Call `step` once an epoch (or a batch), after optimizer.step().

    A subclass writes `get_lr`: the rates of the groups in epoch `last_epoch`. It finds the first
    ones in `base_lrs`.
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer, self.last_epoch = optimizer, -1
        self.base_lrs = [group["lr"] for group in optimizer.param_groups]
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
        self._last_lr = rates


class GrowthLR(LRScheduler):
    """A schedule that multiplies the rates by a factor on the way from epoch - 1 to `epoch`.

    A subclass writes `growth`, the factor. The schedule goes on from the present rate, so several
    may work on one optimizer: their factors multiply.
    """

    def growth(self, epoch: int) -> float:
        raise NotImplementedError(f"{type(self).__name__} has no growth")

    def get_lr(self) -> list[Any]:
        growth = self.growth(self.last_epoch)
        rates = [group["lr"] for group in self.optimizer.param_groups]
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

    def rates(make, epochs):
        """The rates that a scheduler gives, from 1.0 at the start."""
        optimizer = SGD([tensor([1.0], requires_grad=True)], lr=1.0)
        scheduler, seen = make(optimizer), []
        for _ in range(epochs):
            seen.append(round(scheduler.get_last_lr()[0], 4))
            optimizer.step()  # first the optimizer
            scheduler.step()  # then the scheduler
        return seen

    def two(*schedulers):
        """The rates with several schedulers on one optimizer."""
        optimizer = SGD([tensor([1.0], requires_grad=True)], lr=1.0)
        both, seen = [make(optimizer) for make in schedulers], []
        for _ in range(4):
            seen.append(round(optimizer.param_groups[0]["lr"], 4))
            for scheduler in both:
                scheduler.step()
        return seen

    # One half in each epoch, and one tenth in every second one.
    halves, tenths = (lambda epoch: 0.5**epoch), (lambda epoch: 0.1 ** (epoch // 2))
    print(two(lambda o: LambdaLR(o, halves), lambda o: LambdaLR(o, tenths)))
    # -> [1.0, 1.0, 0.1, 0.1]
    print(two(lambda o: ExponentialLR(o, gamma=0.5), lambda o: StepLR(o, 2, gamma=0.1)))
    # -> [1.0, 0.5, 0.025, 0.0125]

    print(rates(lambda o: StepLR(o, 2, gamma=0.5), 6))  # -> [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    print(rates(lambda o: MultiStepLR(o, [1, 4], gamma=0.5), 6))
    # -> [1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    print(rates(lambda o: MultiStepLR(o, [1, 1], gamma=0.5), 3))  # -> [1.0, 0.25, 0.25]
    print(rates(lambda o: ExponentialLR(o, gamma=0.5), 4))  # -> [1.0, 0.5, 0.25, 0.125]

    # A rate that the program has halved by hand stays halved.
    optimizer = SGD([tensor([1.0], requires_grad=True)], lr=1.0)
    scheduler = StepLR(optimizer, 2)
    optimizer.param_groups[0]["lr"] = 0.5
    scheduler.step()
    print(scheduler.get_last_lr())  # -> [0.5]
    try:
        GrowthLR(optimizer)
    except NotImplementedError as error:
        print(error)  # -> GrowthLR has no growth
