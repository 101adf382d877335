"""Step 88: The rate changes on the way

A large learning rate is fast and never arrives: near the minimum it jumps from side to side. A
small one arrives and takes forever. Noise from batches makes it worse: with a constant rate SGD
stays in a cloud around the minimum whose size is in proportion to the rate. So begin large and end
small:

    StepLR, MultiStepLR, ExponentialLR    times gamma, now and then, or always
    CosineAnnealingLR                     half a wave of the cosine: long large, long small
    LinearLR                              a warmup: the first gradients are the least to be trusted
    OneCycleLR                            up and far down again, momentum the other way round
    ReduceLROnPlateau                     when the loss has not become better for some epochs
    LambdaLR                              any function of the epoch
    SequentialLR                          one after the other

A scheduler is small, since an optimizer reads group["lr"] anew at each step: it only has to write
there. Most of them say by which factor the rate changes from the epoch before to this one, and so
go on from what the rate is. With that, several may work on one optimizer: their factors multiply.

    cosine:   lr(e) = eta_min + (lr0 - eta_min) (1 + cos(pi e / T)) / 2

The trap is the order. A scheduler sets the rate of epoch 0 when it is made, so `step` belongs
behind optimizer.step(): called before it, the first rate is never used, and a warning says so. And
know your unit: whether `step` is called after each batch (OneCycleLR) or after each epoch is up to
you, and nobody will notice that T_max was meant in the other one.

Another thing to save: a training that continues needs the scheduler's state_dict beside those of
the model and of the optimizer. A function in LambdaLR cannot be saved, an object with __call__
can. (torch.optim.lr_scheduler has the same classes.)

New: LRScheduler and its nine subclasses. Moved: adam.py and rmsprop.py.
Try: --draw shows all of them. Or T_max=20 in the race at the end.
"""

import argparse
import bisect
import importlib
import math
import types
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tinytorch.core.tensor import tensor
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.adam import Adam
from tinytorch.optim.optimizer import Optimizer
from tinytorch.optim.sgd import SGD

# Importing the modules of the operations brings their methods to Tensor.
operations = "arithmetic comparison elementwise indexing reduction sampling shape sorting"
for name in operations.split():
    importlib.import_module(f"tinytorch.ops.{name}")


EARLY = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite "
    "order: else the first value of the schedule is skipped."
)


class LRScheduler:
    """Base of the schedulers. Call `step` once an epoch (or a batch), after optimizer.step().

    A subclass writes `factor`: by what the rate is multiplied on the way from epoch - 1 to epoch;
    or `get_lr`, the new rates themselves. The group keeps its first rate as "initial_lr".
    TypeError for what is no optimizer; KeyError for a last_epoch that has no initial_lr yet.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{number}]")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch, self.optimizer_has_stepped = last_epoch, False
        optimizer.register_step_post_hook(self.note_step)
        self.advance()

    def note_step(self, *_: Any) -> None:
        self.optimizer_has_stepped = True

    def factor(self, epoch: int) -> float:
        raise NotImplementedError(f"{type(self).__name__} has no factor")

    def get_lr(self) -> list[float]:
        """The rates of the groups in epoch `last_epoch`, from what they are now."""
        factor = self.factor(self.last_epoch)
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        """The rates that were set last, one for each group."""
        return self._last_lr

    def advance(self) -> None:
        self.last_epoch += 1
        self.set_rates(self.get_lr())

    def set_rates(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def restart(self) -> None:
        """Epoch 0 again, from the first rates."""
        self.set_rates(self.base_lrs)
        self.last_epoch = -1
        self.advance()

    def step(self) -> None:
        """Sets the rates of the next epoch."""
        if self.last_epoch == 0 and not self.optimizer_has_stepped:
            warnings.warn(EARLY, UserWarning, stacklevel=2)
        self.advance()

    def state_dict(self) -> dict[str, Any]:
        """All that the scheduler knows, except the optimizer. Functions are left out as well."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if name != "optimizer" and not isinstance(value, types.FunctionType)
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)


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

    def get_lr(self) -> list[float]:
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


class StepLR(LRScheduler):
    """Times gamma, every step_size epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        return self.gamma if epoch and epoch % self.step_size == 0 else 1.0


class MultiStepLR(LRScheduler):
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

    def factor(self, epoch: int) -> float:
        return self.gamma ** self.milestones[epoch]


class ExponentialLR(LRScheduler):
    """Times gamma, every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        return self.gamma if epoch else 1.0


class LinearLR(LRScheduler):
    """From start_factor times the rate to end_factor times, in equal steps: a warmup.

    ValueError for a start_factor outside (0, 1], an end_factor outside [0, 1].
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ):
        if not 0 < start_factor <= 1:
            raise ValueError("Starting multiplicative factor expected to be between 0 and 1.")
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        rise = self.end_factor - self.start_factor
        if epoch == 0:
            return self.start_factor
        if epoch > self.total_iters:
            return 1.0
        return 1 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise)


class CosineAnnealingLR(LRScheduler):
    """eta_min + (lr - eta_min) * (1 + cos(pi * epoch / T_max)) / 2: slow, fast, slow.

    Source: Loshchilov and Hutter, SGDR, 2017 (without the restarts).
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        rates = [group["lr"] for group in self.optimizer.param_groups]
        if self.last_epoch == 0:
            return rates
        before, now = (
            1 + math.cos(math.pi * epoch / self.T_max)
            for epoch in (self.last_epoch - 1, self.last_epoch)
        )
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # from the lowest point
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            pairs = zip(rates, self.base_lrs, strict=True)
            return [rate + (base - self.eta_min) * rise for rate, base in pairs]
        return [now / before * (rate - self.eta_min) + self.eta_min for rate in rates]


class SequentialLR(LRScheduler):
    """One scheduler after the other: schedulers[i] begins at epoch milestones[i - 1].

    ValueError where the numbers do not fit, or a scheduler is for another optimizer.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ):
        if len(schedulers) < 1 or len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got {len(schedulers)} and {len(milestones)}"
            )
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ValueError("Sequential Schedulers expects schedulers of the same optimizer")
        self.optimizer, self._schedulers, self._milestones = optimizer, schedulers, milestones
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        schedulers[0].restart()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self) -> None:
        self.last_epoch += 1
        number = bisect.bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number and self._milestones[number - 1] == self.last_epoch:
            scheduler.restart()
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        inner = [scheduler.state_dict() for scheduler in self._schedulers]
        return {**super().state_dict(), "_schedulers": inner}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)
        super().load_state_dict({**state_dict, "_schedulers": self._schedulers})


class OneCycleLR(LRScheduler):
    """Up to max_lr during the first pct_start of all steps, then down to almost nothing; momentum
    (or beta1) the other way round. Call `step` after each batch.

    Source: Smith and Topin, Super-Convergence, 2019. ValueError for options that do not fit.
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
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR both of the others")
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', got {anneal_strategy}")
        if cycle_momentum and not {"momentum", "betas"} & set(optimizer.defaults):
            raise ValueError("cycle_momentum needs an optimizer with momentum or betas")
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        self.cycle_momentum = cycle_momentum
        rates, momenta = ("initial_lr", "max_lr"), ("max_momentum", "base_momentum")
        rise = pct_start * total_steps - 1
        phases = [(rise, rates, momenta)]
        if three_phase:
            phases.append((2 * rise, rates[::-1], momenta[::-1]))
            phases.append((total_steps - 1, ("initial_lr", "min_lr"), ("max_momentum",) * 2))
        else:
            phases.append((total_steps - 1, ("max_lr", "min_lr"), momenta[::-1]))
        self.phases = phases  # [(last step, (rate from, to), (momentum from, to)), ...]
        groups = optimizer.param_groups
        listed = isinstance(max_lr, (list, tuple))
        if listed and len(max_lr) != len(groups):
            raise ValueError(f"expected {len(groups)} values for max_lr, got {len(max_lr)}")
        if last_epoch == -1:
            for group, top in zip(
                groups, max_lr if listed else [max_lr] * len(groups), strict=True
            ):
                first = top / div_factor
                group.update(lr=first, initial_lr=first, max_lr=top)
                group["min_lr"] = first / final_div_factor
                if cycle_momentum:
                    group.update(max_momentum=max_momentum, base_momentum=base_momentum)
        super().__init__(optimizer, last_epoch)

    def between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * share
        return end + (start - end) / 2 * (1 + math.cos(math.pi * share))

    def get_lr(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The total is {self.total_steps}")
        begin, number = 0.0, 0
        while step > self.phases[number][0] and number < len(self.phases) - 1:
            begin, number = self.phases[number][0], number + 1
        end, rate, momentum = self.phases[number]
        share, rates = (step - begin) / (end - begin), []
        for group in self.optimizer.param_groups:
            rates.append(self.between(group[rate[0]], group[rate[1]], share))
            if self.cycle_momentum:
                value = self.between(group[momentum[0]], group[momentum[1]], share)
                if "betas" in group:
                    group["betas"] = (value, *group["betas"][1:])
                else:
                    group["momentum"] = value
        return rates


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when step(metrics) has seen no better value for more than `patience` epochs.

    Better is lower, or higher with mode="max", by the share `threshold` of the best value, or by
    that difference with threshold_mode="abs". After a change it waits `cooldown` epochs.
    ValueError for options that are none.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0,
        eps: float = 1e-8,
    ):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        count = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        if len(self.min_lrs) != count:
            raise ValueError(f"expected {count} min_lrs, got {len(self.min_lrs)}")
        self.optimizer, self.factor, self.patience, self.eps = optimizer, factor, patience, eps
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.cooldown, self.cooldown_counter, self.num_bad_epochs = cooldown, 0, 0
        self.best, self.last_epoch = math.inf if mode == "min" else -math.inf, 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def is_better(self, value: float, best: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            limit = best * (1 + sign * self.threshold)
        else:
            limit = best + sign * self.threshold
        return sign * value > sign * limit

    def step(self, metrics: Any) -> None:
        """Looks at the loss, or whatever is watched, of the epoch that is over."""
        value = float(metrics)
        self.last_epoch += 1
        if self.is_better(value, self.best):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        rates = [group["lr"] for group in self.optimizer.param_groups]
        if self.num_bad_epochs > self.patience:
            lower = [
                max(rate * self.factor, low) for rate, low in zip(rates, self.min_lrs, strict=True)
            ]
            pairs = zip(rates, lower, strict=True)
            rates = [low if rate - low > self.eps else rate for rate, low in pairs]
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self.set_rates(rates)


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--draw", action="store_true", help="draw the rates over 100 epochs")
    draw = flags.parse_args().draw

    def rates(make, epochs, losses=()):
        """The rates that a scheduler gives, from 1.0 at the start."""
        optimizer = SGD([tensor([1.0], requires_grad=True)], lr=1.0, momentum=0.9)
        scheduler, seen = make(optimizer), []
        for epoch in range(epochs):
            seen.append(round(scheduler.get_last_lr()[0], 4))
            optimizer.step()  # first the optimizer
            scheduler.step(*losses[epoch : epoch + 1])  # then the scheduler
        return seen

    print(rates(lambda o: StepLR(o, 2, gamma=0.5), 6))  # -> [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    print(rates(lambda o: MultiStepLR(o, [1, 4], gamma=0.5), 6))
    # -> [1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    print(rates(lambda o: ExponentialLR(o, gamma=0.5), 4))  # -> [1.0, 0.5, 0.25, 0.125]
    print(rates(lambda o: CosineAnnealingLR(o, T_max=4), 5))
    # -> [1.0, 0.8536, 0.5, 0.1464, 0.0]
    print(rates(lambda o: LinearLR(o, 0.25, total_iters=3), 5))  # -> [0.25, 0.5, 0.75, 1.0, 1.0]
    print(rates(lambda o: LambdaLR(o, lambda epoch: 1 / (1 + epoch)), 4))
    # -> [1.0, 0.5, 0.3333, 0.25]
    print(rates(lambda o: OneCycleLR(o, 1.0, total_steps=8, pct_start=0.5), 8))
    # -> [0.04, 0.28, 0.76, 1.0, 0.8536, 0.5, 0.1465, 0.0]

    def warmup(o):
        return SequentialLR(o, [LinearLR(o, 0.25, total_iters=3), ExponentialLR(o, 0.5)], [3])

    print(rates(warmup, 6))  # -> [0.25, 0.5, 0.75, 1.0, 0.5, 0.25]
    losses = [3.0, 2.0, 2.1, 2.1, 2.1, 1.0]
    print(rates(lambda o: ReduceLROnPlateau(o, patience=1), 6, losses))
    # -> [1.0, 1.0, 1.0, 1.0, 0.1, 0.1]

    def together(o):  # the factors of two schedulers multiply
        scheduler, other = StepLR(o, 2, gamma=0.5), ExponentialLR(o, gamma=0.1)
        o.register_step_post_hook(lambda *_: other.step())
        return scheduler

    print(rates(together, 3))  # -> [1.0, 0.1, 0.005]

    # OneCycleLR turns momentum, or Adam's beta1, the other way round.
    optimizer = Adam([tensor([1.0], requires_grad=True)])
    scheduler = OneCycleLR(optimizer, max_lr=1.0, total_steps=5, pct_start=0.6)
    group = optimizer.param_groups[0]
    for _ in range(3):
        rate, beta1 = group["lr"], group["betas"][0]
        optimizer.step()
        scheduler.step()
        print(f"rate {rate:.2f}, beta1 {beta1:.2f}")
    # -> rate 0.04, beta1 0.95
    # -> rate 0.52, beta1 0.90
    # -> rate 1.00, beta1 0.85

    # The order, and what is saved.
    scheduler = StepLR(SGD([tensor([1.0], requires_grad=True)], lr=1.0), 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scheduler.step()
    print(str(caught[0].message)[:70])
    # -> Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call
    print(scheduler.state_dict()["last_epoch"], scheduler.state_dict()["_last_lr"])  # -> 1 [0.1]

    # A race on noisy gradients of x^2 in 1000 dimensions: how far from the minimum is the end?
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
    cosine = distance(lambda o: CosineAnnealingLR(o, T_max=200), 0.4)
    print(f"large {large:.1f}, small {small:.1f}, from large to small {cosine:.2f}")
    # -> large 0.4, small 2.1, from large to small 0.07
    if draw:
        plt = importlib.import_module("matplotlib.pyplot")
        for name, make in {
            "StepLR": lambda o: StepLR(o, 25, gamma=0.5),
            "ExponentialLR": lambda o: ExponentialLR(o, gamma=0.97),
            "CosineAnnealingLR": lambda o: CosineAnnealingLR(o, T_max=100),
            "OneCycleLR": lambda o: OneCycleLR(o, 1.0, total_steps=101),
            "SequentialLR": warmup,
        }.items():
            plt.plot(rates(make, 100), label=name)
        plt.legend()
        plt.show()
