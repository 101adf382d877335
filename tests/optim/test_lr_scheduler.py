"""Schedulers: what they do to the rate, in what order they want to be called, and their state."""

import copy
import warnings

import pytest

from tinytorch import optim, tensor
from tinytorch.optim import lr_scheduler as lrs


def optimizer(cls=optim.SGD, groups=1, **options):
    params = [{"params": [tensor([1.0], requires_grad=True)], "lr": 1.0 + i} for i in range(groups)]
    return cls(params, lr=1.0, **options)


def rates(scheduler, steps, *metrics):
    seen = [scheduler.get_last_lr()[0]]
    for i in range(steps):
        scheduler.optimizer.step()
        scheduler.step(*metrics[i : i + 1])
        seen.append(scheduler.get_last_lr()[0])
    return [round(rate, 6) for rate in seen]


def test_by_hand():
    assert rates(lrs.StepLR(optimizer(), 2, 0.5), 4) == [1, 1, 0.5, 0.5, 0.25]
    assert rates(lrs.MultiStepLR(optimizer(), [1, 3, 3], 0.5), 3) == [1, 0.5, 0.5, 0.125]
    assert rates(lrs.ExponentialLR(optimizer(), 0.5), 2) == [1, 0.5, 0.25]
    assert rates(lrs.LinearLR(optimizer(), 0.5, 1.0, 2), 3) == [0.5, 0.75, 1, 1]
    assert rates(lrs.CosineAnnealingLR(optimizer(), 2), 4) == [1, 0.5, 0, 0.5, 1]
    assert rates(lrs.LambdaLR(optimizer(), lambda epoch: 1 / (1 + epoch)), 3) == [
        1, 0.5, 0.333333, 0.25,
    ]  # fmt: skip
    opt = optimizer()
    both = [lrs.LinearLR(opt, 0.5, 1.0, 2), lrs.ExponentialLR(opt, 0.5)]
    assert rates(lrs.SequentialLR(opt, both, [2]), 4) == [0.5, 0.75, 1, 0.5, 0.25]
    plateau = lrs.ReduceLROnPlateau(optimizer(), patience=1, factor=0.5)
    assert rates(plateau, 5, 3.0, 2.0, 2.0, 2.0, 1.0) == [1, 1, 1, 1, 0.5, 0.5]


def test_one_cycle_turns_momentum_the_other_way():
    opt = optimizer(momentum=0.9)
    scheduler = lrs.OneCycleLR(opt, 1.0, total_steps=10, pct_start=0.3)
    seen = []
    for _ in range(10):
        seen.append((opt.param_groups[0]["lr"], opt.param_groups[0]["momentum"]))
        opt.step()
        scheduler.step()
    assert max(seen)[0] == pytest.approx(1.0) and max(seen)[1] == pytest.approx(0.85)
    assert seen[0] == pytest.approx((0.04, 0.95)) and seen[-1][0] < 1e-5
    with pytest.raises(ValueError, match="The total is 10"):
        scheduler.step()


def test_the_wrong_order_warns_once():
    scheduler = lrs.StepLR(optimizer(), 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()


class Halves:
    def __init__(self):
        self.calls = 0

    def __call__(self, epoch):
        self.calls += 1
        return 0.5**self.calls


MAKERS = [
    lambda opt: lrs.LambdaLR(opt, Halves()),
    lambda opt: lrs.StepLR(opt, 2),
    lambda opt: lrs.MultiStepLR(opt, [2, 6]),
    lambda opt: lrs.CosineAnnealingLR(opt, 7),
    lambda opt: lrs.SequentialLR(opt, [lrs.LinearLR(opt), lrs.StepLR(opt, 2)], [3]),
    lambda opt: lrs.OneCycleLR(opt, 1.0, 20),
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_saved_schedule_continues(make):
    whole, first = optimizer(momentum=0.9), optimizer(momentum=0.9)
    expected = rates(make(whole), 9)
    early = make(first)
    rates(early, 4)
    saved = copy.deepcopy((early.state_dict(), first.state_dict()))
    second = optimizer(momentum=0.9)
    late = make(second)
    late.load_state_dict(saved[0])
    second.load_state_dict(saved[1])
    assert late.get_last_lr() == [pytest.approx(expected[4], abs=1e-6)]
    assert rates(late, 5) == expected[4:]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda opt: lrs.StepLR([1.0], 1), TypeError),
        (lambda opt: lrs.StepLR(opt, 1, last_epoch=3), KeyError),
        (lambda opt: lrs.LambdaLR(opt, [abs, abs]), ValueError),
        (lambda opt: lrs.LinearLR(opt, 0.0), ValueError),
        (lambda opt: lrs.LinearLR(opt, end_factor=2.0), ValueError),
        (lambda opt: lrs.SequentialLR(opt, [lrs.StepLR(opt, 1)], [1]), ValueError),
        (lambda opt: lrs.OneCycleLR(opt, 1.0), ValueError),
        (lambda opt: lrs.OneCycleLR(opt, 1.0, 10, pct_start=2), ValueError),
        (lambda opt: lrs.OneCycleLR(opt, 1.0, 10, anneal_strategy="no"), ValueError),
        (lambda opt: lrs.OneCycleLR(opt, [1.0, 2.0], 10), ValueError),
        (lambda opt: lrs.OneCycleLR(optimizer(optim.Adagrad), 1.0, 10), ValueError),
        (lambda opt: lrs.ReduceLROnPlateau(opt, "down"), ValueError),
        (lambda opt: lrs.ReduceLROnPlateau(opt, factor=1.0), ValueError),
        (lambda opt: lrs.ReduceLROnPlateau(opt, min_lr=[1, 2]), ValueError),
    ],
)
def test_errors(make, error):
    with pytest.raises(error):
        make(optimizer(momentum=0.9))
