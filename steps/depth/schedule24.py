"""Step schedule24: Catalogue: a constant factor, and a polynomial

Two more schedules of the family of step schedule02: each says by what factor the rate changes from
one epoch to the next. Skim them. SequentialLR (step schedule13) puts them in front of others, or
behind.

    ConstantLR     a smaller rate for the first epochs, then the whole one: a warm-up in one step
    PolynomialLR   (1 - epoch / total_iters)^power, to exactly 0. With power 0.9 segmentation
                   networks are trained; with 1 it is a line

(1 - e/n) / (1 - (e-1)/n) is (n - e) / (n - e + 1): what is left, divided by what was left before.

New: ConstantLR, PolynomialLR.
Try: PolynomialLR with power=0. What is the last rate, and why?
"""

import importlib
import math
from typing import Any

from tinytorch.optim.lr_scheduler.base import GrowthLR, LRScheduler
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


class ConstantLR(GrowthLR):
    """`factor` times the rate for total_iters epochs, then the rate itself.

    Raises:
        ValueError: for a factor outside [0, 1].
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
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


class PolynomialLR(GrowthLR):
    """The rate times (1 - epoch / total_iters)^power: to zero, in a line if the power is 1."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def growth(self, epoch: int) -> float:
        if self._is_initial or not 0 < epoch <= self.total_iters:
            return 1.0
        left = self.total_iters - epoch
        return (left / (left + 1)) ** self.power


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.optim.sgd import SGD

    w = tensor([1.0], requires_grad=True)

    def rates(schedule, count):
        seen = []
        for _ in range(count):
            seen.append(round(schedule.get_last_lr()[0], 3))
            schedule.optimizer.step()
            schedule.step()
        return seen

    print(rates(ConstantLR(SGD([w], lr=1.0), 0.25, 3), 5))  # -> [0.25, 0.25, 0.25, 1.0, 1.0]
    print(rates(PolynomialLR(SGD([w], lr=1.0), 4, 2.0), 6))
    # -> [1.0, 0.562, 0.25, 0.062, 0.0, 0.0]
    try:
        ConstantLR(SGD([w], lr=1.0), 2.0)
    except ValueError as error:
        print(error)  # -> Constant multiplicative factor expected to be between 0 and 1.
