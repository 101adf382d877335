"""Step schedule07: Schedules: resuming by the number of the epoch

Older programs have saved the model, the optimizer and the number of the last epoch, but no state of
the schedule (step schedule06). A new scheduler counts from 0. So they pass that number:
last_epoch=4.

The rate of epoch 5 is in the optimizer already, so the scheduler must not write a first one. And
initial_lr must be there, too: it was saved with the group. Where it is missing, the scheduler
raises a KeyError, as its first rates are unknown.

The trap: the constructor makes a step, from epoch 4 to epoch 5. ExponentialLR would multiply the
saved rate, which already belongs to epoch 5, once more. `_is_initial` says that this is the step of
the constructor. (StepLR does not ask: it multiplies if a milestone is at 5. This is what PyTorch
does, too, and one more reason to use state_dict.)

Changed: LRScheduler; last_epoch in all constructors. New: LRScheduler._initial_step.
Try: take `and not self._is_initial` out of ExponentialLR.
"""

import importlib
import types
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
    Raises:
        KeyError: for a last_epoch other than -1, where a group has no initial_lr yet.
    """

    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for number, rate in enumerate(values_of(optimizer, "lr")):
            if last_epoch == -1:
                optimizer.param_groups[number].setdefault("initial_lr", rate)
            elif "initial_lr" not in optimizer.param_groups[number]:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{number}]")
        self.base_lrs = values_of(optimizer, "initial_lr")
        if not hasattr(optimizer, "_opt_called"):
            optimizer._opt_called = False
            optimizer.register_step_post_hook(note_step)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count, self._is_initial = 0, True
        self.step()
        self._is_initial = False

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

    def state_dict(self) -> dict[str, Any]:
        """All that the scheduler knows, except the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)


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

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def growth(self, epoch: int) -> float:
        return self.gamma if epoch and epoch % self.step_size == 0 else 1.0


class MultiStepLR(GrowthLR):
    """Times gamma, at the epochs `milestones`."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def growth(self, epoch: int) -> float:
        return self.gamma ** self.milestones[epoch]


class ExponentialLR(GrowthLR):
    """Times gamma, every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def growth(self, epoch: int) -> float:
        return self.gamma if epoch and not self._is_initial else 1.0


class LambdaLR(LRScheduler):
    """initial_lr * lr_lambda(epoch); one function, or a list with one for each group.

    Objects with `__call__` keep their state in the state_dict, functions are left out of it.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1):
        count = len(optimizer.param_groups)
        listed = isinstance(lr_lambda, (list, tuple))
        self.lr_lambdas = list(lr_lambda) if listed else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * function(self.last_epoch) for base, function in pairs]

    def state_dict(self) -> dict[str, Any]:
        states = [
            None if isinstance(each, types.FunctionType) else dict(each.__dict__)
            for each in self.lr_lambdas
        ]
        return {**super().state_dict(), "lr_lambdas": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        functions = self.lr_lambdas
        for function, state in zip(functions, state_dict["lr_lambdas"], strict=True):
            if state is not None:
                function.__dict__.update(state)
        super().load_state_dict({**state_dict, "lr_lambdas": functions})


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.optim.sgd import SGD

    def fresh(lr=1.0):
        return SGD([tensor([1.0], requires_grad=True)], lr=lr)

    # A schedule in one go: the rate of epoch 2 is 0.25.
    optimizer = fresh()
    scheduler = ExponentialLR(optimizer, 0.5)
    for _ in range(2):
        optimizer.step()
        scheduler.step()
    print(scheduler.last_epoch, scheduler.get_last_lr())  # -> 2 [0.25]

    # Resumed after epoch 1, with the saved rate: the same, and then the next one.
    optimizer = fresh(lr=0.25)
    optimizer.param_groups[0]["initial_lr"] = 1.0
    scheduler = ExponentialLR(optimizer, 0.5, last_epoch=1)
    print(scheduler.last_epoch, scheduler.get_last_lr())  # -> 2 [0.25]
    optimizer.step()
    scheduler.step()
    print(scheduler.get_last_lr(), scheduler.base_lrs)  # -> [0.125] [1.0]
    print(LambdaLR(optimizer, lambda epoch: 0.1**epoch, last_epoch=0).get_last_lr())  # -> [0.1]

    # Without the initial rate, and what StepLR does.
    try:
        ExponentialLR(fresh(), 0.5, last_epoch=4)
    except KeyError as error:
        print(error.args[0])  # -> param 'initial_lr' is not specified in param_groups[0]
    print(StepLR(optimizer, 3, gamma=0.5, last_epoch=2).get_last_lr())  # -> [0.05]
    print(MultiStepLR(optimizer, [3], gamma=0.5, last_epoch=3).get_last_lr())  # -> [0.05]
