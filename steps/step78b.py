"""Step 78b: Warm up, cool down, and begin again

The schedules of step 78a only fall. But a large rate does the most harm in the first steps: the
weights are random, Adam's v has seen one gradient, and what ten steps break may take hundreds to
mend. Some large networks do not train at all without a warmup: some steps in which the rate rises
from almost nothing. After it, one shape has proved itself again and again, half a wave of the
cosine: large for long, small for long, and no corner where the loss would jump.

    lr(e) = eta_min + (lr0 - eta_min) (1 + cos(pi e / T)) / 2

(PolynomialLR goes down to zero in a straight line, or along a power of it.)

From its lowest point the wave would slowly go up again, and CosineAnnealingLR does. A restart jumps
back to the first rate at once, out of the valley and perhaps into a better one. That is the idea of
SGDR (CosineAnnealingWarmRestarts); each run is T_mult times as long as the one before.

Warmup and cosine are two schedulers, and SequentialLR runs one after the other. The difficulty is
the change: the second has to begin from its own first rate, not from where the first one stopped.
So at a milestone it is asked for its rate at epoch 0, whatever the rate was before (_update_lr(0)).
Also, each scheduler has already changed the rate when it was made; SequentialLR undoes that.

ChainedScheduler combines them the other way: all of them at each step, so their factors multiply.

New: PolynomialLR, ConstantLR, LinearLR, CosineAnnealingLR, CosineAnnealingWarmRestarts;
SchedulerList, SequentialLR, ChainedScheduler. Moved: what step 78a wrote, to base.py.
Try: lr=0.02 in `train`, then lr=0.002. At which of them does the warmup no longer help?
"""

import bisect
import importlib
import math
from collections.abc import Sequence
from typing import Any

from tinytorch.optim.lr_scheduler.base import GrowthLR, LRScheduler, values_of
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class PolynomialLR(GrowthLR):
    """(1 - epoch / total_iters) ** power times the rate; power 1 is a straight line to zero."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def growth(self, epoch: int) -> float:
        if epoch == 0 or self._is_initial or epoch > self.total_iters:
            return 1.0
        now, before = 1.0 - epoch / self.total_iters, 1.0 - (epoch - 1) / self.total_iters
        return (now / before) ** self.power


class ConstantLR(GrowthLR):
    """`factor` times the rate until epoch total_iters. ValueError for a factor outside [0, 1]."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ):
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def growth(self, epoch: int) -> float:
        if epoch == 0:
            return self.factor
        return 1.0 / self.factor if epoch == self.total_iters else 1.0


class LinearLR(GrowthLR):
    """From start_factor times the rate to end_factor times, in equal steps: a warmup.

    ValueError for a start_factor outside (0, 1], an end_factor outside [0, 1].
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
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # up again, from the lowest point
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            pairs = zip(rates, self.base_lrs, strict=True)
            return [rate + (base - low) * rise for rate, base in pairs]
        growth = self.wave(epoch) / self.wave(epoch - 1)
        return [growth * (rate - low) + low for rate in rates]

    def wave(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def _get_closed_form_lr(self) -> list[Any]:
        low, wave = self.eta_min, self.wave(self.last_epoch)
        return [low + (base - low) * wave / 2 for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """CosineAnnealingLR of T_0 epochs, again and again, each time T_mult times as long.

    Source: Loshchilov and Hutter, SGDR, 2017. ValueError for options that do not fit.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ):
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self.T_i, self.T_cur = T_0, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self.warn_outside_step()
        wave, low = 1 + math.cos(math.pi * self.T_cur / self.T_i), self.eta_min
        return [low + (base - low) * wave / 2 for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Goes on by one, or to `epoch`, which may lie between two: epoch + batch / batches."""
        if epoch is not None and epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        if epoch is None and self.last_epoch >= 0:
            epoch, self.T_cur = self.last_epoch + 1, self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
        else:
            self.T_cur, self.T_i = epoch or 0, self.T_0
            while self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult
        self._update_lr(math.floor(epoch or 0))


class SchedulerList(LRScheduler):
    """What SequentialLR and ChainedScheduler share: schedulers of one optimizer.

    ValueError for none, for one of another optimizer, and for ReduceLROnPlateau, whose step wants
    the loss; TypeError for what is no scheduler.
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]):
        name = type(self).__name__
        for number, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {number} should have `optimizer`")
            if scheduler.wants_metrics:
                raise ValueError(f"{name} does not support {type(scheduler).__name__}: {number}")
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"{name} expects schedulers of the same optimizer: {number}")
        self.optimizer, self._schedulers = optimizer, schedulers

    def _undo(self) -> None:
        for scheduler in self._schedulers:
            scheduler._undo()

    def state_dict(self) -> dict[str, Any]:
        inner = [scheduler.state_dict() for scheduler in self._schedulers]
        return {**super().state_dict(), "_schedulers": inner}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)
        super().load_state_dict({**state_dict, "_schedulers": self._schedulers})


class SequentialLR(SchedulerList):
    """One scheduler after the other: schedulers[i] begins at epoch milestones[i - 1].

    ValueError also where the numbers do not fit.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence, milestones: Sequence, last_epoch: int = -1
    ):
        super().__init__(optimizer, schedulers)
        if len(schedulers) < 1 or len(milestones) != len(schedulers) - 1:
            counts = f"{len(schedulers)} schedulers and {len(milestones)} milestones"
            raise ValueError(f"SequentialLR expects one milestone less than schedulers: {counts}")
        self._milestones, self.last_epoch = milestones, last_epoch + 1
        self.set_rates(values_of(optimizer, "initial_lr"))
        self._undo()  # what the schedulers have done to the rate when they were made
        first = schedulers[bisect.bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:
        self.last_epoch += 1
        number = bisect.bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number and self._milestones[number - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(SchedulerList):
    """All of them at each step: their factors multiply."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler, but got none")
        super().__init__(optimizer or schedulers[0].optimizer, schedulers)
        self._last_lr = values_of(self.optimizer, "lr")

    def step(self) -> None:
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = values_of(self.optimizer, "lr")


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed, rand
    from tinytorch.optim.adam import Adam
    from tinytorch.optim.lr_scheduler.base import ExponentialLR
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

    print(rates(lambda o: ConstantLR(o, 0.25, total_iters=2), 4))  # -> [0.25, 0.25, 1.0, 1.0]
    print(rates(lambda o: LinearLR(o, 0.25, total_iters=3), 5))  # -> [0.25, 0.5, 0.75, 1.0, 1.0]
    print(rates(lambda o: PolynomialLR(o, 4), 6))  # -> [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    print(rates(lambda o: CosineAnnealingLR(o, T_max=4), 7))
    # -> [1.0, 0.8536, 0.5, 0.1464, 0.0, 0.1464, 0.5]
    print(rates(lambda o: CosineAnnealingWarmRestarts(o, 2, T_mult=2), 8))
    # -> [1.0, 0.5, 1.0, 0.8536, 0.5, 0.1464, 1.0, 0.9619]

    # One after the other. The second one begins from 1.0, wherever the first one stopped.
    def warmup(o, start=0.25, warm=3, rest=4):
        parts = [LinearLR(o, start, total_iters=warm), CosineAnnealingLR(o, T_max=rest)]
        return SequentialLR(o, parts, milestones=[warm])

    print(rates(warmup, 8))  # -> [0.25, 0.5, 0.75, 1.0, 0.8536, 0.5, 0.1464, 0.0]
    early = [ConstantLR, ExponentialLR]
    print(rates(lambda o: SequentialLR(o, [make(o, 0.5) for make in early], [2]), 5))
    # -> [0.5, 0.5, 1.0, 0.5, 0.25]
    print(rates(lambda o: ChainedScheduler([make(o, 0.5) for make in early]), 4))
    # -> [0.5, 0.25, 0.125, 0.0625]

    # What has not been saved is lost: the schedulers inside are part of the state.
    scheduler = warmup(SGD([tensor([1.0], requires_grad=True)], lr=1.0))
    print([inner["last_epoch"] for inner in scheduler.state_dict()["_schedulers"]])  # -> [0, -1]

    # Adam with a large rate. In its first steps every weight moves by the whole rate, wherever its
    # gradient points: the tanhs end up at -1 or 1, where the slope is zero, and stay there.
    x = linspace(-3, 3, 100).reshape(-1, 1)
    y = (x * 2).sin()

    def train(warm, seed):
        manual_seed(seed)
        shapes = [(1, 32), (1, 32), (32, 32), (1, 32), (32, 1)]
        params = [(rand(*shape) * 2 - 1) / shape[0] ** 0.5 for shape in shapes]
        params = [param.requires_grad_() for param in params]
        w1, b1, w2, b2, w3 = params
        optimizer = Adam(params, lr=0.2)
        scheduler = warmup(optimizer, 0.01, warm, 300 - warm)
        for _ in range(300):
            optimizer.zero_grad()
            loss = (((x @ w1 + b1).tanh() @ w2 + b2).tanh() @ w3 - y).square().mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
        return loss.item()

    cold, warm = ([train(steps, seed) for seed in range(3)] for steps in (1, 60))
    print("warmup in one step: ", " ".join(f"{loss:.5f}" for loss in cold))  # -> ...
    print("warmup in 60 steps: ", " ".join(f"{loss:.5f}" for loss in warm))  # -> ...
    print("ten times better:", 10 * max(warm) < min(cold))  # -> ten times better: True
