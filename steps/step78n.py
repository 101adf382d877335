"""Step 78n: Warmup and cosine, one after the other

The schedules of step 78g only fall. But a large rate does the most harm in the first steps: the
weights are random, Adam's v has seen one gradient, and what ten steps break may take hundreds to
mend. Some large networks do not train at all without a warmup: some steps in which the rate rises
from almost nothing. After it, half a wave of the cosine has proved itself again and again: large
for long, small for long, and no corner where the loss would jump.

    lr(e) = eta_min + (lr0 - eta_min) (1 + cos(pi e / T)) / 2

From its lowest point the wave slowly goes up again, as CosineAnnealingLR does after T_max epochs.

Warmup and cosine are two schedulers, and SequentialLR runs one after the other. The difficulty is
the change: the second has to begin from its own first rate, not from where the first one stopped.
So at a milestone it sets the rate of its epoch 0, whatever the rate was before (`restart`). Also,
each scheduler has already changed the rate when it was made; SequentialLR undoes that.

New: LinearLR, CosineAnnealingLR, SequentialLR. Moved: what step 78g wrote, to base.py.
Try: lr=0.02 in `train`, then lr=0.002. At which of them does the warmup no longer help?
"""

import bisect
import importlib
import math
from collections.abc import Sequence
from typing import Any

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.optim.lr_scheduler.base import GrowthLR, LRScheduler, values_of
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
        if self._step_count == 1 and epoch > 0:
            return [low + (base - low) * self.wave(epoch) / 2 for base in self.base_lrs]
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # up again, from the lowest point
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            pairs = zip(rates, self.base_lrs, strict=True)
            return [rate + (base - low) * rise for rate, base in pairs]
        growth = self.wave(epoch) / self.wave(epoch - 1)
        return [growth * (rate - low) + low for rate in rates]

    def first_rates(self) -> list[Any]:
        return self.base_lrs

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

    print(rates(lambda o: LinearLR(o, 0.25, total_iters=3), 5))  # -> [0.25, 0.5, 0.75, 1.0, 1.0]
    print(rates(lambda o: CosineAnnealingLR(o, T_max=4), 7))
    # -> [1.0, 0.8536, 0.5, 0.1464, 0.0, 0.1464, 0.5]

    # One after the other. The second one begins from 1.0, wherever the first one stopped.
    def warmup(o, start=0.25, warm=3, rest=4):
        parts = [LinearLR(o, start, total_iters=warm), CosineAnnealingLR(o, T_max=rest)]
        return SequentialLR(o, parts, milestones=[warm])

    print(rates(warmup, 8))  # -> [0.25, 0.5, 0.75, 1.0, 0.8536, 0.5, 0.1464, 0.0]
    print(rates(lambda o: SequentialLR(o, [ExponentialLR(o, g) for g in (0.5, 0.1)], [2]), 5))
    # -> [1.0, 0.5, 1.0, 0.1, 0.01]

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
