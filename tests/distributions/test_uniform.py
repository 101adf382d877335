"""Uniform and Independent."""

import pytest

import tinytorch
from tinytorch.distributions import Independent, Normal, Uniform


def test_uniform(device):
    low = tinytorch.tensor([0.0, 1.0], device=device, requires_grad=True)
    high = tinytorch.tensor([2.0, 4.0], device=device, requires_grad=True)
    uniform = Uniform(low, high)
    draws = uniform.rsample((2000,))
    assert (draws >= low).all() and (draws < high).all()
    assert (draws.mean(0) - uniform.mean).abs().max() < 0.1
    assert (draws.var(0) - uniform.variance).abs().max() < 0.1
    draws.sum(0).sum().backward()
    assert (low.grad + high.grad).allclose(tinytorch.tensor([2000.0, 2000.0], device=device))
    value = tinytorch.tensor([0.0, 4.0], device=device)
    assert uniform.log_prob(value).exp().tolist() == [0.5, 0.0]
    with pytest.raises(ValueError):
        uniform.log_prob(value + 1)
    with pytest.raises(ValueError):
        Uniform(high, low)


def test_independent(device):
    mean = tinytorch.rand(4, 3, 2, device=device)
    normal = Normal(mean, mean + 1)
    joint = Independent(normal, 2)
    value = joint.sample((5,))
    assert value.shape == (5, 4, 3, 2) and joint.batch_shape == (4,) and joint.event_shape == (3, 2)
    assert joint.log_prob(value).allclose(normal.log_prob(value).sum((-1, -2)), rtol=1e-4)
    assert joint.entropy().allclose(normal.entropy().sum((-1, -2)), rtol=1e-4)
    assert joint.mean is normal.mean and joint.has_rsample
    with pytest.raises(ValueError, match="actual 4 vs 3"):
        Independent(normal, 4)
