"""Layers that learn the size of their input from the first batch."""

import copy

import pytest

import tinytorch
from tinytorch import nn


def network():
    return nn.Sequential(
        nn.LazyConv2d(4, 3, padding=1), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)
    )


def test_the_same_numbers_as_layers_of_known_sizes(device):
    images = tinytorch.rand(5, 3, 4, 4, device=device)
    with tinytorch.device(device):
        tinytorch.manual_seed(1)
        lazy = network()
        output = lazy(images)
        tinytorch.manual_seed(1)
        known = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2)
        )
    assert output.equal(known(images))
    assert repr(lazy) == repr(known) and [type(m) for m in lazy] == [type(m) for m in known]
    assert all(type(p) is nn.Parameter for p in lazy.parameters())


def test_an_optimizer_may_be_made_before_the_first_batch():
    lazy = network()
    optimizer = tinytorch.optim.Adam(lazy.parameters(), lr=0.1)
    images = tinytorch.rand(5, 3, 4, 4)
    first = lazy(images).square().mean()
    first.backward()
    optimizer.step()
    assert lazy(images).square().mean() != first


def test_a_file_before_the_first_batch():
    lazy, images = network(), tinytorch.rand(5, 3, 4, 4)
    lazy(images)
    other = network()
    other.load_state_dict(lazy.state_dict())
    assert other.eval()(images).equal(lazy.eval()(images))


def test_what_has_no_elements_yet_is_refused():
    weight = nn.LazyLinear(3).weight
    assert isinstance(weight, nn.UninitializedParameter) and weight.requires_grad
    for ask in (lambda: weight.shape, lambda: weight.sum(), lambda: weight * 2):
        with pytest.raises(RuntimeError, match="uninitialized"):
            ask()


def test_all_layers_wait_and_become_ordinary_ones():
    for n in (1, 2, 3):
        image = tinytorch.ones(2, 6, *[5] * n)
        for name, args in (("Conv", (4, 3)), ("ConvTranspose", (4, 3)), ("BatchNorm", ())):
            layer = getattr(nn, f"Lazy{name}{n}d")(*args)
            layer(image)
            assert type(layer) is getattr(nn, f"{name}{n}d"), layer
    layer = copy.deepcopy(layer)
    assert layer.weight.shape == (6,)


def test_a_type_and_a_device_before_the_first_batch(device):
    model = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d())
    model.double().to(device)
    x = tinytorch.randn(3, 4, dtype=tinytorch.float64, device=device)
    assert model(x).dtype is tinytorch.float64
    assert {(str(p.device), p.dtype) for p in model.parameters()} == {(device, tinytorch.float64)}
