"""The classes of torch.nn stand in tinytorch where PyTorch has them."""

import importlib

import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

CLASSES = [
    name
    for name, value in vars(tinytorch.nn).items()
    if isinstance(value, type)
    and getattr(torch.nn, name).__module__.startswith("torch.nn.modules.")
]


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_found_where_pytorch_has_it(name):
    place = getattr(torch.nn, name).__module__.replace("torch", "tinytorch", 1)
    assert getattr(importlib.import_module(place), name) is getattr(tinytorch.nn, name)
