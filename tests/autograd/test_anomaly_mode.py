"""detect_anomaly: the first nan of a backward pass, and where it comes from."""

import warnings

import pytest

import tinytorch
from tinytorch.autograd import detect_anomaly, set_detect_anomaly


def distance(x):
    return (x.sqrt() * 0).sum()


def test_the_node_and_the_line_are_named(device):
    x = tinytorch.zeros(2, device=device, requires_grad=True)
    with pytest.warns(UserWarning) as caught:
        with detect_anomaly(), pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan"):
            distance(x).backward()
    assert "return (x.sqrt() * 0).sum()" in str(caught[-1].message)
    assert not tinytorch.is_anomaly_enabled()


def test_a_training_goes_on_as_it_would(device):
    with tinytorch.device(device):
        x = tinytorch.rand(4, 3)
        weights = []
        for enabled in (False, True):
            tinytorch.manual_seed(0)
            layer = tinytorch.nn.Linear(3, 2)
            optimizer = tinytorch.optim.Adam(layer.parameters())
            with set_detect_anomaly(enabled):
                for _ in range(3):
                    optimizer.zero_grad()
                    layer(x).square().sum().backward()
                    optimizer.step()
            weights.append(layer.weight)
    assert weights[0].equal(weights[1])


def test_on_and_off_and_as_a_context():
    x = tinytorch.zeros(1, requires_grad=True)
    set_detect_anomaly(True)
    try:
        with set_detect_anomaly(False):
            distance(x).backward()
        assert tinytorch.is_anomaly_enabled()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(RuntimeError):
                distance(x).backward()
        with set_detect_anomaly(True, check_nan=False):
            distance(x).backward()
    finally:
        set_detect_anomaly(False)
    distance(x).backward()
    assert not tinytorch.is_anomaly_enabled()
