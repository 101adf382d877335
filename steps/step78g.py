"""Step 78g: The rate changes on the way

With a large learning rate a training is fast but never arrives: near the minimum it jumps from side
to side. With a small one it arrives, but takes forever. The noise of batches makes it worse: at a
constant rate SGD stays in a cloud around the minimum, and the larger the rate, the larger the
cloud. So begin large and end small:

    StepLR         times gamma, every so many epochs
    MultiStepLR    times gamma, at each epoch of a list
    ExponentialLR  times gamma, in every epoch
    LambdaLR       the first rate times any function of the epoch

A scheduler is small, since an optimizer reads group["lr"] anew at each step: all a scheduler has to
do is write there. Most of them give the factor from the last epoch's rate to this one's (`growth`),
and so go on from the present rate. Several of them may work on one optimizer: their factors
multiply. The first rate stays in the group, as "initial_lr"; LambdaLR starts from it.

The trap is the order. A scheduler sets the rate of epoch 0 when it is made, so call its `step`
after optimizer.step(). Called before, the first rate is never used, and a warning says so. (A hook
of step 76n tells whether the optimizer has made a step.) And know your unit: whether you call
`step` after each batch or after each epoch is up to you, and nothing tells you if you picked wrong.

There is one more thing to save: a training that continues needs the scheduler's state_dict, beside
those of the model and the optimizer. A function in LambdaLR cannot be saved; an object with
__call__ can. (torch.optim.lr_scheduler has the same classes, except GrowthLR: there each class
repeats those lines.)

New: LRScheduler, GrowthLR and four schedules. Moved: lbfgs.py.
Try: gamma=0.5 in the race at the end. The rate is used up before x has arrived.
"""

import importlib
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import fill_
from tinytorch.optim.optimizer import Optimizer

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


EARLY = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite "
    "order: else the first value of the schedule is skipped."
)


def note_step(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
    """A hook: the optimizer has made a step."""
    optimizer._opt_called = True


def values_of(optimizer: Optimizer, name: str) -> list[Any]:
    """This option of all groups. Of one that is a tensor a copy: it will be written."""
    values = [group[name] for group in optimizer.param_groups]
    return [value.clone() if isinstance(value, Tensor) else value for value in values]


class LRScheduler:
    """Base of the schedulers. Call `step` once an epoch (or a batch), after optimizer.step().

    A subclass writes `get_lr`: the rates of the groups in epoch `last_epoch`. It finds the first
    ones in `base_lrs`; each group keeps its own as "initial_lr".
    Raises:
        TypeError: for what is not an optimizer.
        KeyError: for a last_epoch other than -1, where a group has no initial_lr yet.
    """

    _is_initial = _get_lr_called_within_step = wants_metrics = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for number, rate in enumerate(values_of(optimizer, "lr")):
            if last_epoch == -1:
                optimizer.param_groups[number].setdefault("initial_lr", rate)
            elif "initial_lr" not in optimizer.param_groups[number]:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{number}]")
        self.base_lrs = values_of(optimizer, "initial_lr")
        if not hasattr(optimizer, "_opt_called"):
            optimizer._opt_called = False
            optimizer.register_step_post_hook(note_step)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count, self._is_initial = 0, True
        self.step()
        self._is_initial = False

    def _undo(self) -> None:
        self.last_epoch -= 1

    def get_lr(self) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no get_lr")

    def get_last_lr(self) -> list[Any]:
        """The rates that were set last, one for each group."""
        return self._last_lr

    def step(self) -> None:
        """Sets the rates of the next epoch."""
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(EARLY, UserWarning, stacklevel=2)
        self._step_count += 1
        self.last_epoch += 1
        self._update(self.get_lr)

    def restart(self) -> None:
        """Sets the rates of epoch 0, whatever they are now: SequentialLR begins a scheduler so."""
        self.last_epoch = 0
        self._update(self.first_rates)

    def first_rates(self) -> list[Any]:
        return self.get_lr()

    def _update(self, rates: Callable[[], list[Any]]) -> None:
        self._get_lr_called_within_step = True
        try:
            self.set_rates(rates())
        finally:
            self._get_lr_called_within_step = False

    def set_rates(self, rates: list[Any]) -> None:
        """Writes the rates into the groups; into the tensor itself where a rate is one."""
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                fill_(group["lr"], float(rate))
            else:
                group["lr"] = rate
        self._last_lr = values_of(self.optimizer, "lr")

    def warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            says = "To get the last learning rate computed by the scheduler, use `get_last_lr()`."
            warnings.warn(says, UserWarning, stacklevel=3)

    def state_dict(self) -> dict[str, Any]:
        """All that the scheduler knows, except the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)


_LRScheduler = LRScheduler  # its name in older programs


class GrowthLR(LRScheduler):
    """A schedule that multiplies the rates by a factor on the way from epoch - 1 to `epoch`.

    A subclass writes `growth`, the factor. The schedule goes on from the present rate, so several
    may work on one optimizer: their factors multiply.
    """

    def growth(self, epoch: int) -> float:
        raise NotImplementedError(f"{type(self).__name__} has no growth")

    def get_lr(self) -> list[Any]:
        self.warn_outside_step()
        growth, rates = self.growth(self.last_epoch), values_of(self.optimizer, "lr")
        return rates if growth == 1 else [rate * growth for rate in rates]

    def first_rates(self) -> list[Any]:
        return [base * self.growth(0) for base in self.base_lrs]


class StepLR(GrowthLR):
    """Times gamma, every step_size epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def growth(self, epoch: int) -> float:
        return self.gamma if epoch and epoch % self.step_size == 0 else 1.0


class MultiStepLR(GrowthLR):
    """Times gamma, at the epochs `milestones`."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def growth(self, epoch: int) -> float:
        return self.gamma ** self.milestones[epoch]


class ExponentialLR(GrowthLR):
    """Times gamma, every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def growth(self, epoch: int) -> float:
        return self.gamma if epoch and not self._is_initial else 1.0


class LambdaLR(LRScheduler):
    """initial_lr * lr_lambda(epoch); one function, or a list with one for each group.

    Objects with `__call__` keep their state in the state_dict, functions are left out of it.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1):
        count = len(optimizer.param_groups)
        listed = isinstance(lr_lambda, (list, tuple))
        self.lr_lambdas = list(lr_lambda) if listed else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self.warn_outside_step()
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * function(self.last_epoch) for base, function in pairs]

    def state_dict(self) -> dict[str, Any]:
        states = [
            None if isinstance(each, types.FunctionType) else dict(each.__dict__)
            for each in self.lr_lambdas
        ]
        return {**super().state_dict(), "lr_lambdas": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        functions = self.lr_lambdas
        for function, state in zip(functions, state_dict["lr_lambdas"], strict=True):
            if state is not None:
                function.__dict__.update(state)
        super().load_state_dict({**state_dict, "lr_lambdas": functions})


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

    print(rates(lambda o: StepLR(o, 2, gamma=0.5), 6))  # -> [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    print(rates(lambda o: MultiStepLR(o, [1, 4], gamma=0.5), 6))
    # -> [1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    print(rates(lambda o: ExponentialLR(o, gamma=0.5), 4))  # -> [1.0, 0.5, 0.25, 0.125]
    print(rates(lambda o: LambdaLR(o, lambda epoch: 1 / (1 + epoch)), 4))
    # -> [1.0, 0.5, 0.3333, 0.25]

    # Two schedulers on one optimizer: 1/2 in each epoch, 1/10 in every second one.
    optimizer = SGD([tensor([1.0], requires_grad=True)], lr=1.0)
    both = [ExponentialLR(optimizer, gamma=0.5), StepLR(optimizer, 2, gamma=0.1)]
    for _ in range(2):
        optimizer.step()
        for scheduler in both:
            scheduler.step()
    group = optimizer.param_groups[0]
    print(f"at first {group['initial_lr']}, now {group['lr']:.4f}")  # -> at first 1.0, now 0.0250

    # The order, and what is saved.
    scheduler = StepLR(SGD([tensor([1.0], requires_grad=True)], lr=1.0), 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scheduler.step()
    print(str(caught[0].message).split(". ")[0])
    # -> Detected call of `lr_scheduler.step()` before `optimizer.step()`
    print(scheduler.state_dict()["last_epoch"], scheduler.state_dict()["_last_lr"])  # -> 1 [0.1]

    # A race on noisy gradients of x^2 in 1000 dimensions: how far from the minimum does it end?
    def distance(make, lr):
        manual_seed(0)
        x = (10 * randn(1000)).requires_grad_()
        optimizer = SGD([x], lr=lr)
        scheduler = make(optimizer)
        for _ in range(200):
            x.grad = 2 * x.detach() + randn(1000)
            optimizer.step()
            scheduler.step()
        return x.detach().square().mean().sqrt().item()

    large = distance(lambda o: LambdaLR(o, lambda epoch: 1.0), 0.4)
    small = distance(lambda o: LambdaLR(o, lambda epoch: 1.0), 0.004)
    falling = distance(lambda o: ExponentialLR(o, gamma=0.975), 0.4)
    print(f"large {large:.1f}, small {small:.0f}, from large to small {falling:.2f}")
    # -> large 0.4, small 2, from large to small 0.05
