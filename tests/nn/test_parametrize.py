"""Parametrizations: what the parity test does not see."""

import copy
import gc

import pytest

import tinytorch as torch
from tinytorch import nn
from tinytorch.nn.utils import parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


def test_an_optimizer_made_before_still_holds_the_weight(device):
    layer = nn.Linear(3, 3, device=device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    before = layer.weight.detach().clone()
    layer(torch.ones(2, 3, device=device)).sum().backward()
    optimizer.step()
    assert not torch.equal(layer.weight, before)
    assert torch.equal(layer.weight, layer.weight.T)


def test_both_derivatives_go_through_it(device):
    layer = nn.Linear(3, 3, device=device, dtype=torch.float64)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    original = layer.parametrizations.weight.original
    layer.weight.pow(3).sum().backward()
    assert original.grad.tril(-1).abs().sum().item() == 0  # what is below the diagonal is not used
    assert original.grad.triu().count_nonzero().item() == 6


def test_a_copy_is_parametrized_by_itself():
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.parametrizations.weight.original.fill_(7.0)
    assert (other.weight.diagonal() == 7).all()
    assert not (layer.weight == 7).any()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer.weight, other.weight)
    parametrize.remove_parametrizations(other, "weight")
    assert type(other) is nn.Linear and torch.equal(layer.weight, other.weight)


def test_the_cache_ends_with_the_outermost_block():
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    with parametrize.cached():
        with parametrize.cached():
            first = layer.weight
        assert layer.weight is first
    with pytest.raises(KeyError), parametrize.cached():
        assert layer.weight is not first
        raise KeyError
    assert layer.weight is not layer.weight


def test_the_cache_does_not_take_a_new_module_for_one_that_is_gone():
    with parametrize.cached():
        for number in range(20):  # without its tensors each is freed, and the next may get its id
            layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
            with torch.no_grad():
                layer.parametrizations.weight.original.fill_(number)
            assert (layer.weight == number).all()
            del layer
            gc.collect()


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_frozen_weight_stays_frozen(requires_grad):
    class Halves(nn.Module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, w):
            return w / 2, w / 2

    layer = nn.Linear(2, 2)
    layer.weight.requires_grad_(requires_grad)
    parametrize.register_parametrization(layer, "weight", Halves())
    parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.requires_grad is requires_grad
