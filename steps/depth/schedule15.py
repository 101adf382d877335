"""Step schedule15: SequentialLR: saving and loading the state

The state_dict of a scheduler is a copy of its attributes (step schedule06). For a SequentialLR one
of them is the list of its schedulers, and each of these holds the optimizer with all parameters.
Saved like that, the file has the network in it a second time. And after loading, the schedulers
would be those of the file: they write their rates into an optimizer that no program uses.

So the state_dict contains the state_dicts of the parts in place of the parts. Loading gives each
part its own, and keeps the list of the parts that are here.

The trap: super().load_state_dict would write the saved dicts over the list of schedulers. So the
list is put in their place first.

(PyTorch does the same.)

New: SequentialLR.state_dict, SequentialLR.load_state_dict.
Try: leave `"_schedulers": self._schedulers` out of load_state_dict.
"""

import bisect
import importlib
import math
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import fill_
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


EARLY = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite "
    "order: else the first value of the schedule is skipped."
)


GIVEN = "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated"


def note_step(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
    """A hook: the optimizer has made a step."""
    optimizer._opt_called = True


def values_of(optimizer: Optimizer, name: str) -> list[Any]:
    """This option of all groups. Of one that is a tensor a copy: it will be written."""
    values = [group[name] for group in optimizer.param_groups]
    return [value.clone() if isinstance(value, Tensor) else value for value in values]


class LRScheduler:
    """Base of the schedulers. Call `step` once an epoch (or a batch), after optimizer.step().

    A subclass writes `get_lr`: the rates of the groups in epoch `last_epoch`. It finds the first
    ones in `base_lrs`; each group keeps its own as "initial_lr".
    Raises:
        TypeError: for what is not an optimizer.
        KeyError: for a last_epoch other than -1, where a group has no initial_lr yet.
    """

    _is_initial = _get_lr_called_within_step = wants_metrics = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
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

    def _undo(self) -> None:
        self.last_epoch -= 1

    def get_lr(self) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def get_last_lr(self) -> list[Any]:
        """The rates that were set last, one for each group."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Sets the rates of the next epoch, or, as older programs ask for it, of this one."""
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(EARLY, UserWarning, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(GIVEN, UserWarning, stacklevel=2)
            self.restart(epoch)
        else:
            self.last_epoch += 1
            self._update(self.get_lr)

    def restart(self, epoch: int = 0) -> None:
        """Sets the rates of an epoch, whatever they are now: SequentialLR begins a scheduler so."""
        self.last_epoch = epoch
        self._update(self.closed_rates)

    def closed_rates(self) -> list[Any]:
        return self.get_lr()

    def _update(self, rates: Callable[[], list[Any]]) -> None:
        self._get_lr_called_within_step = True
        try:
            self.set_rates(rates())
        finally:
            self._get_lr_called_within_step = False

    def set_rates(self, rates: list[Any]) -> None:
        """Writes the rates into the groups; into the tensor itself where a rate is one."""
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                fill_(group["lr"], float(rate))
            else:
                group["lr"] = rate
        self._last_lr = values_of(self.optimizer, "lr")

    def warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            says = "To get the last learning rate computed by the scheduler, use `get_last_lr()`."
            warnings.warn(says, UserWarning, stacklevel=3)

    def state_dict(self) -> dict[str, Any]:
        """All that the scheduler knows, except the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)


_LRScheduler = LRScheduler  # its name in older programs


class GrowthLR(LRScheduler):
    """A schedule that multiplies the rates by a factor on the way from epoch - 1 to `epoch`.

    A subclass writes `growth`, the factor. The schedule goes on from the present rate, so several
    may work on one optimizer: their factors multiply.
    """

    def growth(self, epoch: int) -> float:
        raise NotImplementedError(f"{type(self).__name__} has no growth")

    def get_lr(self) -> list[Any]:
        self.warn_outside_step()
        growth, rates = self.growth(self.last_epoch), values_of(self.optimizer, "lr")
        return rates if growth == 1 else [rate * growth for rate in rates]

    def closed_rates(self) -> list[Any]:
        growth = math.prod(map(self.growth, range(int(self.last_epoch) + 1)))
        return [base * growth for base in self.base_lrs]


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
        self.warn_outside_step()
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


class LinearLR(GrowthLR):
    """From start_factor times the rate to end_factor times, in equal steps: a warmup.

    Raises:
        ValueError: for a start_factor outside (0, 1], or an end_factor outside [0, 1].
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ):
        if not 0 < start_factor <= 1:
            raise ValueError("Starting multiplicative factor expected to be between 0 and 1.")
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def growth(self, epoch: int) -> float:
        if epoch == 0:
            return self.start_factor
        if self._is_initial or epoch > self.total_iters:
            return 1.0
        rise = self.end_factor - self.start_factor
        return 1.0 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise)


class CosineAnnealingLR(LRScheduler):
    """eta_min + (lr - eta_min) * (1 + cos(pi * epoch / T_max)) / 2: slow, fast, slow.

    Source: Loshchilov and Hutter, SGDR, 2017 (without the restarts).
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self.warn_outside_step()
        epoch, rates, low = self.last_epoch, values_of(self.optimizer, "lr"), self.eta_min
        if self._is_initial:
            return rates
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # up again, from the lowest point
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            pairs = zip(rates, self.base_lrs, strict=True)
            return [rate + (base - low) * rise for rate, base in pairs]
        growth = self.wave(epoch) / self.wave(epoch - 1)
        return [growth * (rate - low) + low for rate in rates]

    def closed_rates(self) -> list[Any]:
        height, low = self.wave(self.last_epoch) / 2, self.eta_min
        return [low + (base - low) * height for base in self.base_lrs]

    def wave(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)


class SequentialLR(LRScheduler):
    """One scheduler after the other: schedulers[i] begins at epoch milestones[i - 1].

    Raises:
        TypeError: for what is not a scheduler.
        ValueError: for a scheduler of another optimizer, for ReduceLROnPlateau, whose step wants
            the loss, and unless there is one milestone less than schedulers.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence, milestones: Sequence, last_epoch: int = -1
    ):
        for number, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"SequentialLR at index {number} should have `optimizer`")
            if scheduler.wants_metrics:
                name = type(scheduler).__name__
                raise ValueError(f"SequentialLR does not support {name}: {number}")
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"SequentialLR expects schedulers of one optimizer: {number}")
        if len(schedulers) < 1 or len(milestones) != len(schedulers) - 1:
            counts = f"{len(schedulers)} schedulers and {len(milestones)} milestones"
            raise ValueError(f"SequentialLR expects one milestone less than schedulers: {counts}")
        self.optimizer, self._schedulers = optimizer, schedulers
        self._milestones, self.last_epoch = milestones, last_epoch + 1
        self.set_rates(values_of(optimizer, "initial_lr"))
        self._undo()  # each scheduler has made its first step, and changed the rate
        first = schedulers[bisect.bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def _undo(self) -> None:
        for scheduler in self._schedulers:
            scheduler._undo()

    def step(self) -> None:
        self.last_epoch += 1
        number = bisect.bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number and self._milestones[number - 1] == self.last_epoch:
            scheduler.restart()
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        inner = [scheduler.state_dict() for scheduler in self._schedulers]
        return {**super().state_dict(), "_schedulers": inner}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)
        super().load_state_dict({**state_dict, "_schedulers": self._schedulers})


if __name__ == "__main__":
    import copy

    from tinytorch.core.tensor import tensor
    from tinytorch.optim.sgd import SGD

    def fresh():
        return SGD([tensor([1.0], requires_grad=True)], lr=1.0)

    def warmup(o):
        parts = [LinearLR(o, 0.25, total_iters=3), CosineAnnealingLR(o, T_max=4)]
        return SequentialLR(o, parts, milestones=[3])

    def walk(optimizer, scheduler, epochs):
        seen = []
        for _ in range(epochs):
            seen.append(round(optimizer.param_groups[0]["lr"], 4))
            optimizer.step()
            scheduler.step()
        return seen

    # Five epochs, and then three more in another process.
    optimizer = fresh()
    scheduler = warmup(optimizer)
    print(walk(optimizer, scheduler, 5))  # -> [0.25, 0.5, 0.75, 1.0, 0.8536]
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    print([inner["last_epoch"] for inner in saved[1]["_schedulers"]])  # -> [2, 2]
    optimizer = fresh()
    scheduler = warmup(optimizer)
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    print(walk(optimizer, scheduler, 3))  # -> [0.5, 0.1464, 0.0]

    # What LRScheduler's own state_dict would save.
    parts = LRScheduler.state_dict(scheduler)["_schedulers"]
    print([type(part).__name__ for part in parts], parts[0].optimizer is optimizer)
    # -> ['LinearLR', 'CosineAnnealingLR'] True
