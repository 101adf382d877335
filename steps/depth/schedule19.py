"""Step schedule19: ReduceLROnPlateau: a rate that follows the loss

All schedules so far are fixed before the training begins. If the loss stands still after epoch
20, MultiStepLR waits until epoch 50 nevertheless; if it is still falling fast there, it is slowed
down.

ReduceLROnPlateau decides during the training. Once an epoch it gets the loss. If the loss has not
been below the best one for more than `patience` epochs, the rate is multiplied by `factor`:

    loss    3  2  2.1  2.1  1.9  2  2  2       patience=2: two bad epochs are forgiven
    bad     0  0  1    2    0    1  2  3  ->  the rate times 0.1, and bad is 0 again

patience is there because the loss is noisy. Without it, every second epoch would be a plateau.

So its step takes a number, or a tensor, and it has no get_lr: it overrides step, and uses only
the part of LRScheduler that writes the rates. It cannot be part of a SequentialLR (step
schedule13).

The trap: which loss? The one of the training goes on falling while that of the validation set
already rises, and hides what should be seen. Give it the validation loss.

(PyTorch's class has the same name.)

New: ReduceLROnPlateau.
Try: patience=0 in the race. How small does the rate become?
"""

import importlib
import math
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.optim.lr_scheduler.base import LRScheduler, values_of
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def one_each(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """The value for each group, or the values of a list.

    Raises:
        TypeError: for what is not an optimizer.
        ValueError: for a list of another length.
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
    count = len(optimizer.param_groups)
    values = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(values) != count:
        raise ValueError(f"{name} must have one value for each of {count} groups: {values}")
    return values


class OneCycleLR(LRScheduler):
    """Up to max_lr during the first pct_start of all steps, then down to almost nothing; momentum
    (or beta1) the other way round. Call `step` after each batch.

    Source: Smith and Topin, Super-Convergence, 2019.
    Raises:
        ValueError: for options that do not fit together.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ):
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        total_steps = epochs * steps_per_epoch if total_steps is None else total_steps
        if not isinstance(total_steps, int) or total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', got {anneal_strategy}")
        self.total_steps, self._anneal_func_type = total_steps, anneal_strategy
        rise, up, down = pct_start * total_steps - 1, "base_momentum", "max_momentum"
        phases = [(rise, "initial_lr", "max_lr", down, up)]
        if three_phase:
            phases.append((2 * rise, "max_lr", "initial_lr", up, down))
        last = (
            ("initial_lr", "min_lr", down, down) if three_phase else ("max_lr", "min_lr", up, down)
        )
        names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
        phases.append((total_steps - 1, *last))
        self._schedule_phases = [dict(zip(names, phase, strict=True)) for phase in phases]
        tops = one_each("max_lr", optimizer, max_lr)
        lows = one_each("base_momentum", optimizer, base_momentum)
        highs = one_each("max_momentum", optimizer, max_momentum)
        self.cycle_momentum, self.use_beta1 = cycle_momentum, "betas" in optimizer.defaults
        if cycle_momentum and not self.use_beta1 and "momentum" not in optimizer.defaults:
            raise ValueError("cycle_momentum needs an optimizer with momentum or beta1")
        for group, top, low, high in zip(optimizer.param_groups, tops, lows, highs, strict=True):
            if last_epoch == -1:
                first = top / div_factor
                group.update(initial_lr=first, max_lr=top, min_lr=first / final_div_factor)
                group.update({up: low, down: high} if cycle_momentum else {})
        super().__init__(optimizer, last_epoch)

    def between(self, start: float, end: float, share: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
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
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                value = self.between(*ends, share)
                betas = {"betas": (value, *group.get("betas", ())[1:])}
                group.update(betas if self.use_beta1 else {"momentum": value})
        return rates


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when step(metrics) has seen no better value for more than `patience` epochs.

    Raises:
        ValueError: for a factor that does not lower the rate.
    """

    wants_metrics = True

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 0.1,
        patience: int = 10,
    ):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        self.optimizer, self.factor, self.patience = optimizer, factor, patience
        self.best, self.last_epoch, self.num_bad_epochs = math.inf, 0, 0
        self._last_lr = values_of(optimizer, "lr")

    def step(self, metrics: Any) -> None:
        """Takes the loss, or another metric, of the epoch that is over."""
        value = float(metrics)
        self.last_epoch += 1
        if value < self.best:
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        rates = values_of(self.optimizer, "lr")
        if self.num_bad_epochs > self.patience:
            rates = [float(rate) * self.factor for rate in rates]
            self.num_bad_epochs = 0
        self.set_rates(rates)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn
    from tinytorch.optim.lr_scheduler.warmup import SequentialLR
    from tinytorch.optim.sgd import SGD

    optimizer = SGD([tensor([1.0], requires_grad=True)], lr=1.0)
    scheduler = ReduceLROnPlateau(optimizer, patience=2)
    seen = []
    for loss in (3.0, 2.0, 2.1, 2.1, 1.9, 2.0, 2.0, 2.0, 1.0):
        scheduler.step(loss)
        seen.append((scheduler.num_bad_epochs, round(optimizer.param_groups[0]["lr"], 4)))
    print(seen[:5])  # -> [(0, 1.0), (0, 1.0), (1, 1.0), (2, 1.0), (0, 1.0)]
    print(seen[5:])  # -> [(1, 1.0), (2, 1.0), (0, 0.1), (0, 0.1)]
    try:
        ReduceLROnPlateau(optimizer, factor=2.0)
    except ValueError as error:
        print(error)  # -> Factor should be < 1.0.
    try:
        SequentialLR(optimizer, [scheduler], [])
    except ValueError as error:
        print(error)  # -> SequentialLR does not support ReduceLROnPlateau: 0

    # The noisy race of step schedule01, with a watched loss: when it stands still, the rate falls.
    def race(**options):
        manual_seed(0)
        x = (10 * randn(1000)).requires_grad_()
        optimizer = SGD([x], lr=0.4)
        scheduler = ReduceLROnPlateau(optimizer, factor=0.5, **options)
        for _ in range(200):
            x.grad = 2 * x.detach() + randn(1000)
            optimizer.step()
            scheduler.step(x.detach().square().mean().sqrt())
        return optimizer.param_groups[0]["lr"], scheduler.best

    rate, best = race(patience=5)
    print(f"from 0.4 to {rate:.2g}, distance {best:.2f}")  # -> ...
    print("closer than 0.1:", best < 0.1)  # -> closer than 0.1: True
