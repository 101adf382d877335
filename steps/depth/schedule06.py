"""Step schedule06: Schedules: saving and loading the state

A training that continues in another process needs the model's state_dict, the optimizer's, and the
place in the schedule. Without it the count begins at 0 again. The demo stops after three epochs, at
the rate 0.1; resumed without the schedule, the rate falls to 0.01 one epoch too late, at milestone
2 of the new count, and it will fall once more at 4.

All that a scheduler knows is in its attributes. So its state_dict is a copy of them, without the
optimizer, which is saved by itself, and load_state_dict writes them back.

    optimizer.state_dict()      the rates, and initial_lr          both belong together
    scheduler.state_dict()      the epoch, and what get_lr uses

The functions of a LambdaLR cannot be saved. But an object with __call__ may stand for a function;
then its attributes are saved, and None stands for a function.

The trap: load_state_dict writes no rate into the optimizer. If only the scheduler is loaded, it
goes on multiplying the rate of a fresh optimizer.

Changed: LambdaLR. New: LRScheduler.state_dict, LRScheduler.load_state_dict.
Try: load the scheduler's state in the demo, and not the optimizer's.
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
    """initial_lr * lr_lambda(epoch); one function, or a list with one for each group.

    Objects with `__call__` keep their state in the state_dict, functions are left out of it.
    """

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
    import copy

    from tinytorch.core.tensor import tensor
    from tinytorch.optim.sgd import SGD

    def fresh():
        return SGD([tensor([1.0], requires_grad=True)], lr=1.0)

    def walk(optimizer, scheduler, epochs):
        """The rates of the next epochs."""
        seen = []
        for _ in range(epochs):
            seen.append(round(optimizer.param_groups[0]["lr"], 4))
            optimizer.step()
            scheduler.step()
        return seen

    # Six epochs in one go, and three and three.
    optimizer = fresh()
    print(walk(optimizer, MultiStepLR(optimizer, [2, 4]), 6))
    # -> [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    optimizer = fresh()
    scheduler = MultiStepLR(optimizer, [2, 4])
    print(walk(optimizer, scheduler, 3))  # -> [1.0, 1.0, 0.1]
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    print(saved[1]["last_epoch"], saved[1]["_last_lr"], "optimizer" in saved[1])
    # -> 3 [0.1] False

    # In another process: the count begins at 0 again, unless the schedule is loaded too.
    optimizer = fresh()
    scheduler = MultiStepLR(optimizer, [2, 4])
    optimizer.load_state_dict(saved[0])
    print(walk(optimizer, scheduler, 3))  # -> [0.1, 0.1, 0.01]

    optimizer = fresh()
    scheduler = MultiStepLR(optimizer, [2, 4])
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    print(walk(optimizer, scheduler, 3))  # -> [0.1, 0.01, 0.01]

    # Functions are not saved; the attributes of an object are.
    class Halves:
        def __init__(self, base):
            self.base = base

        def __call__(self, epoch):
            return self.base**epoch

    state = LambdaLR(fresh(), Halves(0.5)).state_dict()
    print(state["lr_lambdas"], LambdaLR(fresh(), lambda epoch: 1.0).state_dict()["lr_lambdas"])
    # -> [{'base': 0.5}] [None]
    scheduler = LambdaLR(fresh(), Halves(0.1))
    scheduler.load_state_dict(state)
    scheduler.optimizer.step()
    scheduler.step()
    print(scheduler.get_last_lr())  # -> [0.5]
