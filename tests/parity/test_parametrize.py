"""Parametrizations, under PyTorch and under tinytorch: values, names, texts and types of errors."""

import contextlib
import copy
import io

import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

from tests.parity.test_programs import fill  # noqa: E402
from tests.parity.test_whole_programs import path  # noqa: E402


def program(torch):
    nn, par = torch.nn, path(torch, "nn.utils.parametrize")

    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, a):
            return a.triu()

    class Skew(nn.Module):
        def forward(self, x):
            a = x.triu(1)
            return a - a.transpose(-1, -2)

    class Exp(nn.Module):
        def forward(self, x):
            return x.exp()

        def right_inverse(self, a):
            return a.log()

    class Rank1(nn.Module):
        def forward(self, x, y):
            return x.unsqueeze(-1) @ y.unsqueeze(-2)

        def right_inverse(self, a):
            return a[:, 0].clone(), a[0].clone() / a[0, 0]

    class Prune(nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.register_buffer("mask", mask)

        def forward(self, x):
            return x * self.mask

    class Half(nn.Module):
        def forward(self, x):
            return x.half()

    def refused(call):
        try:
            call()
        except Exception as error:
            print(type(error).__name__)
        else:
            print("no error")

    layer = fill(torch, nn.Linear(3, 3))
    weight = layer.weight
    print(par.register_parametrization(layer, "weight", Symmetric()) is layer, layer)
    print(type(layer).__name__, par.is_parametrized(layer), par.is_parametrized(layer, "bias"))
    print(layer.weight, layer.parametrizations.weight.original is weight)
    print(list(layer.state_dict()), [name for name, _ in layer.named_parameters()])
    layer.weight = torch.ones(3, 3) + torch.eye(3)
    print(layer.weight, layer.parametrizations.weight, layer.parametrizations.weight[0])
    layer(torch.ones(2, 3)).sum().backward()
    print(layer.parametrizations.weight.original.grad)
    refused(lambda: par.register_parametrization(layer, "none", Symmetric()))
    refused(lambda: par.register_parametrization(nn.Linear(2, 3), "weight", nn.Flatten(0)))
    refused(lambda: par.register_parametrization(nn.Linear(2, 3), "weight", Half()))
    refused(lambda: torch.save(layer, io.BytesIO()))
    refused(lambda: par.remove_parametrizations(layer, "bias"))
    refused(lambda: setattr(layer, "weight", torch.ones(3, 3).double()))
    refused(lambda: setattr(layer, "weight", nn.Parameter(torch.ones(3, 3))))
    refused(lambda: par.ParametrizationList([], torch.ones(2)))
    other = copy.deepcopy(layer)
    print(torch.equal(other.weight, layer.weight), other)
    par.register_parametrization(layer.double(), "weight", Exp())
    print(layer.weight, list(layer.state_dict()), len(layer.parametrizations.weight))
    layer.weight = torch.full((3, 3), 2.0, dtype=torch.double)
    print(layer.weight)
    refused(lambda: par.register_parametrization(layer, "weight", nn.Flatten(0)))
    print(par.remove_parametrizations(layer, "weight"), layer.weight, layer.weight is weight)

    two = fill(torch, nn.Linear(3, 4))
    par.register_parametrization(two, "weight", Rank1(), unsafe=True)
    print(list(two.state_dict()), two.weight, two)
    refused(lambda: par.remove_parametrizations(two, "weight", leave_parametrized=False))
    two.weight = torch.ones(4, 3)
    two(torch.ones(1, 3)).sum().backward()
    print(two.weight, two.parametrizations.weight.original1.grad)
    par.remove_parametrizations(two, "weight")
    print(type(two.weight).__name__, two.weight.requires_grad, list(two.state_dict()))

    third = fill(torch, nn.Linear(2, 2))
    with torch.no_grad():
        third.bias.abs_()
    par.register_parametrization(third, "weight", Skew())
    par.register_parametrization(third, "bias", Exp())
    print(list(third.state_dict()), third.weight, third.bias)
    refused(lambda: setattr(third, "weight", torch.ones(2, 2)))
    with par.cached():
        print(third.weight is third.weight, third.bias is third.bias)
    print(third.weight is third.weight, par.type_before_parametrizations(third).__name__)
    par.remove_parametrizations(third, "weight", leave_parametrized=False)
    print(third, type(third).__name__)
    par.register_parametrization(third, "weight", Prune(torch.eye(2)))
    print(third.weight, [name for name, _ in third.named_buffers()])
    third.load_state_dict(third.state_dict())

    norm = nn.BatchNorm1d(3)
    par.register_parametrization(norm, "running_var", Exp())
    print(list(norm.state_dict()), norm.running_var)


def test_the_program_prints_the_same():
    texts = []
    for library in (torch, tinytorch):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            program(library)
        texts.append(text.getvalue().replace("tinytorch", "torch").split())  # lines break elsewhere
    assert texts[0] == texts[1]
