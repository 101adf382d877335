"""Step schedule16: OneCycleLR: one rise and one fall

A warm-up avoids harm. OneCycleLR goes further: it makes one hill of the whole training, up to a
rate far higher than the training could bear for long. In a large step, narrow valleys are jumped
over; when the rate falls, the run settles in a wide one. In the demo a constant rate of 0.2 ends
with nan, and the hill with this top ends lower than the best constant rate.

    max_lr             * *
                    *      *
    max_lr / 25   *          *
                               * *      a ten-thousandth of the beginning: almost nothing

It knows where the end is, since it is told how many steps there will be. The way is a list of
phases: where each ends, and between which two rates it leads, both as options of the group. Within
a phase it follows half a cosine.

The trap: total_steps counts calls of step, and they belong after each batch. With the number of
epochs there, the hill is over after some batches, and the next call is refused. So is one past the
end.

(This is Smith and Topin's schedule. The names of the options in the group are PyTorch's.)

New: OneCycleLR. Moved: base.py and warmup.py.
Try: call step once an epoch. How high is the rate in the end?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.optim.lr_scheduler.base import LRScheduler
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class OneCycleLR(LRScheduler):
    """Up to max_lr during the first pct_start of all steps, then down to almost nothing. Call
    `step` after each batch.

    Source: Smith and Topin, Super-Convergence, 2019.
    Raises:
        ValueError: for a step after the last one.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        last_epoch: int = -1,
    ):
        self.total_steps = total_steps
        rise = pct_start * total_steps - 1
        phases = [(rise, "initial_lr", "max_lr")]
        names = ("end_step", "start_lr", "end_lr")
        phases.append((total_steps - 1, "max_lr", "min_lr"))
        self._schedule_phases = [dict(zip(names, phase, strict=True)) for phase in phases]
        for group in optimizer.param_groups:
            if last_epoch == -1:
                first = max_lr / div_factor
                group.update(initial_lr=first, max_lr=max_lr, min_lr=first / final_div_factor)
        super().__init__(optimizer, last_epoch)

    def between(self, start: float, end: float, share: float) -> float:
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def get_lr(self) -> list[Any]:
        self.warn_outside_step()
        step, begin, rates = self.last_epoch, 0.0, []
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The total is {self.total_steps}")
        for phase in self._schedule_phases:
            if step <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            begin = phase["end_step"]
        share = (step - begin) / (phase["end_step"] - begin)
        for group in self.optimizer.param_groups:
            rates.append(self.between(group[phase["start_lr"]], group[phase["end_lr"]], share))
        return rates


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.activation import Tanh
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import mse_loss
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed
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

    print(rates(lambda o: OneCycleLR(o, max_lr=1.0, total_steps=8, pct_start=0.5), 8))
    # -> [0.04, 0.28, 0.76, 1.0, 0.8536, 0.5, 0.1465, 0.0]

    # Steps past the end, and each group has its own first rate, a 25th of the highest.
    optimizer = SGD([tensor([1.0], requires_grad=True)], lr=7.0)
    scheduler = OneCycleLR(optimizer, max_lr=1.0, total_steps=2)
    print(optimizer.param_groups[0]["initial_lr"])  # -> 0.04
    for _ in range(3):
        optimizer.step()
        try:
            scheduler.step()
        except ValueError as error:
            print(error)  # -> Tried to step 3 times. The total is 2

    # A network in 300 steps: with constant rates, and with the hill.
    x = linspace(-3, 3, 100).reshape(-1, 1)
    y = (x * 2).sin()

    def train(lr, hill):
        manual_seed(0)
        net = Sequential(Linear(1, 32), Tanh(), Linear(32, 32), Tanh(), Linear(32, 1))
        optimizer = SGD(net.parameters(), lr=lr, momentum=0.9)
        scheduler = OneCycleLR(optimizer, max_lr=lr, total_steps=300) if hill else None
        for _ in range(300):
            optimizer.zero_grad()
            loss = mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            if hill:
                scheduler.step()
        return loss.item()

    constant = [train(lr, hill=False) for lr in (0.03, 0.1, 0.2)]
    cycle = train(0.2, hill=True)
    print(*(f"{loss:.4f}" for loss in constant), f"and with a hill {cycle:.4f}")  # -> ...
    print("0.2 is too large:", not constant[2] < 1)  # -> 0.2 is too large: True
    print("better than 0.1 all the time:", cycle < constant[1] < constant[0])
    # -> better than 0.1 all the time: True
