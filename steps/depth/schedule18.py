"""Step schedule18: Catalogue: the options of OneCycleLR

What PyTorch's OneCycleLR has besides. Skim it: each option is a line or two, and the rest are
refusals of options that do not fit together.

    epochs, steps_per_epoch    their product, in place of total_steps
    anneal_strategy="linear"   straight lines in place of half cosines
    three_phase=True           up, down to the first rate in as many steps, then to almost nothing
    max_lr=[0.1, 0.01]         a list has one value for each group; so with the two momenta

`one_each` makes a list of what may be one value or a list, and checks its length. ReduceLROnPlateau
(step schedule19) needs it, too.

Changed: OneCycleLR. New: one_each.
Try: pct_start=0.9 with three_phase=True. Which rate is the last one?
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


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
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

    print(rates(lambda o: OneCycleLR(o, 1.0, epochs=2, steps_per_epoch=4, pct_start=0.5), 8))
    # -> [0.04, 0.28, 0.76, 1.0, 0.8536, 0.5, 0.1465, 0.0]
    print(rates(lambda o: OneCycleLR(o, 1.0, 8, pct_start=0.5, anneal_strategy="linear"), 8))
    # -> [0.04, 0.36, 0.68, 1.0, 0.75, 0.5, 0.25, 0.0]
    print(rates(lambda o: OneCycleLR(o, 1.0, 8, pct_start=0.375, three_phase=True), 8))
    # -> [0.04, 0.52, 1.0, 0.52, 0.04, 0.03, 0.01, 0.0]

    p, q = tensor([1.0], requires_grad=True), tensor([1.0], requires_grad=True)
    two = SGD([{"params": [p]}, {"params": [q]}], momentum=0.9)
    scheduler = OneCycleLR(two, max_lr=[1.0, 0.5], total_steps=8, base_momentum=[0.8, 0.9])
    print([(group["initial_lr"], group["base_momentum"]) for group in two.param_groups])
    # -> [(0.04, 0.8), (0.02, 0.9)]
    wrong = (
        {},
        {"total_steps": 0},
        {"total_steps": 8, "pct_start": 2.0},
        {"total_steps": 8, "anneal_strategy": "stairs"},
        {"total_steps": 8, "max_lr": [1.0]},
    )
    for options in wrong:
        try:
            OneCycleLR(two, **{"max_lr": 1.0, **options})
        except ValueError as error:
            print(error)
    # -> You must define either total_steps OR (epochs AND steps_per_epoch)
    # -> Expected positive integer total_steps, but got 0
    # -> Expected float between 0 and 1 pct_start, but got 2.0
    # -> anneal_strategy must be 'cos' or 'linear', got stairs
    # -> max_lr must have one value for each of 2 groups: [1.0]
    try:
        one_each("max_lr", [p], 1.0)
    except TypeError as error:
        print(error)  # -> list is not an Optimizer
