"""The schedulers against PyTorch's: the same rates and momenta over 50 steps, in two groups."""

import warnings

import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

LOSSES = [1 / (1 + i % 17) + (i > 30) * 0.05 for i in range(50)]
CASES = {
    "lambda": lambda s, o: s.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (1 + e)]),
    "step": lambda s, o: s.StepLR(o, 7, 0.5),
    "multi": lambda s, o: s.MultiStepLR(o, [5, 9, 9, 40], 0.3),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.93),
    "linear": lambda s, o: s.LinearLR(o, 0.1, 0.8, 13),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 12, 0.01),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1), s.CosineAnnealingLR(o, 20), s.ExponentialLR(o, 0.9)], [5, 30]
    ),
    "cycle": lambda s, o: s.OneCycleLR(o, [0.3, 2.0], 51),
    "cycle three": lambda s, o: s.OneCycleLR(
        o, 0.7, epochs=3, steps_per_epoch=17, three_phase=True, anneal_strategy="linear"
    ),
    "cycle rate": lambda s, o: s.OneCycleLR(o, 0.7, 51, cycle_momentum=False),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=2, factor=0.5, cooldown=3),
    "plateau max": lambda s, o: s.ReduceLROnPlateau(
        o, "max", patience=4, threshold=0.1, threshold_mode="abs", min_lr=[0.01, 0.3]
    ),
}


def history(library, case, name):
    params = [
        {"params": [library.tensor([1.0], requires_grad=True)], "lr": lr} for lr in (0.5, 1.0)
    ]
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(library.optim, name)(params, lr=0.1, **options)
    scheduler = CASES[case](library.optim.lr_scheduler, optimizer)
    for loss in LOSSES:
        optimizer.step()
        yield [[g["lr"], *g.get("betas", [g.get("momentum")])] for g in optimizer.param_groups]
        scheduler.step(*([loss] if "plateau" in case else []))
        assert scheduler.get_last_lr() == [g["lr"] for g in optimizer.param_groups]


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("case", CASES)
def test_fifty_steps(case, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, inside SequentialLR
        theirs = list(history(torch, case, name))
    for mine, other in zip(history(tinytorch, case, name), theirs, strict=True):
        assert mine == [pytest.approx(values, rel=1e-6, abs=1e-12) for values in other]
