"""Operations made of others, against plain NumPy, on each device; their derivatives."""

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 3, 5))
F = nn.functional

CASES = {
    "cumprod": (lambda x, y: x.cumprod(1), np.cumprod(X, 1)),
    "addcmul": (lambda x, y: x.addcmul(x, y, value=2), X + 2 * X * Y),
    "addcdiv": (lambda x, y: x.addcdiv(y, x * x + 1, value=-1), X - Y / (X * X + 1)),
    "cdist": (tinytorch.cdist, np.sqrt(((X[:, None] - Y[None]) ** 2).sum(-1))),
    "index_copy": (
        lambda x, y: x.index_copy(0, tinytorch.tensor([2, 0], device=x.device), y[:2]),
        np.stack((Y[1], X[1], Y[0])),
    ),
    "stacks": (
        lambda x, y: tinytorch.vstack((tinytorch.hstack((x, y)), tinytorch.hstack((y, x)))),
        np.vstack((np.hstack((X, Y)), np.hstack((Y, X)))),
    ),
    "var_mean": (
        lambda x, y: tinytorch.hstack(tinytorch.var_mean(x, 1)),
        np.hstack((X.var(1, ddof=1), X.mean(1))),
    ),
    "std_mean": (
        lambda x, y: tinytorch.hstack(tinytorch.std_mean(x, (0, 1), False)),
        np.array([X.std(), X.mean()]),
    ),
    "cartesian_prod": (
        lambda x, y: tinytorch.cartesian_prod(x[0], y[1]),
        np.array([[a, b] for a in X[0] for b in Y[1]]),
    ),
    "hardswish": (lambda x, y: F.hardswish(x * 3), 3 * X * np.clip(3 * X + 3, 0, 6) / 6),
    "hardsigmoid": (lambda x, y: F.hardsigmoid(x * 3), np.clip(X / 2 + 0.5, 0, 1)),
    "threshold": (lambda x, y: F.threshold(x, 0.1, -2.0), np.where(X > 0.1, X, -2)),
    "mish": (lambda x, y: F.mish(x), X * np.tanh(np.log1p(np.exp(X)))),
    "local_response": (
        lambda x, y: F.local_response_norm(x.T[None], 3, 0.3, 0.5, 2.0)[0].T,
        X / np.sqrt(2 + 0.1 * sum(np.pad(X * X, ((0, 0), (1, 1)))[:, i : i + 5] for i in range(3))),
    ),
    "triplet": (
        lambda x, y: F.triplet_margin_loss(x, y, x * y, eps=0.0),
        np.maximum(0, np.linalg.norm(X - Y, axis=1) - np.linalg.norm(X - X * Y, axis=1) + 1).mean(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name, device):
    function, expected = CASES[name]
    x, y = (tinytorch.tensor(a, device=device, requires_grad=True) for a in (X, Y))
    np.testing.assert_allclose(function(x, y).detach().cpu().numpy(), expected, rtol=1e-12)
    assert gradcheck(function, (x, y))
    assert gradgradcheck(function, (x, y))


def test_running_products_with_zeros(device):
    x = tinytorch.tensor([2.0, 0.0, 3.0, 0.0], device=device, requires_grad=True)
    x.cumprod(0).sum().backward()
    assert x.grad.tolist() == [1.0, 8.0, 0.0, 0.0]
    assert x.half().cumprod(0).dtype is tinytorch.float16
    assert tinytorch.tensor([3, 3], dtype=tinytorch.uint8).cumprod(0).dtype is tinytorch.int64


def test_lists_and_dictionaries_of_parameters():
    several = nn.ParameterList([tinytorch.ones(2), nn.Parameter(tinytorch.zeros(3))])
    several += [tinytorch.ones(1)]
    assert [name for name, _ in several.named_parameters()] == ["0", "1", "2"]
    assert [p.numel() for p in several[1:]] == [3, 1]
    del several[0]
    assert [p.numel() for p in several] == [3, 1]
    named = nn.ParameterDict({"a": tinytorch.ones(2)})
    named.update(b=tinytorch.ones(3))
    assert named.pop("a").requires_grad
    assert list(named.state_dict()) == ["b"]
    with pytest.raises(TypeError):
        several.append(nn.Identity())


def test_fill_diagonal(device):
    x = tinytorch.zeros(2, 2, 2, device=device)
    assert x.fill_diagonal_(3).tolist() == [[[3, 0], [0, 0]], [[0, 0], [0, 3]]]
    w = tinytorch.ones(2, 2, device=device, requires_grad=True)
    (w * 2).fill_diagonal_(0).sum().backward()
    assert w.grad.tolist() == [[0, 2], [2, 0]]
    with pytest.raises(RuntimeError):
        tinytorch.zeros(2, 3, 3, device=device).fill_diagonal_(1)


def test_gumbel_softmax_passes_a_gradient(device):
    tinytorch.manual_seed(0)
    x = tinytorch.tensor(X, device=device, requires_grad=True)
    y = F.gumbel_softmax(x, tau=0.5, hard=True)
    np.testing.assert_allclose(y.detach().cpu().sort().values.numpy()[:, -2:], [[0, 1]] * 3)
    y[:, 0].sum().backward()
    assert x.grad.abs().max().item() > 0
