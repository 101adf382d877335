"""Step schedule01: Schedules in the package's dress

Step 46b built LambdaLR: the rate of a step is the first rate times a function of its number. Here
LRScheduler, the base class, counts the epochs and writes group["lr"] of all groups; a subclass
writes get_lr, the rates of all groups in epoch `last_epoch`. The constructor makes the first step
itself, so that the rate of epoch 0 is set before the training begins.

The trap is the unit. Whether you call `step` after each batch or after each epoch is up to you, and
nothing tells you if the function was meant for the other. (torch.optim.lr_scheduler has the same
classes, and the same trap.)

Changed: LambdaLR. New: LRScheduler. Moved: lbfgs.py.
Try: 0.5**epoch in the race. The rate is used up before x has arrived.
"""

import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class LRScheduler:
    """Base of the schedulers. Call `step` once an epoch (or a batch), after optimizer.step().

    A subclass writes `get_lr`: the rates of the groups in epoch `last_epoch`. It finds the first
    ones in `base_lrs`.
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer, self.last_epoch = optimizer, -1
        self.base_lrs = [group["lr"] for group in optimizer.param_groups]
        self.step()

    def get_lr(self) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def get_last_lr(self) -> list[Any]:
        """The rates that were set last, one for each group."""
        return self._last_lr

    def step(self) -> None:
        """Sets the rates of the next epoch."""
        self.last_epoch += 1
        self.set_rates(self.get_lr())

    def set_rates(self, rates: list[Any]) -> None:
        """Writes the rates into the groups."""
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = rates


class LambdaLR(LRScheduler):
    """The first rate times lr_lambda(epoch)."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]):
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        return [base * self.lr_lambda(self.last_epoch) for base in self.base_lrs]


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn
    from tinytorch.optim.sgd import SGD

    def rates(make, epochs):
        """The rates that a scheduler gives, from 1.0 at the start."""
        optimizer = SGD([tensor([1.0], requires_grad=True)], lr=1.0)
        scheduler, seen = make(optimizer), []
        for _ in range(epochs):
            seen.append(round(scheduler.get_last_lr()[0], 4))
            optimizer.step()  # first the optimizer
            scheduler.step()  # then the scheduler
        return seen

    print(rates(lambda o: LambdaLR(o, lambda epoch: 0.5**epoch), 4))  # -> [1.0, 0.5, 0.25, 0.125]
    print(rates(lambda o: LambdaLR(o, lambda epoch: 1 / (1 + epoch)), 4))
    # -> [1.0, 0.5, 0.3333, 0.25]
    print(rates(lambda o: LambdaLR(o, lambda epoch: 0.1 ** (epoch // 2)), 5))
    # -> [1.0, 1.0, 0.1, 0.1, 0.01]

    # Each group has its own first rate.
    p, q = tensor([1.0], requires_grad=True), tensor([1.0], requires_grad=True)
    optimizer = SGD([{"params": [p], "lr": 4.0}, {"params": [q]}], lr=1.0)
    scheduler = LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    scheduler.step()
    print(scheduler.get_last_lr(), [group["lr"] for group in optimizer.param_groups])
    # -> [2.0, 0.5] [2.0, 0.5]
    try:
        LRScheduler(optimizer)
    except NotImplementedError as error:
        print(error)  # -> LRScheduler has no get_lr

    # A race on noisy gradients of x^2 in 1000 dimensions: how far from the minimum does it end?
    def distance(factor, lr):
        manual_seed(0)
        x = (10 * randn(1000)).requires_grad_()
        optimizer = SGD([x], lr=lr)
        scheduler = LambdaLR(optimizer, factor)
        for _ in range(200):
            x.grad = 2 * x.detach() + randn(1000)
            optimizer.step()
            scheduler.step()
        return x.detach().square().mean().sqrt().item()

    large = distance(lambda epoch: 1.0, 0.4)
    small = distance(lambda epoch: 1.0, 0.004)
    falling = distance(lambda epoch: 0.975**epoch, 0.4)
    print(f"large {large:.1f}, small {small:.0f}, from large to small {falling:.2f}")
    # -> large 0.4, small 2, from large to small 0.05
