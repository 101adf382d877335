"""Step schedule04: LambdaLR: a function for each group

The groups of an optimizer may need different schedules: a layer that is trained already rests for
ten epochs, while the new one behind it learns at the full rate. LambdaLR of step schedule03 applies
one function to all groups. Two of them on one optimizer do not help, since the second writes over
the rates of the first (step schedule02).

So lr_lambda may be a list, with one function for each group. A single one stands for all of them:

    LambdaLR(optimizer, [rests, falls])         group 0: rests(epoch)      group 1: falls(epoch)

The trap: a list of another length. A plain zip would cut it, and a group would keep its rate
without a word. So it is refused at once, with both lengths.

(PyTorch's LambdaLR takes a list too.)

Changed: LambdaLR.
Try: take the check of the lengths out. Which error does the demo print then?
"""

import importlib
from collections import Counter
from collections.abc import Iterable
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
    """initial_lr * lr_lambda(epoch); one function, or a list with one for each group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any):
        count = len(optimizer.param_groups)
        listed = isinstance(lr_lambda, (list, tuple))
        self.lr_lambdas = list(lr_lambda) if listed else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * function(self.last_epoch) for base, function in pairs]


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.optim.sgd import SGD

    # The first group rests for two epochs, while the second one begins to fall.
    p, q = tensor([1.0], requires_grad=True), tensor([1.0], requires_grad=True)
    optimizer = SGD([{"params": [p]}, {"params": [q], "lr": 8.0}], lr=1.0)
    rests, falls = (lambda epoch: float(epoch >= 2)), (lambda epoch: 0.5**epoch)
    scheduler = LambdaLR(optimizer, [rests, falls])
    seen = []
    for _ in range(4):
        seen.append(scheduler.get_last_lr())
        scheduler.step()
    print(seen)  # -> [[0.0, 8.0], [0.0, 4.0], [1.0, 2.0], [1.0, 1.0]]
    try:
        LambdaLR(optimizer, [rests])
    except ValueError as error:
        print(error)  # -> Expected 2 lr_lambdas, but got 1
