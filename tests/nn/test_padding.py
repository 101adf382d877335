"""nn/modules/padding.py: the modes of pad, their derivatives, and the layers."""

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, tensor
from tinytorch.autograd import gradcheck, gradgradcheck
from tinytorch.nn.functional import pad

# name: (shape, pad, mode, the same in NumPy)
CASES = {
    "constant": ((2, 3), (1, 0), "constant", lambda x: np.pad(x, ((0, 0), (1, 0)))),
    "reflect": ((2, 3), (2, 1), "reflect", lambda x: np.pad(x, ((0, 0), (2, 1)), "reflect")),
    "reflect 2d": (
        (2, 3, 4),
        (3, 1, 0, 2),
        "reflect",
        lambda x: np.pad(x, ((0, 0), (0, 2), (3, 1)), "reflect"),
    ),
    # What is cut away after the last element is what its mirror image would have shown.
    "reflect, cut": (
        (2, 4),
        (-2, 3),
        "reflect",
        lambda x: np.pad(x, ((0, 0), (0, 3)), "reflect")[:, 2:],
    ),
    "replicate": (
        (1, 2, 3),
        (2, 1, 0, 3),
        "replicate",
        lambda x: np.pad(x, ((0, 0), (0, 3), (2, 1)), "edge"),
    ),
    "replicate 3d": (
        (1, 2, 3, 2),
        (1,) * 6,
        "replicate",
        lambda x: np.pad(x, ((0, 0), (1, 1), (1, 1), (1, 1)), "edge"),
    ),
    "circular": ((2, 3), (3, 1), "circular", lambda x: np.pad(x, ((0, 0), (3, 1)), "wrap")),
    "circular, cut": (
        (2, 3),
        (-1, 2),
        "circular",
        lambda x: np.pad(x[:, 1:], ((0, 0), (0, 2)), "wrap"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_forward_and_derivatives(name, device):
    shape, pads, mode, numpys = CASES[name]
    data = np.random.default_rng(0).standard_normal(shape)
    x = tensor(data, device=device, requires_grad=True)
    result, expected = pad(x, pads, mode), numpys(data)
    assert result.shape == expected.shape
    assert np.array_equal(result.numpy(force=True), expected)
    assert gradcheck(lambda x: pad(x, pads, mode), x)
    assert gradgradcheck(lambda x: pad(x, pads, mode), x)


def test_types_stay(device):
    for dtype in (tinytorch.float32, tinytorch.int64, tinytorch.bool, tinytorch.float16):
        x = tensor([[0, 1, 1]], dtype=dtype, device=device)
        for mode in ("constant", "reflect", "replicate", "circular"):
            assert pad(x, (1, 1), mode).dtype is dtype
    assert pad(tensor([[1]], device=device), (1, 0), value=2).tolist() == [[2, 1]]


ERRORS = {
    "reflect": (lambda x: pad(x, (3, 0), "reflect"), RuntimeError, "does not fit"),
    "circular": (lambda x: pad(x, (0, 4), "circular"), RuntimeError, "does not fit"),
    "value": (lambda x: pad(x, (0, 1), "circular", 1.0), RuntimeError, "not take a value"),
    "mode": (lambda x: pad(x, (1, 0), "mirror"), NotImplementedError, "mirror"),
    "layer": (lambda x: nn.CircularPad2d(1)(x[0]), ValueError, "expected 3D or 4D"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, device):
    function, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        function(tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device))


def test_layers():
    x = tensor([[[1.0, 2.0], [3.0, 4.0]]])
    assert nn.ZeroPad1d(1)(x[0]).tolist() == [[0, 1, 2, 0], [0, 3, 4, 0]]
    assert nn.ConstantPad1d((0, 1), 9.0)(x[0]).tolist() == [[1, 2, 9], [3, 4, 9]]
    assert nn.ReplicationPad2d((1, 0, 0, 1))(x).tolist() == [[[1, 1, 2], [3, 3, 4], [3, 3, 4]]]
    assert nn.ReflectionPad2d((1, 0, 1, 0))(x).tolist() == [[[4, 3, 4], [2, 1, 2], [4, 3, 4]]]
    assert nn.CircularPad3d((0, 1, 0, 0, 0, 1))(x[None]).shape == (1, 2, 2, 3)
    assert repr(nn.ConstantPad2d(1, 0.5)) == "ConstantPad2d(padding=(1, 1, 1, 1), value=0.5)"
    assert repr(nn.ReflectionPad1d(2)) == "ReflectionPad1d((2, 2))"
