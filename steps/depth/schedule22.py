"""Step schedule22: Warm restarts

Half a cosine (step schedule10) ends at the lowest rate, and the training ends with it: to see what
ten more epochs would bring, it has to be run anew. Loshchilov and Hutter (2017), who proposed the
cosine, let it start again: the rate jumps to its first value, and the weights stay. The jump
carries them out of a narrow valley, and at the end of each round there is a network that can be
kept. If each round is T_mult times as long as the one before,

    T_0,   T_0 * T_mult,   T_0 * T_mult^2, ...

the first networks come early, and the later ones get more time.

The schedule counts: T_cur is the number of epochs in this round, and T_i its length.

The trap: the networks to keep are those at the end of a round. One epoch later the rate is at its
highest again, and the loss rises.

New: CosineAnnealingWarmRestarts.
Try: print the rates for T_mult=1, then for T_mult=3.
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
    times as many.

    Source: Loshchilov and Hutter, SGDR, 2017.
    Raises:
        ValueError: T_0 or T_mult is not a whole number from 1 on.
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

    def step(self) -> None:
        """Sets the rates of the next epoch."""
        self.last_epoch += 1
        self.T_cur += 1
        if self.T_cur >= self.T_i:
            self.T_cur, self.T_i = 0, self.T_i * self.T_mult
        self._update(self.get_lr)

    def restart(self) -> None:
        self.last_epoch, self.T_cur, self.T_i = 0, 0, self.T_0
        self._update(self.get_lr)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.optim.sgd import SGD

    w = tensor([1.0], requires_grad=True)

    def rates(schedule, epochs):
        seen = []
        for _ in range(epochs):
            seen.append(round(schedule.get_last_lr()[0], 3))
            schedule.optimizer.step()
            schedule.step()
        return seen

    schedule = CosineAnnealingWarmRestarts(SGD([w], lr=1.0), T_0=2, T_mult=2)
    print(rates(schedule, 8))  # -> [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0, 0.962]
    print(schedule.T_cur, schedule.T_i)  # -> 2 8
    schedule = CosineAnnealingWarmRestarts(SGD([w], lr=1.0), T_0=4, eta_min=0.1)
    print(rates(schedule, 6))  # -> [1.0, 0.868, 0.55, 0.232, 1.0, 0.868]
    schedule.restart()
    print(schedule.T_cur, schedule.get_last_lr())  # -> 0 [1.0]
    try:
        CosineAnnealingWarmRestarts(SGD([w], lr=1.0), 0)
    except ValueError as error:
        print(error)  # -> Expected positive integer T_0, but got 0
