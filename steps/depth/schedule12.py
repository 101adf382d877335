"""Step schedule12: LinearLR: a warm-up as a factor

Step 46b has told what a warm-up is for. LinearLR is the class for it:

    lr(e) = lr0 * (start + (end - start) * e / total)      for e up to total, then it stays

As a factor from epoch to epoch (step schedule02), this is the quotient of two neighbours:

    growth(e) = (total * start + e * rise) / (total * start + (e - 1) * rise)
              = 1 + rise / (total * start + (e - 1) * rise)             with rise = end - start

It multiplies, so the demo uses it with a cosine on the same optimizer: the loss ends at least five
times lower.

The trap: start_factor must not be 0, for no factor leads from 0 to anything else. It is refused.
end_factor may be 0: then LinearLR falls, in a straight line.

(PyTorch's default is a short one: from 1/3, in 5 epochs.)

New: LinearLR.
Try: lr=0.002 in `train`. Does the warm-up still help?
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

    def wave(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed, rand
    from tinytorch.optim.adam import Adam
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

    print(rates(lambda o: LinearLR(o, 0.25, total_iters=3), 5))  # -> [0.25, 0.5, 0.75, 1.0, 1.0]
    print(rates(lambda o: LinearLR(o, 1.0, end_factor=0.0, total_iters=4), 6))
    # -> [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    optimizer = SGD([tensor([1.0], requires_grad=True)])
    for factors in ((0.0, 1.0), (0.5, 2.0)):
        try:
            LinearLR(optimizer, *factors)
        except ValueError as error:
            print(error)
    # -> Starting multiplicative factor expected to be between 0 and 1.
    # -> Ending multiplicative factor expected to be between 0 and 1.

    # Adam with a large rate. In its first steps every weight moves by the whole rate, wherever its
    # gradient points: the tanhs end up at -1 or 1, where the slope is zero, and stay there.
    x = linspace(-3, 3, 100).reshape(-1, 1)
    y = (x * 2).sin()

    def train(make, seed):
        manual_seed(seed)
        shapes = [(1, 32), (1, 32), (32, 32), (1, 32), (32, 1)]
        params = [(rand(*shape) * 2 - 1) / shape[0] ** 0.5 for shape in shapes]
        params = [param.requires_grad_() for param in params]
        w1, b1, w2, b2, w3 = params
        optimizer = Adam(params, lr=0.2)
        schedulers = make(optimizer)
        for _ in range(300):
            optimizer.zero_grad()
            loss = (((x @ w1 + b1).tanh() @ w2 + b2).tanh() @ w3 - y).square().mean()
            loss.backward()
            optimizer.step()
            for scheduler in schedulers:
                scheduler.step()
        return loss.item()

    def falling(o):
        return [CosineAnnealingLR(o, T_max=300)]

    def warmed(o):
        return [LinearLR(o, 0.01, total_iters=60), CosineAnnealingLR(o, T_max=300)]

    cold, warm = ([train(make, seed) for seed in range(3)] for make in (falling, warmed))
    print("at once:          ", " ".join(f"{loss:.5f}" for loss in cold))  # -> ...
    print("warmed in 60 steps:", " ".join(f"{loss:.5f}" for loss in warm))  # -> ...
    print("five times better:", 5 * max(warm) < min(cold))  # -> five times better: True
