"""testing.assert_close: what it lets pass, what it says, and what it refuses."""

import numpy as np
import pytest

import tinytorch as tt
from tinytorch.testing import assert_close

ONE = tt.tensor([1.0, 2.0])
NAN = tt.tensor([float("nan")])


def test_the_results_may_be_nested(device):
    x = tt.tensor([1.0, 2.0], device=device)
    result = {"a": [x, (x * 2, 1.0)], "b": None, "c": True, "d": np.ones(2)}
    other = {"d": np.ones(2), "a": (x + 1e-7, [x * 2, 1.0]), "b": None, "c": True}
    assert_close(result, other)
    other["a"][1][0] = x * 2.5
    with pytest.raises(AssertionError, match=r"item \['a'\]\[1\]\[0\]"):
        assert_close(result, other)


@pytest.mark.parametrize(
    ("pair", "options"),
    [
        ((ONE, ONE.double()), {"check_dtype": False}),
        ((2, 2.0), {"check_dtype": False}),
        ((NAN, NAN), {"equal_nan": True}),
        ((ONE, ONE + 0.1), {"rtol": 0.0, "atol": 0.2}),
        ((tt.nn.Parameter(ONE), ONE), {}),
        ((tt.zeros(0), tt.zeros(0)), {}),
        ((tt.tensor([float("inf")]), tt.tensor([float("inf")])), {}),
    ],
)
def test_what_passes(pair, options):
    assert assert_close(*pair, **options) is None


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ((ONE, ONE[None]), "'shape' do not match"),
        ((ONE, ONE.double()), "'dtype' do not match"),
        ((ONE, ONE + 1), r"Greatest relative difference: 0\.5 at index \(0,\)"),
        ((tt.tensor([[True, False]]), tt.tensor([[True, True]])), r"not equal.*\s.*\s.*1 / 2 \(50"),
        ((NAN, NAN), "Greatest absolute difference: nan"),
        ((1.0, 1.0 + 1e-6), "Scalars are not close"),
        ((2**62, 2**62 + 1), "Scalars are not equal"),
        ((1, 1.0), "types do not match"),
        ((True, False), "Booleans mismatch"),
        ((None, 1), "None mismatch"),
        (([1], [1, 2]), "1 != 2"),
        (({"a": 1}, {"b": 1}), r"missing \['b'\], additional \['a'\]"),
    ],
)
def test_what_differs(pair, said):
    with pytest.raises(AssertionError, match=said):
        assert_close(*pair)


def test_tensors_on_two_devices(device):
    pair = ONE, ONE.to(device)
    if device != "cpu":
        with pytest.raises(AssertionError, match=f"'device' do not match: cpu != {device}"):
            assert_close(*pair)
    assert_close(*pair, check_device=False)


@pytest.mark.parametrize(
    ("pair", "options", "error"),
    [
        ((ONE, 1.0), {}, TypeError),
        (("a", "a"), {}, TypeError),
        ((tt.nn.Parameter(ONE), ONE), {"allow_subclasses": False}, TypeError),
        ((ONE, ONE), {"rtol": 1e-3}, ValueError),
        ((ONE, ONE), {"rtol": -1.0, "atol": 0.0}, RuntimeError),
    ],
)
def test_refusals(pair, options, error):
    with pytest.raises(error):
        assert_close(*pair, **options)


def test_a_message_of_ones_own():
    for msg, said in (("no", "^no$"), (lambda text: "step 3: " + text, "^step 3: Scalars are")):
        with pytest.raises(AssertionError, match=said):
            assert_close(1, 2, msg=msg)
