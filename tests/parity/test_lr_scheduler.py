"""The schedulers against PyTorch's: the same rates and momenta over 30 epochs, in two groups."""

import inspect
import warnings

import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

LOSSES = [1 / (1 + i % 7) + (i > 12) * 0.05 for i in range(30)]
CASES = {
    "lambda": lambda s, o, **k: s.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (1 + e)], **k),
    "step": lambda s, o, **k: s.StepLR(o, 3, 0.5, **k),
    "multi": lambda s, o, **k: s.MultiStepLR(o, [2, 5, 5, 9], 0.3, **k),
    "exponential": lambda s, o, **k: s.ExponentialLR(o, 0.93, **k),
    "linear": lambda s, o, **k: s.LinearLR(o, 0.1, 0.8, 13, **k),
    "linear to zero": lambda s, o, **k: s.LinearLR(o, 1.0, 0.0, 6, **k),
    "cosine": lambda s, o, **k: s.CosineAnnealingLR(o, 5, 0.01, **k),
    "cosine to zero": lambda s, o, **k: s.CosineAnnealingLR(o, 5, **k),
    "restarts": lambda s, o, **k: s.CosineAnnealingWarmRestarts(o, 4, **k),
    "restarts, longer": lambda s, o, **k: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01, **k),
    "constant": lambda s, o, **k: s.ConstantLR(o, 0.2, 7, **k),
    "polynomial": lambda s, o, **k: s.PolynomialLR(o, 9, 0.9, **k),
    "cycle": lambda s, o, **k: s.OneCycleLR(o, [0.3, 2.0], 31, **k),
    "cycle three": lambda s, o, **k: s.OneCycleLR(
        o, 0.7, epochs=3, steps_per_epoch=17, three_phase=True, anneal_strategy="linear", **k
    ),
    "cycle rate": lambda s, o, **k: s.OneCycleLR(o, 0.7, 51, cycle_momentum=False, **k),
}
COMPOSED = {
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1), s.CosineAnnealingLR(o, 8), s.ExponentialLR(o, 0.9)], [5, 12]
    ),
    "sequential, closed": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 0.5, 3), s.MultiStepLR(o, [0, 4]), s.StepLR(o, 2)], [3, 9]
    ),
    "sequential, functions": lambda s, o: s.SequentialLR(
        o, [s.ExponentialLR(o, 0.8), s.LambdaLR(o, lambda e: 1 / (e + 1))], [3]
    ),
    "sequential, restarts": lambda s, o: s.SequentialLR(
        o,
        [s.ConstantLR(o, 0.1), s.CosineAnnealingWarmRestarts(o, 4, 2), s.PolynomialLR(o)],
        [3, 17],
    ),
    "nested": lambda s, o: s.SequentialLR(
        o,
        [
            s.SequentialLR(o, [s.LinearLR(o, 0.1), s.ExponentialLR(o, 0.9)], [3]),
            s.LambdaLR(o, lambda e: 0.9**e),
        ],
        [8],
    ),
    "sequential, a cycle at the end": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1), s.OneCycleLR(o, 0.7, 40)], [5]
    ),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=2, factor=0.5, cooldown=3),
    "plateau max": lambda s, o: s.ReduceLROnPlateau(
        o, "max", patience=1, threshold=0.1, threshold_mode="abs", min_lr=[0.01, 0.3]
    ),
}
ALL = {**CASES, **COMPOSED}


def make(library, case, name="SGD", tensors=False, last_epoch=None):
    groups = []
    for lr in (0.5, 1.0):
        param = library.tensor([1.0], requires_grad=True)
        groups.append({"params": [param], "lr": library.tensor(lr) if tensors else lr})
        if last_epoch is not None:
            groups[-1]["initial_lr"] = 2 * lr
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(library.optim, name)(groups, lr=0.1, **options)
    resume = {} if last_epoch is None else {"last_epoch": last_epoch}
    return optimizer, ALL[case](library.optim.lr_scheduler, optimizer, **resume)


def advance(optimizer, scheduler, case, i):
    optimizer.step()
    scheduler.step(*([LOSSES[i]] if "plateau" in case else []))
    seen = []
    for group, rate in zip(optimizer.param_groups, scheduler.get_last_lr(), strict=True):
        seen += [float(group["lr"]), float(rate), *group.get("betas", [group.get("momentum")])]
    return seen


def history(library, case, **how):
    """All rates, and the kinds of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pair = make(library, case, **how)
        seen = [advance(*pair, case, i) for i in range(30)]
    return seen, [warning.category for warning in caught]


def assert_same_history(case, **how):
    theirs, warned = history(torch, case, **how)
    mine, we_warned = history(tinytorch, case, **how)
    for ours, other in zip(mine, theirs, strict=True):
        assert ours == pytest.approx(other, rel=1e-6, abs=1e-9)
    assert len(we_warned) == len(warned)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("case", ALL)
def test_thirty_epochs(case, name):
    assert_same_history(case, name=name)


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's "nested" warns as well
@pytest.mark.parametrize("case", ALL)
def test_a_rate_that_is_a_tensor_stays_one(case):
    assert_same_history(case, tensors=True)
    optimizer, scheduler = make(tinytorch, case, tensors=True)
    tensor = optimizer.param_groups[0]["lr"]
    advance(optimizer, scheduler, case, 0)
    assert optimizer.param_groups[0]["lr"] is tensor
    assert scheduler.get_last_lr()[0] is not tensor


@pytest.mark.parametrize("case", [case for case in CASES if "cycle" not in case])
def test_after_a_break(case):
    for last_epoch in (0, 2, 5):
        assert_same_history(case, last_epoch=last_epoch)


@pytest.mark.parametrize("case", ALL)
def test_state_goes_both_ways(case):
    def copy_rates(to, source):
        for ours, theirs in zip(to.param_groups, source.param_groups, strict=True):
            ours.update({k: v for k, v in theirs.items() if k != "params"})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second, third = (make(lib, case) for lib in (torch, tinytorch, torch))
        for i in range(6):
            advance(*first, case, i)
        second[1].load_state_dict(first[1].state_dict())
        copy_rates(second[0], first[0])
        for i in range(6, 12):
            assert advance(*second, case, i) == pytest.approx(advance(*first, case, i))
        third[1].load_state_dict(second[1].state_dict())
        copy_rates(third[0], second[0])
        for i in range(12, 18):
            assert advance(*second, case, i) == pytest.approx(advance(*third, case, i))


def schedulers(module):
    classes = inspect.getmembers(module, inspect.isclass)
    return {name for name, cls in classes if issubclass(cls, module.LRScheduler)}


@pytest.mark.parametrize("name", sorted(schedulers(tinytorch.optim.lr_scheduler)))
def test_signature(name):
    ours, theirs = (
        inspect.signature(getattr(library.optim.lr_scheduler, name)).parameters.values()
        for library in (tinytorch, torch)
    )
    assert [(p.name, p.default, p.kind) for p in ours] == [
        (p.name, p.default, p.kind) for p in theirs
    ]


WRONG = {
    "no optimizer": lambda s, o: s.StepLR(5, 1),
    "too few functions": lambda s, o: s.LambdaLR(o, [lambda e: 1]),
    "start": lambda s, o: s.LinearLR(o, 0.0),
    "end": lambda s, o: s.LinearLR(o, 0.5, 1.5),
    "no schedulers": lambda s, o: s.SequentialLR(o, [], []),
    "milestones": lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [1]),
    "no scheduler": lambda s, o: s.SequentialLR(o, [3, s.StepLR(o, 1)], [1]),
    "plateau inside": lambda s, o: s.SequentialLR(o, [s.ReduceLROnPlateau(o)], []),
    "growing": lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
    "mode": lambda s, o: s.ReduceLROnPlateau(o, "lower"),
    "threshold": lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="x"),
    "min_lr": lambda s, o: s.ReduceLROnPlateau(o, min_lr=[1]),
    "no steps": lambda s, o: s.OneCycleLR(o, 1.0),
    "steps": lambda s, o: s.OneCycleLR(o, 1.0, 0),
    "whole steps": lambda s, o: s.OneCycleLR(o, 1.0, 10.0),
    "pct_start": lambda s, o: s.OneCycleLR(o, 1.0, 10, pct_start=1),
    "anneal": lambda s, o: s.OneCycleLR(o, 1.0, 10, anneal_strategy="x"),
    "max_lr": lambda s, o: s.OneCycleLR(o, [1.0], 10),
    "no optimizer for a cycle": lambda s, o: s.OneCycleLR(3, 1.0, 10),
    "no initial_lr": lambda s, o: s.StepLR(o, 2, last_epoch=3),
    "no get_lr": lambda s, o: s.LRScheduler(o),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors(case):
    raised = []
    for library in (torch, tinytorch):
        optimizer, _ = make(library, "plateau")
        with pytest.raises(Exception) as error:
            WRONG[case](library.optim.lr_scheduler, optimizer)
        raised.append(error.type)
    assert raised[0] is raised[1]


def test_the_order_of_calls_and_get_lr_outside_of_step():
    for library in (torch, tinytorch):
        optimizer, scheduler = make(library, "exponential")
        with pytest.warns(UserWarning, match="before `optimizer.step"):
            scheduler.step()
        with pytest.warns(UserWarning, match="get_last_lr"):
            scheduler.get_lr()


@pytest.mark.parametrize("T_mult", [1, 2, 3])
def test_restarts_at_any_epoch(T_mult):
    schedules = [
        library.optim.lr_scheduler.CosineAnnealingWarmRestarts(
            library.optim.SGD([library.tensor([1.0], requires_grad=True)], lr=0.5), 3, T_mult, 0.1
        )
        for library in (tinytorch, torch)
    ]
    for epoch in [0.25 * i for i in range(110)] + [None, None, 2, None, 0, None, 20.5, None]:
        for schedule in schedules:
            schedule.step(epoch)
        ours, theirs = schedules
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), abs=1e-12)
        for name in ("T_cur", "T_i", "last_epoch"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name))
