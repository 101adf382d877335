"""Histograms: counts against NumPy's, weights, density, and what is refused."""

import math

import numpy as np
import pytest

import tinytorch as tt

NUMBERS = np.random.default_rng(0).normal(size=(7, 30))


@pytest.mark.parametrize("span", [None, (-1.0, 0.5), (0.3, 0.3)])
@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bins_are_those_of_numpy(span, density, weighted, device):
    weight = np.random.default_rng(1).random(NUMBERS.shape) if weighted else None
    theirs = np.histogram(NUMBERS, 9, span, density=density, weights=weight)
    weight = None if weight is None else tt.tensor(weight, device=device)
    x = tt.tensor(NUMBERS, device=device)
    ours = tt.histogram(x, 9, range=span, weight=weight, density=density)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype is tt.float64 and one.device == x.device
        np.testing.assert_allclose(one.cpu().numpy(), other, rtol=1e-12)
    if not (density or weighted):
        counts = x.histc(9, *(span or ()))
        if span is None or span[0] < span[1]:  # with equal ends histc takes all elements
            assert counts.tolist() == theirs[0].tolist()
        else:
            assert counts.sum().item() == NUMBERS.size


def test_tenths_lie_in_bins_of_their_own(device):
    """0.3 begins a bin, although 3 * 0.1 is above it."""
    x = tt.tensor([i / 10 for i in range(10)], dtype=tt.float64, device=device)
    assert x.histc(10, 0, 1).tolist() == [1.0] * 10


def test_edges_of_ones_own(device):
    edges = tt.tensor([-1.0, -0.25, 0.0, 2.0], dtype=tt.float64, device=device)
    hist, kept = tt.tensor(NUMBERS, device=device).histogram(edges)
    assert kept is edges
    assert hist.tolist() == np.histogram(NUMBERS, edges.cpu().numpy())[0].tolist()


@pytest.mark.parametrize("dtype", [tt.float16, tt.bfloat16, tt.float32, tt.float64])
def test_counts_have_the_type_of_the_input(dtype):
    counts = tt.histc(tt.tensor([1.0, 2.0, 2.5, 3.0, math.nan], dtype=dtype), 2, 1, 3)
    assert counts.dtype is dtype and counts.tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: tt.histc(x * math.inf), RuntimeError),
        (lambda x: tt.histc(x, -1), RuntimeError),
        (lambda x: tt.histc(x, 3, 2, 1), RuntimeError),
        (lambda x: tt.histc(x.long()), NotImplementedError),
        (lambda x: tt.histogram(x, 0), RuntimeError),
        (lambda x: tt.histogram(x, 2.5), TypeError),
        (lambda x: tt.histogram(x, 2, range=(math.nan, 1.0)), RuntimeError),
        (lambda x: tt.histogram(x, x[:1]), RuntimeError),
        (lambda x: tt.histogram(x, x.reshape(1, -1)), RuntimeError),
        (lambda x: tt.histogram(x, x.double()), RuntimeError),
        (lambda x: tt.histogram(x, x, range=(0.0, 1.0)), TypeError),
        (lambda x: tt.histogram(x, 2, weight=x[1:]), RuntimeError),
        (lambda x: tt.histogram(x, 2, weight=x.double()), RuntimeError),
        (lambda x: tt.histogram(x.half(), 2), NotImplementedError),
    ],
)
def test_refusals(call, error):
    with pytest.raises(error):
        call(tt.tensor([1.0, 2.0, 3.0]))
