"""Step schedule05: Schedules: a warning about the order of the steps

A scheduler sets the rate of epoch 0 when it is made. A loop that calls scheduler.step() before the
first optimizer.step() moves on to the rate of epoch 1, and the first one is never used. PyTorch
itself expected this order until version 1.1 (2019), and old programs are still copied. With a
warm-up or a list of milestones, all epochs are off by one. No error, and a result that is a little
worse.

The scheduler cannot repair this, but it can notice it: at its second step (the constructor makes
the first), it checks whether the optimizer has made a step yet. For this it registers a hook after
the optimizer's step (step optimizer16), once for each optimizer, which notes that there was one.

The trap: this must be checked once, and not in each epoch. A training that begins with
some epochs in which nothing is moved gets one warning, not a hundred. (`stacklevel=2` lets the
warning name the line of the program that called step.)

(The text and the name _opt_called are PyTorch's.)

Changed: LRScheduler.__init__, LRScheduler.step. New: EARLY, note_step.
Try: call optimizer.step() once before the loop of the wrong order. The warning is gone, and the
rates are as wrong as before.
"""

import importlib
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


EARLY = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite "
    "order: else the first value of the schedule is skipped."
)


def note_step(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
    """A hook: the optimizer has made a step."""
    optimizer._opt_called = True


def values_of(optimizer: Optimizer, name: str) -> list[Any]:
    """This option of all groups."""
    return [group[name] for group in optimizer.param_groups]


class LRScheduler:
    """Base of the schedulers. Call `step` once an epoch (or a batch), after optimizer.step().

    A subclass writes `get_lr`: the rates of the groups in epoch `last_epoch`. It finds the first
    ones in `base_lrs`; each group keeps its own as "initial_lr".
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer, self.last_epoch, self._step_count = optimizer, -1, 0
        for number, rate in enumerate(values_of(optimizer, "lr")):
            optimizer.param_groups[number].setdefault("initial_lr", rate)
        self.base_lrs = values_of(optimizer, "initial_lr")
        if not hasattr(optimizer, "_opt_called"):
            optimizer._opt_called = False
            optimizer.register_step_post_hook(note_step)
        self.step()

    def get_lr(self) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def get_last_lr(self) -> list[Any]:
        """The rates that were set last, one for each group."""
        return self._last_lr

    def step(self) -> None:
        """Sets the rates of the next epoch."""
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(EARLY, UserWarning, stacklevel=2)
        self._step_count += 1
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

    def loop(scheduler_first):
        """The rates with which the optimizer made its steps, and the warnings."""
        p = tensor([0.0], requires_grad=True)
        optimizer, used = SGD([p], lr=1.0), []
        p.grad = tensor([1.0])
        scheduler = MultiStepLR(optimizer, [1, 2])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                if scheduler_first:
                    scheduler.step()
                used.append(round(optimizer.param_groups[0]["lr"], 3))
                optimizer.step()
                if not scheduler_first:
                    scheduler.step()
        return used, [str(warning.message).split(". ")[0] for warning in caught]

    print(loop(scheduler_first=False))  # -> ([1.0, 0.1, 0.01], [])
    used, messages = loop(scheduler_first=True)
    print(used, len(messages))  # -> [0.1, 0.01, 0.01] 1
    print(messages[0])
    # -> Detected call of `lr_scheduler.step()` before `optimizer.step()`

    # One hook, however many schedulers there are.
    optimizer = SGD([tensor([0.0], requires_grad=True)], lr=1.0)
    StepLR(optimizer, 2)
    ExponentialLR(optimizer, 0.5)
    print(len(optimizer._hooks["after step"]), optimizer._opt_called)  # -> 1 False
