"""LBFGS makes PyTorch's steps: the same parameters, losses and counts after each call."""

import copy

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

RNG = np.random.default_rng(0)
FEATURES, CLASSES = RNG.normal(size=(50, 6)), (RNG.random(50) > 0.5) * 1.0
LOSSES = {
    "valley": lambda t, x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum(),
    "classes": lambda t, x: t.nn.functional.binary_cross_entropy_with_logits(
        t.tensor(FEATURES) @ x, t.tensor(CLASSES)
    ),
    "plane": lambda t, x: (0.01 * x).sum(),
    "waves": lambda t, x: (x.sin() * t.tensor([1.0, 5.0] * 3)).sum() + 0.1 * (x**2).sum(),
}
OPTIONS = [
    {},
    {"lr": 0.1, "history_size": 2, "max_iter": 4},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 5},
    {"line_search_fn": "strong_wolfe", "lr": 0.5, "max_eval": 9},
    {"line_search_fn": "strong_wolfe", "max_iter": 100, "tolerance_change": 1e-3},
    {"line_search_fn": "strong_wolfe", "tolerance_grad": 0.5},
]


def trained(library, loss_of, calls, optimizer=None, **options):
    if optimizer is None:
        x = library.tensor(np.linspace(-1.2, 1.2, 6), requires_grad=True)
        y = library.tensor([0.5, 0.5], dtype=library.float64, requires_grad=True)
        optimizer = library.optim.LBFGS([x, y], **options)
    x, y = optimizer.param_groups[0]["params"]

    def closure():
        optimizer.zero_grad()
        loss = loss_of(library, x) + ((y - 1) ** 4).sum()
        loss.backward()
        return loss

    rows = []
    for _ in range(calls):
        loss = optimizer.step(closure).item()
        state = optimizer.state[x]
        rows.append([loss, state["func_evals"], state["n_iter"], *x.tolist(), *y.tolist()])
    return rows, optimizer


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_the_steps_are_pytorchs(name, options):
    calls = 1 if name == "plane" else 4  # it has no minimum: t becomes huge
    theirs, _ = trained(torch, LOSSES[name], calls, **options)
    ours, _ = trained(tinytorch, LOSSES[name], calls, **options)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_the_state_goes_both_ways(options):
    loss_of, libraries = LOSSES["valley"], (torch, tinytorch)
    expected, _ = trained(torch, loss_of, 4, **options)
    for first, second in (libraries, libraries[::-1]):
        _, half = trained(first, loss_of, 2, **options)
        _, other = trained(second, loss_of, 0, **options)
        assert list(half.state_dict()["param_groups"][0]) == list(
            other.state_dict()["param_groups"][0]
        )
        state = copy.deepcopy(half.state_dict())
        for name, value in state["state"][0].items():
            convert = lambda v: second.tensor(v.numpy()) if hasattr(v, "numpy") else v  # noqa: B023, E731
            state["state"][0][name] = (
                [convert(v) for v in value] if isinstance(value, list) else convert(value)
            )
        other.load_state_dict(state)
        for mine, its in zip(
            other.param_groups[0]["params"], half.param_groups[0]["params"], strict=True
        ):
            mine.data.copy_(second.tensor(its.detach().numpy()))
        rows, _ = trained(second, loss_of, 2, other)
        np.testing.assert_allclose(rows, expected[2:], rtol=1e-6, atol=1e-7)
