"""Step schedule10: CosineAnnealingLR

Step 46b used half a wave of the cosine, as a function. Here it is a class with PyTorch's arguments,
and the demo compares it: ExponentialLR halves the rate again and again from the start, StepLR falls
down a stair. All three go from 0.4 to 0.4 / 150 in 200 steps, and the cosine ends closest.

    lr(e) = eta_min + (lr0 - eta_min) * (1 + cos(pi * e / T_max)) / 2

The trap: T_max is the number of epochs until the lowest point, in the unit in which you call step.
After it the wave goes up again. So T_max should be the length of the training, or what is left of
it.

(The name comes from metallurgy: annealing is to let a metal cool slowly. PyTorch's class has the
same arguments.)

New: CosineAnnealingLR.
Try: T_max=4 and 20 epochs in the demo's first line.
"""

import importlib
import math
import types
import warnings
from collections import Counter
from collections.abc import Iterable
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

    _is_initial = _get_lr_called_within_step = False

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
        self._get_lr_called_within_step = True
        try:
            self.set_rates(self.get_lr())
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
        low, wave = self.eta_min, self.wave(self.last_epoch)
        return [low + (base - low) * wave / 2 for base in self.base_lrs]

    def wave(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn
    from tinytorch.optim.sgd import SGD

    def rates(make, epochs):
        """The rates that a scheduler gives, from 1.0 at the start."""
        optimizer = SGD([tensor([1.0], requires_grad=True)], lr=1.0)
        scheduler, seen = make(optimizer), []
        for _ in range(epochs):
            seen.append(round(scheduler.get_last_lr()[0], 4))
            optimizer.step()
            scheduler.step()
        return seen

    print(rates(lambda o: CosineAnnealingLR(o, T_max=4), 7))
    # -> [1.0, 0.8536, 0.5, 0.1464, 0.0, 0.1464, 0.5]
    print(rates(lambda o: CosineAnnealingLR(o, T_max=2, eta_min=0.1), 3))  # -> [1.0, 0.55, 0.1]

    # Three ways from 0.4 to almost nothing, in a valley with noise: steep across, flat along it.
    def distance(make):
        manual_seed(0)
        x = (10 * randn(2, 1000)).requires_grad_()
        optimizer = SGD([x], lr=0.4)
        scheduler = make(optimizer)
        slope = tensor([[2.0], [0.05]])
        for _ in range(200):
            x.grad = slope * x.detach() + 0.1 * randn(2, 1000)
            optimizer.step()
            scheduler.step()
        return x.detach().square().mean().sqrt().item()

    low = (1 / 150) ** (1 / 200)
    ways = {
        "exponential": lambda o: ExponentialLR(o, gamma=low),
        "steps": lambda o: StepLR(o, 50, gamma=low**50),
        "cosine": lambda o: CosineAnnealingLR(o, T_max=200, eta_min=0.4 / 150),
    }
    ends = {name: distance(make) for name, make in ways.items()}
    for name, end in ends.items():
        print(f"{name:12} {end:.2f}")  # -> ...
    print("the cosine is closest:", min(ends, key=ends.get) == "cosine")
    # -> the cosine is closest: True
