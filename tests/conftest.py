"""What all tests share: the `device` fixture, which runs a test on every kind of array there is."""

import pytest

import tinytorch
from tests import strict

# Why tests cannot run on CUDA here, or None where they can.
NO_CUDA = None if tinytorch.cuda.is_available() else "no CuPy, or no GPU"

DEVICES = [
    "cpu",
    "strict",
    pytest.param(
        "cuda:0",  # with its number, so that it is what str(tensor.device) says
        id="cuda",
        marks=[pytest.mark.cuda, pytest.mark.skipif(NO_CUDA is not None, reason=str(NO_CUDA))],
    ),
]


@pytest.fixture(scope="session")
def strict_device():
    """The device `strict`: NumPy's arithmetic behind an array type that mixes with nothing.

    It stands in for CuPy where there is no GPU: code that forgets `ctx.xp`, or mixes two devices,
    fails on it.
    """
    strict.register()
    return "strict"


@pytest.fixture(params=DEVICES)
def device(request):
    """The name of a device. A test that takes it runs on `cpu`, on `strict`, and on `cuda`."""
    if request.param == "strict":
        return request.getfixturevalue("strict_device")
    return request.param
