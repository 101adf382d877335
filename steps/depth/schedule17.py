"""Step schedule17: OneCycleLR: momentum

On the top of the hill of step schedule16, the steps are large, and momentum multiplies them: with
0.9, a step in the same direction is ten times as long (step optimizer10). A ball on a steep slope
should roll less. So while the rate rises from its lowest to max_lr, momentum falls from 0.95 to
0.85, and then it rises again:

     rate       0.04  0.28  0.76  1     0.85  0.5   0.15  0
     momentum   0.95  0.93  0.88  0.85  0.87  0.9   0.94  0.95

Each phase gets two more names, of the momentum where it begins and where it ends. The highest and
the lowest one are options of the group too, as the rates are.

SGD's option is called momentum. Adam has none: what momentum does there is beta1, the first of the
two betas. So an optimizer that has betas gets a new tuple, whose first number is the momentum.

The trap: an optimizer whose option momentum is not there at all, such as Adagrad, would get it as
an option that nothing reads. It is refused. (SGD with momentum=0 has the option, and would suddenly
have a momentum. PyTorch does the same; say cycle_momentum=False if you do not want it.)

Changed: OneCycleLR.
Try: cycle_momentum=False. What becomes of beta1?
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
    """Up to max_lr during the first pct_start of all steps, then down to almost nothing; momentum
    (or beta1) the other way round. Call `step` after each batch.

    Source: Smith and Topin, Super-Convergence, 2019.
    Raises:
        ValueError: for an optimizer without momentum, and for a step after the last one.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        last_epoch: int = -1,
    ):
        self.total_steps = total_steps
        rise, up, down = pct_start * total_steps - 1, "base_momentum", "max_momentum"
        phases = [(rise, "initial_lr", "max_lr", down, up)]
        names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
        phases.append((total_steps - 1, "max_lr", "min_lr", up, down))
        self._schedule_phases = [dict(zip(names, phase, strict=True)) for phase in phases]
        self.cycle_momentum, self.use_beta1 = cycle_momentum, "betas" in optimizer.defaults
        if cycle_momentum and not self.use_beta1 and "momentum" not in optimizer.defaults:
            raise ValueError("cycle_momentum needs an optimizer with momentum or beta1")
        for group in optimizer.param_groups:
            if last_epoch == -1:
                first = max_lr / div_factor
                group.update(initial_lr=first, max_lr=max_lr, min_lr=first / final_div_factor)
                momenta = {up: base_momentum, down: max_momentum}
                group.update(momenta if cycle_momentum else {})
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
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                value = self.between(*ends, share)
                betas = {"betas": (value, *group.get("betas", ())[1:])}
                group.update(betas if self.use_beta1 else {"momentum": value})
        return rates


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.optim.adam import Adam
    from tinytorch.optim.rmsprop import Adagrad
    from tinytorch.optim.sgd import SGD

    def show(optimizer, momentum_of, **options):
        scheduler = OneCycleLR(optimizer, max_lr=1.0, total_steps=8, pct_start=0.5, **options)
        group = optimizer.param_groups[0]
        for _ in range(8):
            print(f"{group['lr']:.2f}/{momentum_of(group):.2f}", end=" ")
            optimizer.step()
            scheduler.step()
        print()

    p = tensor([1.0], requires_grad=True)
    show(Adam([p]), lambda group: group["betas"][0])
    # -> 0.04/0.95 0.28/0.92 0.76/0.88 1.00/0.85 0.85/0.86 0.50/0.90 0.15/0.94 0.00/0.95
    show(SGD([p], momentum=0.5), lambda group: group["momentum"], base_momentum=0.8)
    # -> 0.04/0.95 0.28/0.91 0.76/0.84 1.00/0.80 0.85/0.82 0.50/0.88 0.15/0.93 0.00/0.95
    show(SGD([p], momentum=0.5), lambda group: group["momentum"], cycle_momentum=False)
    # -> 0.04/0.50 0.28/0.50 0.76/0.50 1.00/0.50 0.85/0.50 0.50/0.50 0.15/0.50 0.00/0.50
    optimizer = Adam([p], betas=(0.9, 0.99))
    OneCycleLR(optimizer, max_lr=1.0, total_steps=8)
    print(optimizer.param_groups[0]["betas"])  # -> (0.95, 0.99)
    try:
        OneCycleLR(Adagrad([p]), max_lr=1.0, total_steps=8)
    except ValueError as error:
        print(error)  # -> cycle_momentum needs an optimizer with momentum or beta1
