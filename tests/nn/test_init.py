"""First numbers of parameters, clipping, and parameters as one vector."""

import math

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, tensor
from tinytorch.nn import init

STDS = {
    "uniform_": (lambda t: init.uniform_(t, -1, 1), 1 / math.sqrt(3)),
    "normal_": (lambda t: init.normal_(t, 1.0, 2.0), 2.0),
    "trunc_normal_": (lambda t: init.trunc_normal_(t, std=1.0, a=-1.0, b=1.0), 0.5396),
    "xavier_uniform_": (lambda t: init.xavier_uniform_(t, 2.0), 2 * math.sqrt(2 / 500)),
    "xavier_normal_": (lambda t: init.xavier_normal_(t), math.sqrt(2 / 500)),
    "kaiming_uniform_": (lambda t: init.kaiming_uniform_(t), math.sqrt(2 / 200)),
    "kaiming_normal_": (
        lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="tanh"),
        5 / 3 / math.sqrt(300),
    ),
    "orthogonal_": (lambda t: init.orthogonal_(t), 1 / math.sqrt(300)),
}


@pytest.mark.parametrize("name", STDS)
def test_standard_deviations(device, name):
    fill, expected = STDS[name]
    tinytorch.manual_seed(1)
    t = tinytorch.empty(300, 200, device=device, requires_grad=True)
    assert fill(t) is t and t.dtype is tinytorch.float32 and t.is_leaf
    assert abs(t.numpy(force=True).std() / expected - 1) < 0.02


def test_limits_and_constants(device):
    t = tinytorch.empty(20, 20, device=device)
    assert abs(init.trunc_normal_(t, a=-0.5, b=0.5).numpy(force=True)).max() <= 0.5
    assert init.ones_(t).sum().item() == 400 and init.zeros_(t).sum().item() == 0
    assert init.constant_(t, 0.5).sum().item() == 200 and init.eye_(t).sum().item() == 20


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (3, 2, 2)])
def test_orthogonal(device, shape):
    q = init.orthogonal_(tinytorch.empty(shape, device=device), gain=2.0).numpy(force=True)
    q = q.reshape(shape[0], -1)
    small = q @ q.T if q.shape[0] < q.shape[1] else q.T @ q
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_gain():
    assert init.calculate_gain("relu") == math.sqrt(2) and init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 1.0) == 1.0 and init.calculate_gain("linear") == 1


def test_the_same_generator_gives_the_same_numbers():
    a, b = (
        init.normal_(tinytorch.empty(5), generator=tinytorch.Generator().manual_seed(3))
        for _ in range(2)
    )
    assert a.tolist() == b.tolist()


def with_gradients(device, *grads):
    params = [nn.Parameter(tinytorch.zeros(len(g), device=device)) for g in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = tensor(grad, device=device)
    return params


def test_clip_grad_norm(device):
    params = with_gradients(device, [3.0], [0.0, 4.0])
    total = nn.utils.clip_grad_norm_([*params, nn.Parameter(tinytorch.zeros(1))], 1.0)
    assert total.item() == 5.0
    np.testing.assert_allclose(params[0].grad.numpy(force=True), [0.6], rtol=1e-5)
    np.testing.assert_allclose(params[1].grad.numpy(force=True), [0.0, 0.8], rtol=1e-5)
    assert nn.utils.clip_grad_norm_(params, 10.0).item() == pytest.approx(1.0, rel=1e-5)
    np.testing.assert_allclose(params[0].grad.numpy(force=True), [0.6], rtol=1e-5)
    params = with_gradients(device, [3.0], [0.0, -4.0])
    assert nn.utils.clip_grad_norm_(params, 1.0, norm_type=float("inf")).item() == 4.0
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0.0
    params = with_gradients(device, [float("inf")])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)


def test_parameters_as_a_vector(device):
    net = nn.Linear(3, 2).to(device)
    vector = nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (8,) and vector.requires_grad
    expected = np.concatenate([p.numpy(force=True).reshape(-1) for p in net.parameters()])
    assert vector.tolist() == expected.tolist()


def test_nothing_to_initialise():
    assert init.kaiming_normal_(tinytorch.empty(3, 0)).shape == (3, 0)
    assert init.calculate_gain("conv_transpose2d") == 1


def test_orthogonal_integers_are_refused():
    with pytest.raises(NotImplementedError):
        init.orthogonal_(tinytorch.ones(3, 3, dtype=tinytorch.int64))
