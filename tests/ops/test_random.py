"""Random tensors: streams that can be repeated, and distributions that are what they say."""

import copy

import numpy as np
import pytest

import tinytorch

FLOATS = ("float16", "bfloat16", "float32", "float64")
N = 20_000


@pytest.fixture(autouse=True)
def seeded():
    tinytorch.manual_seed(0)


def host(x):
    return x.double().cpu().numpy()


def test_the_same_seed_gives_the_same_numbers(device):
    tinytorch.manual_seed(7)
    first = [tinytorch.rand(3, device=device), tinytorch.randn(3, device=device)]
    tinytorch.manual_seed(7)
    again = [tinytorch.rand(3, device=device), tinytorch.randn(3, device=device)]
    other = tinytorch.rand(3, device=device)
    assert all(tinytorch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not tinytorch.equal(first[0], other)
    assert tinytorch.initial_seed() == 7


def test_a_generator_of_ones_own_leaves_the_others_alone(device):
    own = tinytorch.Generator(device=device).manual_seed(3)
    before = tinytorch.get_rng_state()
    drawn = tinytorch.randn(4, generator=own, device=device)
    assert tinytorch.equal(tinytorch.get_rng_state(), before)
    assert tinytorch.equal(drawn, tinytorch.randn(4, generator=own.manual_seed(3), device=device))
    assert own.initial_seed() == 3 and own.seed() == own.initial_seed() != 3


def test_states(device):
    own = tinytorch.Generator(device=device)
    tinytorch.rand(3, generator=own, device=device)
    state = own.get_state()
    a = tinytorch.rand(5, generator=own, device=device)
    own.set_state(state)
    assert tinytorch.equal(a, tinytorch.rand(5, generator=own, device=device))
    state = tinytorch.get_rng_state()
    a = tinytorch.randperm(10)
    tinytorch.set_rng_state(state)
    assert tinytorch.equal(a, tinytorch.randperm(10)) and state.dtype is tinytorch.uint8


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform(device, dtype):
    dtype = getattr(tinytorch, dtype)
    for x in (
        tinytorch.rand(N, dtype=dtype, device=device),
        tinytorch.empty(N, dtype=dtype, device=device).uniform_(),
    ):
        values = host(x)
        assert x.dtype is dtype and values.min() >= 0 and values.max() < 1
        assert abs(values.mean() - 0.5) < 0.02 and abs(values.var() - 1 / 12) < 0.01
    values = host(tinytorch.empty(N, device=device).uniform_(-2, 4))
    assert values.min() >= -2 and values.max() <= 4 and abs(values.mean() - 1) < 0.1


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal(device, dtype):
    dtype = getattr(tinytorch, dtype)
    x = tinytorch.randn(N, dtype=dtype, device=device)
    values = host(x)
    assert x.dtype is dtype and abs(values.mean()) < 0.05 and abs(values.std() - 1) < 0.05
    values = host(tinytorch.empty(N, dtype=dtype, device=device).normal_(3, 2))
    assert abs(values.mean() - 3) < 0.1 and abs(values.std() - 2) < 0.1


def test_normal_with_numbers_and_tensors(device):
    x = tinytorch.normal(1.0, 0.0, (3,), device=device)
    assert x.tolist() == [1.0] * 3
    mean = tinytorch.tensor([[0.0], [10.0]], device=device)
    x = tinytorch.normal(mean.expand(2, 500), 0.1)
    assert np.abs(host(x).mean(1) - [0, 10]).max() < 0.05
    with pytest.raises(RuntimeError):
        tinytorch.normal(mean, -1.0)


def test_what_normal_draws_is_a_leaf(device):
    weight = tinytorch.normal(0, 0.01, size=(3, 2), device=device, requires_grad=True)
    assert weight.is_leaf and weight.requires_grad
    mean = tinytorch.zeros(3, device=device, requires_grad=True)
    drawn = tinytorch.normal(mean, mean.exp())  # a policy: the action is no function of its mean
    assert drawn.shape == (3,) and not drawn.requires_grad


def test_integers(device):
    x = tinytorch.randint(-2, 3, (N,), device=device)
    assert x.dtype is tinytorch.int64 and set(x.tolist()) == {-2, -1, 0, 1, 2}
    assert tinytorch.randint(4, (2, 3)).shape == (2, 3)


def test_permutation(device):
    x = tinytorch.randperm(50, device=device)
    assert sorted(x.tolist()) == list(range(50)) != x.tolist() and x.dtype is tinytorch.int64


def test_coins(device):
    p = tinytorch.tensor([0.0, 0.25, 1.0], device=device).expand(N, 3)
    means = host(tinytorch.bernoulli(p)).mean(0)
    assert means[0] == 0 and means[2] == 1 and abs(means[1] - 0.25) < 0.02
    assert abs(host(tinytorch.zeros(N, device=device).bernoulli_(0.7)).mean() - 0.7) < 0.02


def test_indices_by_weight(device):
    weights = tinytorch.tensor([[1.0, 0.0, 3.0], [2.0, 2.0, 0.0]], device=device)
    x = tinytorch.multinomial(weights, N, replacement=True)
    assert x.shape == (2, N) and x.dtype is tinytorch.int64
    shares = [np.bincount(row, minlength=3) / N for row in host(x).astype(int)]
    assert np.abs(shares - np.array([[0.25, 0, 0.75], [0.5, 0.5, 0]])).max() < 0.02
    for row in tinytorch.multinomial(weights[0].expand(100, 3), 2).tolist():
        assert sorted(row) == [0, 2]


def test_random_numbers_have_no_history(device):
    x = tinytorch.ones(3, requires_grad=True, device=device) * 2
    x.uniform_()
    (g,) = tinytorch.autograd.grad((x * 1).sum(), x)
    assert g.tolist() == [1.0] * 3
    with pytest.raises(RuntimeError, match="leaf"):
        tinytorch.ones(3, requires_grad=True, device=device).normal_()


@pytest.mark.parametrize(
    "error, call",
    [
        (NotImplementedError, lambda: tinytorch.rand(2, dtype=tinytorch.int64)),
        (NotImplementedError, lambda: tinytorch.tensor([1]).normal_()),
        (RuntimeError, lambda: tinytorch.randint(3, 3, (2,))),
        (RuntimeError, lambda: tinytorch.randperm(-1)),
        (RuntimeError, lambda: tinytorch.normal(0.0, -1.0, (2,))),
        (RuntimeError, lambda: tinytorch.ones(2).uniform_(3, 1)),
        (RuntimeError, lambda: tinytorch.ones(2).bernoulli_(2)),
        (RuntimeError, lambda: tinytorch.multinomial(tinytorch.zeros(2), 1)),
        (RuntimeError, lambda: tinytorch.multinomial(tinytorch.tensor([1, 2]), 1)),
        (RuntimeError, lambda: tinytorch.multinomial(tinytorch.ones(2), 3)),
        (ValueError, lambda: tinytorch.manual_seed(2**64)),
        (TypeError, lambda: tinytorch.Generator().set_state(3)),
        (RuntimeError, lambda: tinytorch.rand(2, generator=tinytorch.Generator("strict"))),
    ],
)
def test_errors(strict_device, error, call):
    with pytest.raises(error):
        call()


def test_randint_takes_its_bounds_as_pytorch_does(device):
    assert tinytorch.randint(10, size=(2, 3), device=device).shape == (2, 3)
    assert tinytorch.randint(high=3, size=(50,), device=device).max().item() <= 2
    assert tinytorch.rand(size=(2, 3), device=device).shape == (2, 3)
    x = tinytorch.randint_like(tinytorch.zeros(2, 3, device=device), 3, 5)
    assert x.shape == (2, 3) and x.dtype is tinytorch.float32 and x.min().item() >= 3


@pytest.mark.parametrize("low, high, dtype", [(0, 300, "uint8"), (-1, 3, "uint8"), (0, 3, "bool")])
def test_a_type_that_cannot_hold_the_integers_is_refused(low, high, dtype):
    dtype = getattr(tinytorch, dtype)
    with pytest.raises(RuntimeError):
        tinytorch.randint(low, high, (3,), dtype=dtype)
    with pytest.raises(RuntimeError):
        tinytorch.zeros(3, dtype=dtype).random_(low, high)


def test_random_fills_as_far_as_the_type_counts():
    x = tinytorch.zeros(1000, dtype=tinytorch.uint8).random_()
    assert x.max().item() > 200
    x = tinytorch.zeros(1000).random_()
    assert 2**22 < x.max().item() <= 2**24 and x.equal(x.floor())
    assert sorted(set(tinytorch.zeros(100).random_(1, 4).tolist())) == [1.0, 2.0, 3.0]
    assert sorted(set(tinytorch.zeros(100).random_(2).tolist())) == [0.0, 1.0]


def test_waiting_times_have_the_mean_and_deviation_of_the_book(device):
    x = tinytorch.zeros(10_000, device=device).exponential_(4.0)
    assert abs(x.mean().item() - 0.25) < 0.0125 and abs(x.std().item() - 0.25) < 0.02
    assert x.min().item() > 0
    for wrong in (lambda: x.exponential_(0), lambda: x.long().exponential_()):
        with pytest.raises(RuntimeError):
            wrong()


def test_normal_numbers_in_pairs_are_normal_and_independent():
    x = tinytorch.randn(2, 50_000, dtype=tinytorch.float64).numpy()
    assert abs((x[0] * x[1]).mean()) < 5 / 50_000**0.5  # the two halves of a pair
    assert abs((x**4).mean() - 3) < 5 * (96 / 100_000) ** 0.5
    assert tinytorch.randn(3).shape == (3,) and tinytorch.randn(()).shape == ()


def test_too_few_positive_weights_for_a_draw_without_replacement():
    weights = tinytorch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    assert tinytorch.multinomial(weights, 3, replacement=True).shape == (2, 3)
    with pytest.raises(RuntimeError):
        tinytorch.multinomial(weights, 2)


def test_the_largest_draw_of_a_row_does_not_reach_the_next_row(monkeypatch):
    # u + 1 is rounded to 2 here, which is an edge of the row after it.
    generator = tinytorch.Generator()
    largest = np.nextafter(1.0, 0)
    monkeypatch.setattr(generator.source, "uniform", lambda shape, dtype: np.full(shape, largest))
    weights = tinytorch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    x = tinytorch.multinomial(weights, 2, replacement=True, generator=generator)
    assert x.tolist() == [[1, 1], [0, 0], [0, 0]]


def test_a_copy_of_a_generator_is_a_stream_of_its_own(device):
    first = tinytorch.Generator(device).manual_seed(3)
    tinytorch.rand(5, generator=first, device=device)
    for copied in (copy.copy, copy.deepcopy):
        second = copied(first)
        assert second.device is first.device and second.initial_seed() == 3
        twins = [tinytorch.rand(4, generator=g, device=device).tolist() for g in (first, second)]
        assert twins[0] == twins[1]
