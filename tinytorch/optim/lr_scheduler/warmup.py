"""Warmup, half a wave of the cosine, and one scheduler after the other."""

import bisect
import math
from collections.abc import Sequence
from typing import Any

from tinytorch.optim.lr_scheduler.base import GrowthLR, LRScheduler, values_of
from tinytorch.optim.optimizer import Optimizer


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
