"""Step schedule23: Warm restarts: the rate of each batch

Often the rate is set anew for each batch: scheduler.step(epoch + batch / batches). The schedule of
step schedule22 cannot do that: it counts whole epochs, one for each call. Given an epoch, it has to
find the round in which the epoch lies. n rounds together take a geometric sum,

    T_0 (T_mult^n - 1) / (T_mult - 1) epochs,    so  n = log(epoch / T_0 (T_mult - 1) + 1, T_mult)

rounded down; for T_mult = 1 it is epoch // T_0. A restart is step(0) then.

The trap: the two ways may be mixed, so both have to leave T_cur (epochs in this round, with their
fraction) and T_i (its length) behind. So counting takes the remainder of T_cur, where step
schedule22 could write 0.

Changed: CosineAnnealingWarmRestarts.step, restart.
Try: write self.T_cur = 0 at the end of a round, as in step schedule22. Which line of the demo
changes?
"""

import importlib
import math
from typing import Any

from tinytorch.optim.lr_scheduler.base import LRScheduler
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the first rate to eta_min in T_0 epochs, and again, each time in T_mult
    times as many. `step` takes an epoch too, which may be a fraction.

    Source: Loshchilov and Hutter, SGDR, 2017.
    Raises:
        ValueError: T_0 or T_mult is not a whole number from 1 on; an epoch is negative.
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
        self.T_0, self.T_i, self.T_mult = T_0, T_0, T_mult
        self.eta_min, self.T_cur = eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self.warn_outside_step()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Sets the rates of the next epoch, or of this one: epoch + batch / batches."""
        if epoch is None and self.last_epoch >= 0:
            epoch, self.T_cur = self.last_epoch + 1, self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
        else:
            epoch = epoch or 0
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            rounds, ratio = epoch // self.T_0, self.T_mult
            if ratio > 1:  # T_0 * (1 + ratio + ratio^2 + ...) is a geometric sum
                rounds = int(math.log(epoch / self.T_0 * (ratio - 1) + 1, ratio))
            done = rounds if ratio == 1 else (ratio**rounds - 1) // (ratio - 1)
            self.T_cur, self.T_i = epoch - self.T_0 * done, self.T_0 * ratio**rounds
        self.last_epoch = math.floor(epoch)
        self._update(self.get_lr)

    def restart(self) -> None:
        self.step(0)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.optim.sgd import SGD

    w = tensor([1.0], requires_grad=True)

    def rates(schedule, epochs):
        seen = []
        for epoch in epochs:
            seen.append(round(schedule.get_last_lr()[0], 3))
            schedule.optimizer.step()
            schedule.step(epoch)
        return seen

    schedule = CosineAnnealingWarmRestarts(SGD([w], lr=1.0), T_0=2, T_mult=2)
    print(rates(schedule, [None] * 8))  # -> [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0, 0.962]
    print(schedule.T_cur, schedule.T_i)  # -> 2 8

    # By the batch: two of them in each epoch. From epoch 2 on the second round runs.
    schedule = CosineAnnealingWarmRestarts(SGD([w], lr=1.0), T_0=2, T_mult=2, eta_min=0.1)
    print(rates(schedule, [0.5, 1.0, 1.5, 2.0, 2.5]))  # -> [1.0, 0.868, 0.55, 0.232, 1.0]
    schedule.step(6)
    print(schedule.T_cur, schedule.T_i, schedule.last_epoch)  # -> 0 8 6
    schedule = CosineAnnealingWarmRestarts(SGD([w], lr=1.0), T_0=4)
    schedule.step(9)
    print(schedule.T_cur, schedule.T_i)  # -> 1 4
    schedule.restart()
    print(schedule.T_cur, schedule.get_last_lr())  # -> 0 [1.0]

    # Both ways mixed: from epoch 1.5, an epoch further is half an epoch into the second round.
    schedule = CosineAnnealingWarmRestarts(SGD([w], lr=1.0), T_0=2, T_mult=2)
    schedule.step(1.5)
    schedule.step()
    print(schedule.T_cur, schedule.T_i)  # -> 0.5 4

    try:
        schedule.step(-1)
    except ValueError as error:
        print(error)  # -> Expected non-negative epoch, but got -1
