"""Distributions as PyTorch's: densities, entropies, gradients, and what they refuse."""

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
YES = np.array([[1, 0, 1], [0, 0, 1]], np.float32)
CASES = {
    "categorical of logits": lambda t, d, x: (d.Categorical(logits=x), t.tensor([2, 0])),
    "categorical of probs": lambda t, d, x: (d.Categorical(x.exp()), t.tensor([[2], [1]])),
    "normal": lambda t, d, x: (d.Normal(x, x.exp()), t.tensor(YES)),
    "normal of a number": lambda t, d, x: (d.Normal(x, 2), t.tensor([0.5, 1.0, 2.0])),
    "bernoulli of logits": lambda t, d, x: (d.Bernoulli(logits=x), t.tensor(YES)),
    "bernoulli of probs": lambda t, d, x: (d.Bernoulli(x.sigmoid()), t.tensor(YES)),
    "certain": lambda t, d, x: (d.Bernoulli((x > 0) * x / x), t.tensor(YES)),
    "vectors": lambda t, d, x: (
        d.MultivariateNormal(x, t.eye(3) + 0.5 * t.ones(3, 3)),
        t.tensor(YES),
    ),
    "vectors of a triangle": lambda t, d, x: (
        d.MultivariateNormal(
            x, scale_tril=(x.unsqueeze(-1) * x.unsqueeze(-2)).tril() + 2 * t.eye(3)
        ),
        t.tensor(YES[:1]),
    ),
    "vectors of a precision": lambda t, d, x: (
        d.MultivariateNormal(x[0], precision_matrix=x.T @ x + t.eye(3)),
        t.tensor(YES),
    ),
    "no chance": lambda t, d, x: (d.Categorical(x.relu()), t.tensor([2, 1])),
}


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_pytorchs(case):
    found = []
    for library in (torch, tinytorch):
        x = library.tensor(X, requires_grad=True)
        d, value = CASES[case](library, library.distributions, x)
        log_prob, entropy = d.log_prob(value), d.entropy()
        (log_prob.sum() + entropy.sum()).backward()
        numbers = [log_prob, entropy, d.mean, d.variance, d.stddev, x.grad]
        found.append([n.detach().numpy() for n in numbers])
        shapes = [tuple(d.sample(s).shape) for s in ((), (4,), (2, 1))]
        found[-1] += [shapes, tuple(d.batch_shape), tuple(d.event_shape), d.has_rsample]
        found[-1].append(repr(d).replace("tinytorch", "torch"))
        found[-1].append(repr(d.support))
    for theirs, ours in zip(*found, strict=True):
        if isinstance(theirs, np.ndarray):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
        else:
            assert ours == theirs


def test_the_cdf_is_pytorchs():
    values = []
    for library in (torch, tinytorch):
        x = library.tensor(X, requires_grad=True)
        probability = library.distributions.Normal(x, x.exp()).cdf(library.tensor(YES))
        probability.sum().backward()
        values.append([probability.detach().numpy(), x.grad.numpy()])
    np.testing.assert_allclose(values[1], values[0], rtol=1e-5, atol=1e-6)


def test_the_divergence_is_pytorchs():
    values = []
    for library in (torch, tinytorch):
        x, d = library.tensor(X), library.distributions
        values.append(d.kl_divergence(d.Normal(x, x.exp()), d.Normal(0.5, 2.0)).numpy())
    np.testing.assert_allclose(values[1], values[0], rtol=1e-5)


@pytest.mark.parametrize(
    "pair",
    [
        lambda d, x: (d.Categorical(logits=x), d.Categorical(logits=-x)),
        lambda d, x: (d.Categorical(x.relu() + 0.1), d.Categorical(x.relu() + 1e-30)),
        lambda d, x: (d.Categorical(x.relu() + 1e-30), d.Categorical(x.abs())),
        lambda d, x: (d.Bernoulli(logits=x), d.Bernoulli(x.sigmoid() ** 2)),
        lambda d, x: (d.Bernoulli((x > 0).float()), d.Bernoulli((x > -0.2).float())),
        lambda d, x: (d.Bernoulli(x.sigmoid()), d.Bernoulli((x > -0.2).float())),
        lambda d, x: (d.Independent(d.Normal(x, 1), 1), d.Independent(d.Normal(0, x.exp()), 1)),
    ],
)
def test_divergences_of_other_kinds_are_pytorchs(pair):
    values = []
    for library in (torch, tinytorch):
        d = library.distributions
        values.append(d.kl_divergence(*pair(d, library.tensor(X))).numpy())
    assert values[0].shape == values[1].shape
    np.testing.assert_allclose(values[1], values[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t, d: d.Categorical(t.tensor([-1.0, 2.0])),
        lambda t, d: d.Categorical(t.zeros(2)),
        lambda t, d: d.Categorical(),
        lambda t, d: d.Categorical(t.tensor(1.0)),
        lambda t, d: d.Categorical(t.ones(2)).log_prob(t.tensor(2)),
        lambda t, d: d.Categorical(t.ones(2)).log_prob(t.tensor(0.5)),
        lambda t, d: d.Categorical(t.ones(2)).rsample(),
        lambda t, d: d.Normal(0.0, -1.0),
        lambda t, d: d.Normal(t.ones(2), t.ones(3)),
        lambda t, d: d.Normal(t.ones(2), 1.0).log_prob(t.ones(3)),
        lambda t, d: d.Normal(0.0, 1.0).log_prob(1.0),
        lambda t, d: d.Bernoulli(1.5),
        lambda t, d: d.Bernoulli(0.5).log_prob(t.tensor(2.0)),
        lambda t, d: d.kl_divergence(d.Normal(0.0, 1.0), d.Bernoulli(0.5)),
        lambda t, d: d.MultivariateNormal(t.zeros(2)),
        lambda t, d: d.MultivariateNormal(t.zeros(()), t.eye(2)),
        lambda t, d: d.MultivariateNormal(t.zeros(2), t.ones(2)),
        lambda t, d: d.MultivariateNormal(t.zeros(2), t.eye(2), t.eye(2)),
        lambda t, d: d.MultivariateNormal(t.zeros(2), t.ones(2, 2)),
        lambda t, d: d.MultivariateNormal(t.zeros(2), t.tensor([[1.0, 2.0], [0.0, 1.0]])),
        lambda t, d: d.MultivariateNormal(t.zeros(2), scale_tril=t.ones(2, 2)),
        lambda t, d: d.MultivariateNormal(t.zeros(2), t.eye(2)).log_prob(t.ones(3)),
    ],
)
def test_the_errors_are_pytorchs(wrong):
    kinds = []
    for library in (torch, tinytorch):
        with pytest.raises(Exception) as caught:
            wrong(library, library.distributions)
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]
