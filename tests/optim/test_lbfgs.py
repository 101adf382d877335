"""LBFGS: where it arrives, when it stops, and what it keeps."""

import copy

import numpy as np
import pytest

import tinytorch
from tinytorch import optim, tensor
from tinytorch.optim.lbfgs import Point, cubic_minimum, newton_direction, strong_wolfe


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def closure_of(loss_of, optimizer):
    def closure():
        closure.calls += 1
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    closure.calls = 0
    return closure


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("dtype", [tinytorch.float32, tinytorch.float64])
def test_it_finds_the_minimum_on_each_device(search, dtype, device):
    x = tensor([-1.2, 1.0, 0.5], dtype=dtype, device=device, requires_grad=True)
    optimizer = optim.LBFGS([x], max_iter=200, line_search_fn=search)
    optimizer.step(closure_of(lambda: rosenbrock(x), optimizer))
    np.testing.assert_allclose(x.detach().cpu(), 1, atol=0.02)
    assert x.dtype is dtype and x.device == tinytorch.device(device)
    kept = optimizer.state[x]["old_dirs"]
    assert all(y.dtype is dtype and y.device == tinytorch.device(device) for y in kept)


def test_the_recursion_is_the_bfgs_formula():
    rng = np.random.default_rng(0)
    hessian = np.diag([1.0, 2.0, 5.0, 9.0]) + 0.3
    pairs = [(s, hessian @ s) for s in rng.normal(size=(3, 4))]
    s, y = pairs[-1]
    table = np.eye(4) * (s @ y) / (y @ y)
    for s, y in pairs:
        v = np.eye(4) - np.outer(y, s) / (s @ y)
        table = v.T @ table @ v + np.outer(s, s) / (s @ y)
    g = rng.normal(size=4)
    steps, changes = zip(*pairs, strict=True)
    state = {
        "old_stps": [tensor(v) for v in steps],
        "old_dirs": [tensor(v) for v in changes],
        "ro": [1 / (s @ y) for s, y in pairs],
        "H_diag": (s @ y) / (y @ y),
    }
    np.testing.assert_allclose(newton_direction(tensor(g), state), -table @ g)


def test_the_search_finds_both_conditions():
    for f, slope_of, first in (
        (lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3), 0.01),
        (lambda t: t**4 - 3 * t, lambda t: 4 * t**3 - 3, 50.0),
        (lambda t: np.exp(t) - 2 * t, np.vectorize(lambda t: np.exp(t) - 2), 10.0),
    ):

        def point(t, f=f, slope_of=slope_of):
            return Point(t, float(f(float(t))), None, tensor(slope_of(float(t))))

        found, count = strong_wolfe(point, point(0.0), first, 25, 1e-9)
        start = point(0.0)
        assert found.loss <= start.loss + 1e-4 * found.t * start.slope
        assert abs(found.slope) <= 0.9 * abs(start.slope) and count < 10


def test_the_cubic_is_exact():
    f, slope = np.poly1d([1.0, -2.0, -1.0, 4.0]), np.poly1d([1.0, -2.0, -1.0, 4.0]).deriv()
    minimum = max(slope.roots.real)
    a, b = (Point(t, f(t), None, tensor(slope(t))) for t in (0.0, 3.0))
    for pair in ((a, b), (b, a)):
        assert cubic_minimum(*pair).item() == pytest.approx(minimum)
    assert cubic_minimum(a, b, 2.5, 9.0) == 2.5


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_saved_state_continues_as_if_nothing_had_happened(search):
    options = {"max_iter": 4, "line_search_fn": search}
    whole, half = (tensor([-1.2, 1.0], requires_grad=True) for _ in range(2))
    first, second = optim.LBFGS([whole], **options), optim.LBFGS([half], **options)
    for _ in range(6):
        first.step(closure_of(lambda: rosenbrock(whole), first))
    for _ in range(3):
        second.step(closure_of(lambda: rosenbrock(half), second))
    third = optim.LBFGS([half], lr=7.0)
    third.load_state_dict(copy.deepcopy(second.state_dict()))
    for _ in range(3):
        third.step(closure_of(lambda: rosenbrock(half), third))
    assert half.tolist() == whole.tolist()


def test_a_full_memory_forgets_the_oldest():
    x = tensor([-1.2, 1.0, 0.3], requires_grad=True)
    optimizer = optim.LBFGS([x], history_size=3)
    optimizer.step(closure_of(lambda: rosenbrock(x), optimizer))
    assert [len(optimizer.state[x][name]) for name in ("old_dirs", "old_stps", "ro")] == [3] * 3


def test_when_it_stops():
    x, unused = tensor([3.0, 1.0], requires_grad=True), tensor([1.0], requires_grad=True)

    def run(**options):
        x.data.copy_(tensor([3.0, 1.0]))
        optimizer = optim.LBFGS([x, unused], **options)
        closure = closure_of(lambda: (x * x * tensor([1.0, 30.0])).sum(), optimizer)
        assert optimizer.step(closure).item() == 39
        state = optimizer.state[x]
        assert state["func_evals"] == closure.calls
        return state["n_iter"], closure.calls

    assert run(max_iter=1) == (1, 1) and run(max_iter=3, max_eval=9) == (3, 3)
    assert run(max_eval=2) == (1, 2)
    assert run(tolerance_grad=1e3) == (0, 1)
    assert run(tolerance_change=1e5) == (1, 1)
    assert unused.item() == 1


def test_what_it_refuses():
    x, y = (tensor([1.0], requires_grad=True) for _ in range(2))
    with pytest.raises(ValueError, match="parameter groups"):
        optim.LBFGS([{"params": [x]}, {"params": [y]}])
    with pytest.raises(RuntimeError, match="only 'strong_wolfe'"):
        optim.LBFGS([x], line_search_fn="other")
    with pytest.raises(ValueError, match="learning rate"):
        optim.LBFGS([x], lr=-1)
    with pytest.raises(TypeError):
        optim.LBFGS([x]).step()
