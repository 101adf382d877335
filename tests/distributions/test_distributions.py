"""Distributions: drawing, densities, entropies and checks."""

import math

import numpy as np
import pytest

import tinytorch
from tinytorch import tensor
from tinytorch.autograd import gradcheck, gradgradcheck
from tinytorch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    MultivariateNormal,
    Normal,
    kl_divergence,
)

P = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])


def test_categorical_counts_its_classes(device):
    tinytorch.manual_seed(0)
    d = Categorical(tensor(P, device=device) * 3)
    draws = d.sample((4000,))
    assert draws.shape == (4000, 2) and draws.dtype is tinytorch.int64
    found = np.stack([np.bincount(c, minlength=3) for c in draws.cpu().numpy().T]) / 4000
    np.testing.assert_allclose(found, P, atol=0.03)
    assert d.sample().shape == d.batch_shape == (2,) and d.sample((2, 3)).shape == (2, 3, 2)
    assert Categorical(tensor([1.0, 1.0])).sample().shape == ()


def test_categorical_of_probabilities_and_of_logits(device):
    for d in (
        Categorical(tensor(P, device=device)),
        Categorical(logits=tensor(P, device=device).log() + 5),
    ):
        expected = [0.7, 0.5]
        log_prob = d.log_prob(tensor([2, 0], device=device))
        np.testing.assert_allclose(log_prob.exp().cpu(), expected, rtol=1e-12)
        every = d.log_prob(tensor([[0], [1]], device=device))
        np.testing.assert_allclose(every.exp().cpu(), P[:, :2].T, rtol=1e-12)
        entropy = [-sum(p * math.log(p) for p in row if p) for row in P]
        np.testing.assert_allclose(d.entropy().cpu(), entropy, rtol=1e-10)
        assert d.mode.tolist()[0] == 2 and d.mean.isnan().all() and d.variance.isnan().all()
        np.testing.assert_allclose(d.probs.cpu(), P, rtol=1e-12)


def test_normal(device):
    tinytorch.manual_seed(0)
    loc, scale = tensor([-1.0, 2.0], device=device), tensor([0.5, 3.0], device=device)
    d = Normal(loc, scale)
    draws = d.sample((5000,))
    assert draws.shape == (5000, 2) and not draws.requires_grad
    np.testing.assert_allclose(draws.mean(0).cpu(), [-1, 2], atol=0.15)
    np.testing.assert_allclose(draws.std(0).cpu(), [0.5, 3], rtol=0.05)
    x = np.array([0.3, -0.5])
    density = np.exp(-(((x - [-1, 2]) / [0.5, 3]) ** 2) / 2) / np.array([0.5, 3]) / 2.5066282746
    value = tensor(x, device=device, dtype=loc.dtype)
    np.testing.assert_allclose(d.log_prob(value).exp().cpu(), density, rtol=1e-5)
    exact = -d.log_prob(draws).mean(0)  # the entropy is the mean surprise
    np.testing.assert_allclose(d.entropy().cpu(), exact.cpu(), atol=0.03)
    assert d.mean.tolist() == d.mode.tolist() == loc.tolist()
    np.testing.assert_allclose(d.variance.cpu(), [0.25, 9], rtol=1e-6)
    np.testing.assert_allclose(d.stddev.cpu(), [0.5, 3], rtol=1e-6)


def test_bernoulli(device):
    tinytorch.manual_seed(0)
    p = tensor([0.2, 0.9], device=device)
    for d in (Bernoulli(p), Bernoulli(logits=(p / (1 - p)).log())):
        assert d.sample((3000,)).shape == (3000, 2)
        np.testing.assert_allclose(d.sample((3000,)).mean(0).cpu(), [0.2, 0.9], atol=0.03)
        one = d.log_prob(tensor(1.0, device=device)).exp()
        np.testing.assert_allclose(one.cpu(), [0.2, 0.9], rtol=1e-5)
        zero = d.log_prob(tensor([0.0, 0.0], device=device)).exp()
        np.testing.assert_allclose(zero.cpu(), [0.8, 0.1], rtol=1e-5)
        entropy = [-q * math.log(q) - (1 - q) * math.log(1 - q) for q in (0.2, 0.9)]
        np.testing.assert_allclose(d.entropy().cpu(), entropy, rtol=1e-5)
        np.testing.assert_allclose(d.variance.cpu(), [0.16, 0.09], rtol=1e-5)
        np.testing.assert_allclose(d.mean.cpu(), [0.2, 0.9], rtol=1e-5)
    assert Bernoulli(0.5).sample().shape == () and Bernoulli(1.0).log_prob(tensor(1.0)) > -1e-6


def test_only_rsample_has_a_gradient():
    loc = tensor([0.0, 1.0], requires_grad=True)
    scale = tensor([1.0, 2.0], requires_grad=True)
    d = Normal(loc, scale)
    assert d.has_rsample and not d.sample().requires_grad
    x = d.rsample((7,))
    x.sum().backward()
    assert loc.grad.tolist() == [7.0, 7.0]
    np.testing.assert_allclose(scale.grad, ((x - loc) / scale).sum(0).detach(), rtol=1e-5)
    for discrete in (Categorical(tensor([0.5, 0.5])), Bernoulli(0.5)):
        with pytest.raises(NotImplementedError, match="no rsample"):
            discrete.rsample()


def test_derivatives():
    x = tensor(np.random.default_rng(0).normal(size=(3, 4)), requires_grad=True)
    classes, values = tensor([0, 3, 1]), tensor(np.linspace(-1, 1, 12).reshape(3, 4))
    for function in (
        lambda x: Categorical(logits=x).log_prob(classes),
        lambda x: Categorical(logits=x).entropy(),
        lambda x: Categorical(x.exp()).log_prob(classes),
        lambda x: Categorical(x.exp()).entropy(),
        lambda x: Normal(x, x.exp()).log_prob(values),
        lambda x: Normal(x, x.exp()).entropy(),
        lambda x: kl_divergence(Normal(x, x.exp()), Normal(0.5, 2.0)),
        lambda x: Bernoulli(logits=x).log_prob((values > 0).double()),
        lambda x: Bernoulli(x.sigmoid()).entropy(),
    ):
        assert gradcheck(function, x) and gradgradcheck(function, x)


def test_a_parameter_derived_without_gradients_keeps_its_graph():
    logits = tensor([0.3, -0.2], requires_grad=True)
    d = Bernoulli(logits=logits)
    with tinytorch.no_grad():
        d.sample()
    assert d.probs.requires_grad
    c = Categorical(logits=logits)
    c.sample()
    c.entropy().backward()
    probs = np.exp([0.3, -0.2]) / np.exp([0.3, -0.2]).sum()
    expected = -probs * (np.log(probs) - (probs * np.log(probs)).sum())
    np.testing.assert_allclose(logits.grad, expected, rtol=1e-5)


def test_kl_divergence_is_the_mean_of_a_difference():
    tinytorch.manual_seed(0)
    p, q = Normal(0.5, 2.0), Normal(-0.5, 1.0)
    x = p.sample((20000,))
    measured = (p.log_prob(x) - q.log_prob(x)).mean().item()
    assert abs(kl_divergence(p, q).item() - measured) < 0.1
    assert kl_divergence(p, p).item() == 0
    with pytest.raises(NotImplementedError):
        kl_divergence(p, Bernoulli(0.5))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Categorical(tensor([-1.0, 2.0])),
        lambda: Categorical(logits=tensor([0.0, float("nan")])),
        lambda: Categorical(),
        lambda: Categorical(tensor([1.0]), tensor([1.0])),
        lambda: Categorical(tensor(1.0)),
        lambda: Categorical(tensor([1.0, 1.0])).log_prob(tensor(2)),
        lambda: Categorical(tensor([1.0, 1.0])).log_prob(1),
        lambda: Normal(0.0, 0.0),
        lambda: Normal(float("nan"), 1.0),
        lambda: Normal("a", 1.0),
        lambda: Normal(0.0, tensor([1.0, 1.0])).log_prob(tensor([0.0] * 3)),
        lambda: Normal(0.0, 1.0).log_prob(1.0),
        lambda: Bernoulli(1.5),
        lambda: Bernoulli(0.5).log_prob(tensor(0.5)),
        lambda: Bernoulli(),
    ],
)
def test_wrong_values_are_refused(wrong):
    with pytest.raises(ValueError):
        wrong()


def test_checks_can_be_omitted():
    assert Normal(0.0, 1.0, validate_args=False).log_prob(0.0).item() == pytest.approx(-0.9189385)
    assert Normal(0.0, -1.0, validate_args=False).scale.item() == -1


def test_how_they_print():
    assert repr(Normal(0, 1)) == "Normal(loc: 0.0, scale: 1.0)"
    d = Categorical(logits=tensor([0.0, 1.0]))
    assert repr(d) == "Categorical(logits: tinytorch.Size([2]))"
    d.sample()
    assert repr(d) == "Categorical(probs: tinytorch.Size([2]), logits: tinytorch.Size([2]))"


def test_numbers_take_the_type_of_tensors():
    d = Normal(tensor([1.0, 2.0], dtype=tinytorch.float64), 1)
    assert d.scale.dtype is tinytorch.float64 and d.rsample().dtype is tinytorch.float64
    assert Normal(0, 1).loc.dtype is tinytorch.float32


def test_a_distribution_of_ones_own():
    class Uniform(Distribution):
        def __init__(self, low, high):
            self.low, self.high = low, high
            super().__init__(low.shape)

        def rsample(self, sample_shape=()):
            size = tinytorch.Size(sample_shape) + self.batch_shape
            return self.low + (self.high - self.low) * tinytorch.rand(size)

    d = Uniform(tensor([1.0, 2.0]), tensor([2.0, 4.0]))
    x = d.sample((50,))
    assert (x >= d.low).all() and (x < d.high).all() and repr(d) == "Uniform()"


def test_vectors_have_their_covariance(device):
    tinytorch.manual_seed(0)
    covariance = tensor([[4.0, 3.0], [3.0, 9.0]], device=device)
    d = MultivariateNormal(tensor([[1.0, 2.0], [0.0, 5.0]], device=device), covariance)
    draws = d.sample((20000,))
    assert draws.shape == (20000, 2, 2) and d.batch_shape == d.event_shape == (2,)
    away = (draws - d.mean).cpu().numpy()
    for k in range(2):
        np.testing.assert_allclose(np.cov(away[:, k].T), covariance.cpu().numpy(), rtol=0.05)


def test_the_density_of_vectors_can_be_differentiated_twice(device):
    x = tensor(np.random.default_rng(0).normal(size=(2, 3)), device=device, requires_grad=True)
    unit = tinytorch.eye(3, dtype=tinytorch.float64, device=device)

    def density(x):
        return MultivariateNormal(x[0], x.T @ x + unit).log_prob(x)

    def draw(x):
        tinytorch.manual_seed(0)
        return MultivariateNormal(x, x.T @ x + unit).rsample()

    for function in (density, draw):
        assert gradcheck(function, (x,)) and gradgradcheck(function, (x,))
