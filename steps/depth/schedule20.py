"""Step schedule20: ReduceLROnPlateau: thresholds, and max or min

Near the end a loss falls forever: 0.50000, 0.49999, 0.49998. Each epoch is a new best one, and the
rate of step schedule19 never falls. An improvement should count only if it is worth the epoch:

    threshold_mode="rel"    better by a share of the best:  value < best * (1 - threshold)
    threshold_mode="abs"    better by a difference:         value < best - threshold

The share is the default, with 0.0001, since it fits a loss of any size. A difference is better for
an accuracy, where a hundredth is a hundredth.

And not every number is better when it is smaller. With mode="max", for an accuracy, all signs
change. is_better has them in one place: sign is -1 for "min", so that the limit is best * (1 + sign
* threshold) in both, and both sides of the comparison are multiplied by it.

The trap: a share of a negative number goes the wrong way. For a loss of -10 (a log-likelihood can
be one) the limit is -10 * 0.9999 = -9.999, so that a worse value counts as better. Use "abs" there.

(Names and defaults are PyTorch's.)

Changed: ReduceLROnPlateau. New: ReduceLROnPlateau.is_better.
Try: the falling loss of the demo with threshold=0.
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

    Better is lower, or higher with mode="max", by the share `threshold` of the best value, or by
    that difference with threshold_mode="abs".
    Raises:
        ValueError: for an invalid option.
    """

    wants_metrics = True

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
    ):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.optimizer, self.factor, self.patience = optimizer, factor, patience
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.best, self.last_epoch = math.inf if mode == "min" else -math.inf, 0
        self.num_bad_epochs = 0
        self._last_lr = values_of(optimizer, "lr")

    def is_better(self, value: float, best: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            limit = best * (1 + sign * self.threshold)
        else:
            limit = best + sign * self.threshold
        return sign * value > sign * limit

    def step(self, metrics: Any) -> None:
        """Takes the loss, or another metric, of the epoch that is over."""
        value = float(metrics)
        self.last_epoch += 1
        if self.is_better(value, self.best):
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
    from tinytorch.optim.sgd import SGD

    def rates(values, **options):
        """The rates after each value."""
        optimizer = SGD([tensor([1.0], requires_grad=True)], lr=1.0)
        scheduler, seen = ReduceLROnPlateau(optimizer, patience=1, **options), []
        for value in values:
            scheduler.step(value)
            seen.append(round(optimizer.param_groups[0]["lr"], 4))
        return seen

    # A loss that falls by a hundred-thousandth in each epoch.
    falling = [0.5 - 1e-5 * epoch for epoch in range(6)]
    print(rates(falling, threshold=0))  # -> [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    print(rates(falling))  # -> [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]

    # An accuracy: larger is better, by at least a hundredth.
    accuracy = [0.5, 0.6, 0.605, 0.609, 0.7]
    print(rates(accuracy, mode="max", threshold=0.01, threshold_mode="abs"))
    # -> [1.0, 1.0, 1.0, 0.1, 0.1]
    print(rates(accuracy))  # -> [1.0, 1.0, 0.1, 0.1, 0.01]
    print(rates([-10.0, -9.9995, -9.9995], threshold=1e-4))  # -> [1.0, 1.0, 1.0]
    for options in ({"mode": "best"}, {"threshold_mode": "some"}):
        try:
            rates([], **options)
        except ValueError as error:
            print(error)
    # -> mode best is unknown!
    # -> threshold mode some is unknown!
