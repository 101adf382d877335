"""What all tests share: the `device` fixture, which runs a test on every kind of array there is."""

import functools

import pytest

import tinytorch
from tests import strict

# Why tests cannot run on CUDA here, or None where they can.
NO_CUDA = None if tinytorch.cuda.is_available() else "no CuPy, or no GPU"

# The devices that only the tests have, and what registers each.
REGISTER = {"strict": strict.register}

DEVICES = ["cpu", *REGISTER]
if NO_CUDA is None:  # with its number, so that it is what str(tensor.device) says
    DEVICES.append(pytest.param("cuda:0", id="cuda", marks=pytest.mark.cuda))


@functools.cache
def registered(name):
    """The name of a device of the tests, which from now on can hold tensors."""
    REGISTER[name]()
    return name


@pytest.fixture(scope="session")
def strict_device():
    """The device `strict`: NumPy's arithmetic behind an array type that mixes with nothing.

    It stands in for CuPy where there is no GPU: code that forgets `ctx.xp`, or mixes two devices,
    fails on it.
    """
    return registered("strict")


@pytest.fixture(params=DEVICES)
def device(request):
    """The name of a device. A test that takes it runs on `cpu`, on `strict`, and, where there is a
    GPU, on `cuda`."""
    return registered(request.param) if request.param in REGISTER else request.param
